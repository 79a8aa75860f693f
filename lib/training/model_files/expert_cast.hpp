#pragma once
// gpt-oss's fused experts: [experts, k, rows] in floats, [experts, rows, k / 32, 16] bytes in
// MXFP4.

#include "training/model_files/weight_outputs.hpp"

namespace fp8lab {

/// Casts each expert's transpose with the bits of `quantize(recipe, transpose)`, and writes codes
/// and scales. Memory: twice an expert. Returns how many scales are NaN. `release` as in
/// `quantize_weight`.
std::int64_t quantize_experts(const WeightScheme& scheme, const Recipe& recipe,
                              const TensorView& experts, const WeightOutputs& outputs,
                              const ReleasePart& release, SafetensorsWriter& out);

/// Elements [rows, columns] of 1, 2 or 4 bytes to [columns, rows].
std::vector<std::byte> transposed(std::span<const std::byte> bytes, std::int64_t rows,
                                  std::int64_t columns, ElementType type);

/// Quantizes fused experts [experts, n, k] with plain scales, each expert as a matrix [n, k].
/// Returns the number of NaN codes.
std::int64_t quantize_fused(const WeightScheme& scheme, const Recipe& recipe,
                            const TensorView& experts, const WeightOutputs& outputs,
                            const ReleasePart& release, SafetensorsWriter& out);

}  // namespace fp8lab
