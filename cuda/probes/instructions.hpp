#pragma once
// Which instructions are probed on which chip, and what each is held to there. Nothing here needs
// CUDA: the kernels are found by an instruction's name (probe.hpp).

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"
#include "layout.hpp"
#include "prediction.hpp"

namespace fp8lab::cuda {

/// What a chip and the program that runs on it are, as far as instructions go.
struct Chip {
  int capability = 90;   ///< compute capability, major * 10 + minor
  int compiler = 13000;  ///< the CUDA version of whoever made its machine code: nvcc's, or the
                         ///< driver's where it compiles PTX
};

/// The first part of the names of the chip's models: sm80, sm89, sm90, sm100 or sm120. Empty for
/// chips without a model.
std::string_view architecture_of(int capability);

/// What an FP8 `mma.sync` becomes there. sm_89 and sm_120 have the instruction. sm_90 and sm_100
/// have none, and what the compiler makes of it depends on its version, not on the chip: chained
/// halves from CUDA 12.8 on, separate ones before (machine code of 12.4 to 13.0).
Halves halves_of(const Chip& chip);

/// Whose machine code runs: nvcc's if the program holds some for the chip (same major version, no
/// higher minor one; `cubins` lists capabilities), else the driver's, which compiles PTX.
/// `forced`: CUDA_FORCE_PTX_JIT is set.
int compiler_of(int capability, std::span<const int> cubins, int nvcc, int driver, bool forced);

/// Who has an instruction.
enum class Family {
  mma,          ///< mma.sync on FP16, BF16, TF32: sm_80 and later
  mma_fp8,      ///< mma.sync on FP8: sm_89 and later
  mma_own_fp8,  ///< mma.sync on FP8 that is only probed where it is an instruction: sm_89, sm_120
  mma_scaled,   ///< mma.sync with block scales: sm_120
  wgmma,        ///< sm_90
  tcgen05,      ///< sm_100, with and without block scales
};
bool has_family(Family family, int capability);

struct Instruction {
  std::string_view name;   ///< as PTX writes it, and where A comes from
  std::string_view model;  ///< the library's model without the architecture
  FormatId a_format;
  FormatId b_format;
  Family family;
  std::optional<ScaleBlocks> scales = std::nullopt;
};

/// Every instruction that is probed anywhere.
std::span<const Instruction> all_instructions();

/// Where an instruction wants operands of fewer than 8 bits. All kinds have the low bits first.
enum class NarrowOperands {
  in_bytes,    ///< a byte each: E2M1 in bits 2 to 5, E2M3 and E3M2 in the low six
  in_halves,   ///< two E2M1 in a byte
  in_sixteen,  ///< 16 without a gap at the beginning of 16 bytes; the rest is zero
};

/// One instruction on one chip.
struct ProbedInstruction {
  std::string_view name;
  std::string model;  ///< the library's prediction, or its model with A's format alone
  FormatId a_format;
  FormatId b_format;
  /// Not none: the chip does not have the instruction.
  Halves halves = Halves::none;
  std::optional<ScaleBlocks> scales = std::nullopt;  ///< block scales that it takes

  /// Where operands of fewer than 8 bits are.
  [[nodiscard]] NarrowOperands narrow_operands() const;
  /// Operand pairs that one instruction takes; of a sparse one, those that are multiplied.
  [[nodiscard]] int terms() const;
  /// Those of a step of kStepBytes, which is one instruction or two.
  [[nodiscard]] int terms_of_step() const;
  /// The model with this probe's formats, put together as the compiler did (mixed inputs without a
  /// model of their own take that of the unmixed ones with the same A).
  [[nodiscard]] InstructionModel instruction() const;
  /// How well what the chip is held to is known: as the model where that is of this very
  /// instruction and these inputs.
  [[nodiscard]] Standing standing() const;
  /// What the chip's tensor core is held to, for the device's emulator.
  [[nodiscard]] Prediction prediction() const;
};

/// The instructions that a chip has, or gets from the compiler, and that have a model there.
std::vector<ProbedInstruction> instructions_of(const Chip& chip);

}  // namespace fp8lab::cuda
