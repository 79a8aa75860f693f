#pragma once
// The acceptance rules that public projects ship with their FP8 products. Reports
// say which of them would have detected a fault.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/metrics/code_comparison.hpp"

namespace fp8lab {

/// The rule of a gate. x is the reference, y the output.
enum class GateRule : std::uint8_t {
  calc_diff,      ///< 1 - 2 x.y / (x.x + y.y) < limit
  mean_relative,  ///< mean |y - x| / mean |x| < limit
  cosine,         ///< cosine > limit
  close,          ///< every |y - x| <= absolute + relative |x|
};

/// One rule that a project ships. The projects compare with an FP32 product of
/// dequantized operands. Here the reference is the golden output of the instruction,
/// which is nearer to the kernels that they test.
struct Gate {
  std::string_view name;  ///< `deepgemm`, `vllm.scaled_mm` ...
  GateRule rule;
  double limit;         ///< for all rules except `close`
  Tolerance tolerance;  ///< for `close` and outputs of at most 16 bits
  Tolerance wide;       ///< for `close` and FP32 outputs
  std::string_view text;
  std::string_view
      source;  ///< repository and file, each *read* in a stored version of 2025 or 2026
};

std::span<const Gate> gates();

/// The gate called `name`. Throws `Error` that lists them.
const Gate& find_gate(std::string_view name);

/// The tolerances that `compare_codes` must count for `gate_passes`: one for each gate.
std::vector<Tolerance> gate_tolerances(FormatId output);

/// Whether an output with these errors passes gate number `index` of `gates()`.
/// A pair with a NaN or an infinity on one side fails, as in these projects.
bool gate_passes(std::size_t index, const CodeComparison& comparison);

}  // namespace fp8lab
