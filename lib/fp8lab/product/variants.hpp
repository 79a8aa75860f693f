#pragma once
// Products with one known mistake. The fault matrix of `verify` tests whether a check
// detects them; a diagnosis tests whether one of them explains an output.

#include <optional>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Which of the two operands' scales a variant changes.
enum class Side : std::uint8_t { a, b, both };

/// The product without the scales of `side`. This function and those below return nothing if
/// the mistake is not possible in the product (no scales, one row, other tiles).
std::optional<Product> without_scales(const Product& product, Side side);
/// The inverse scales applied twice.
std::optional<Product> with_doubled_scales(const Product& product, Side side);
/// Inverse scales rounded up to powers of two, as E8M0 stores them, with the codes of the
/// original scales.
std::optional<Product> with_power_of_two_scales(const Product& product, Side side);
/// The scales of A used for B and those of B for A. Nothing for one scale each, which gives
/// the same product, and for different tiles along K.
std::optional<Product> with_swapped_scales(const Product& product);
/// The grid of scales read in column-major order: a wrong scale axis.
std::optional<Product> with_transposed_scales(const Product& product, Side side);
/// B's memory read as [k, n] if it is [n, k], and as [n, k] if it is [k, n].
std::optional<Product> with_transposed_b(const Product& product);
/// E4M3FN and E5M2 codes read as FNUZ codes, or the reverse.
std::optional<Product> with_fnuz_codes(const Product& product);
/// Subnormal operands read as zeros. Copies the codes, so use it for samples.
std::optional<Product> with_flushed_inputs(const Product& product);
/// The product without the terms [begin, end). Copies the codes, so use it for samples.
Product without_terms(const Product& product, std::int64_t begin, std::int64_t end);
/// Whether a model can compute the product in place of its own model: a definition, or an
/// instruction that reads the same operands.
bool stands_beside(const InstructionModel& model, const Product& product);
/// The product with another accumulator. A promotion interval that it cannot have becomes 0.
Product with_accumulator(const Product& product, const AccumulatorModel& model);

// The results below include the epilogue and are not cast yet. Nothing for a product that is
// already split.

/// The FP32 result without the first promotion: two intervals in one accumulator, with
/// the scales of the second. Nothing without promotion.
std::optional<std::vector<float>> compute_missing_promotion(const Product& product);

/// The FP32 result of `SplitK` with `parts` equal parts, cut at multiples of the
/// promotion interval or of the model's terms, summed separately and added in FP32 in
/// order. Nothing if K is too short.
std::optional<std::vector<float>> compute_split_k(const Product& product, int parts,
                                                  int threads = 0);

}  // namespace fp8lab
