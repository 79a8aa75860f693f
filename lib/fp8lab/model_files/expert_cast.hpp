#pragma once
// gpt-oss's fused experts: [experts, k, rows] in floats, [experts, rows, k / 32, 16] bytes in
// MXFP4.

#include "fp8lab/model_files/weight_outputs.hpp"

namespace fp8lab {

/// Casts each expert's transpose with the bits of `quantize(recipe, transpose)`, and writes codes
/// and scales. Memory: twice an expert. Returns how many scales are NaN. `release` as in
/// `quantize_weight`.
std::int64_t quantize_experts(const WeightScheme& scheme, const Recipe& recipe,
                              const TensorView& experts, const WeightOutputs& outputs,
                              const ReleasePart& release, SafetensorsWriter& out);

/// The way back, one expert: packed E2M1 [rows, k / 32, 16] and E8M0 scales [rows, k / 32] to
/// [k, rows] of `type`, as `dequantize_weight` has it. Throws `Error` as that does.
std::vector<std::byte> dequantize_expert(const TensorView& blocks,
                                         std::span<const std::uint8_t> scales, std::int64_t rows,
                                         std::int64_t k, ElementType type);

}  // namespace fp8lab
