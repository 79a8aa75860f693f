#pragma once
// What the chip is expected to give for a probe: the library's model, or what
// ptxas makes of an instruction that the chip does not have.

#include <cstdint>
#include <string_view>
#include <vector>

#include "emulated_core.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

struct Prediction {
  AccumulatorModel accumulator;  ///< of the tensor core's own instruction
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  /// Neither Hopper nor sm_100 has FP8 mma.sync. The machine code of nvcc 12.4 to 13.0
  /// has F2FP.UNPACK_B, two HMMA.16816, FADD or HADD2 (NVIDIA/cutlass issue 1986 says so
  /// too). Rows measured on a B200 replay with both kinds of halves.
  Halves halves = Halves::none;
};

/// FP8 mma.sync on chips without it.
Prediction prediction_by_halves(Halves halves, FormatId a, FormatId b, bool half_output);

/// What recordings say of it in their header, `executed`; throws `Error` for another text.
std::string_view to_string(Halves halves);
Halves find_halves(std::string_view name);

/// The batch as the tensor core gets it: itself, or FP16 operands in the order in
/// which the halves take them.
TileBatch executed_batch(const Prediction& prediction, TileBatch batch);
/// The format of its operands: `given`, or FP16.
FormatId executed_format(const Prediction& prediction, FormatId given);

/// What the library says for the tiles [first, first + count) of an executed batch:
/// their outputs in order.
std::vector<float> library_results(const TileBatch& executed, const Prediction& prediction,
                                   int first, int count);

/// The same for one case, as binary32 bits.
std::uint32_t predicted(const Prediction& prediction, const VectorCase& one);

}  // namespace fp8lab::cuda
