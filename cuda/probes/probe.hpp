#pragma once
// One probe is one instruction, wrapped in a kernel that feeds it batches of
// tiles. The table says which model of the library predicts it.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"
#include "layout.hpp"
#include "prediction.hpp"

namespace fp8lab::cuda {

/// a, b: [tiles, 64, steps * 32] bytes; c: [tiles, 64], used as case_of_c says;
/// d: [tiles, 64, 64]. One block a tile. FP16 accumulators convert c to FP16
/// (nearest even) and give back the FP16 value.
using ProbeKernel = void (*)(const std::uint8_t* a, const std::uint8_t* b, const float* c, float* d,
                             int steps);

struct Probe {
  std::string_view name;   ///< the instruction, as PTX writes it, and where A comes from
  std::string_view model;  ///< the library's prediction
  FormatId a_format;
  FormatId b_format;
  ProbeKernel kernel;
  /// Not none: the model is what the chip would do if it had the instruction.
  Halves halves = Halves::none;

  /// Operand pairs that one instruction takes.
  [[nodiscard]] int terms() const { return kStepBytes * 8 / format(a_format).storage_bits; }
  /// The model, with this probe's formats (mixed inputs without one of their own take that
  /// of the unmixed ones with the same A).
  [[nodiscard]] InstructionModel instruction() const {
    InstructionModel found = find_instruction_model(model);
    found.a_format = a_format;
    found.b_format = b_format;
    return found;
  }
  /// How well what the chip is held to is known: as the model where that is of this very
  /// instruction and these inputs.
  [[nodiscard]] Standing standing() const {
    const InstructionModel& found = find_instruction_model(model);
    const std::string_view kind = name.substr(0, name.find('.') + 1);
    const bool own = model.substr(model.find('.') + 1).starts_with(kind) &&
                     found.a_format == a_format && found.b_format == b_format;
    return own && halves == Halves::none ? found.standing : Standing::assumed;
  }
  /// What the chip is held to.
  [[nodiscard]] Prediction prediction() const {
    const AccumulatorModel& accumulator = find_instruction_model(model).accumulator;
    if (halves == Halves::none) return {accumulator, a_format, b_format};
    return prediction_by_halves(halves, a_format, b_format,
                                accumulator.output_format == FormatId::f16);
  }
};

/// Every probe this build has; FP8 mma.sync with FP16 output needs CUDA 12.8.
const std::vector<Probe>& all_probes();

/// Launches a probe on device memory; checked, not synchronised.
void launch_probe(const Probe& probe, const std::uint8_t* a, const std::uint8_t* b, const float* c,
                  float* d, int tiles, int steps);

// The parts of the table, each in its own source.
std::span<const Probe> wgmma_fp8_probes();
std::span<const Probe> wgmma_half_output_probes();
std::span<const Probe> wgmma_wide_probes();
std::span<const Probe> mma_probes();

}  // namespace fp8lab::cuda
