#pragma once
// Products that went wrong in one known way. A fault matrix asks whether a check
// sees them, a diagnosis whether one of them explains an output.

#include <optional>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Which of the two operands' scales a variant changes.
enum class Side : std::uint8_t { a, b, both };

/// What is unscaled, exchanged or read in another order; nothing where the
/// product has no such thing (no scales, one row, other tiles).
std::optional<Product> without_scales(const Product& product, Side side);
/// The inverse scales applied twice.
std::optional<Product> with_doubled_scales(const Product& product, Side side);
/// Inverse scales rounded up to powers of two, as E8M0 holds them, under codes
/// that were made with the scales as they were.
std::optional<Product> with_power_of_two_scales(const Product& product, Side side);
/// A's scales used for B and B's for A. Nothing for one scale each, whose
/// product is the same either way, and for different tiles along K.
std::optional<Product> with_swapped_scales(const Product& product);
/// The grid of A's (B's) scales read in column-major order: a wrong scale axis.
std::optional<Product> with_transposed_scales(const Product& product, Side side);
/// B's memory read as if it were [k, n] (or, where it is, as if it were [n, k]).
std::optional<Product> with_transposed_b(const Product& product);
/// E4M3FN and E5M2 codes read as FNUZ ones, or the reverse.
std::optional<Product> with_fnuz_codes(const Product& product);
/// Subnormal operands read as zeros. Copies the codes: for samples.
std::optional<Product> with_flushed_inputs(const Product& product);
/// The terms [begin, end) left out. Copies the codes: for samples.
Product without_terms(const Product& product, std::int64_t begin, std::int64_t end);
/// Whether a model may be asked for the product in place of its own: a definition, or an
/// instruction that reads what the product's own one reads.
bool stands_beside(const InstructionModel& model, const Product& product);
/// Another accumulator; a promotion interval that it cannot have becomes 0.
Product with_accumulator(const Product& product, const AccumulatorModel& model);

// The results below are what is cast: the epilogue is applied. Of a product that is split
// already there is nothing.

/// The FP32 result when the first promotion does not happen: two intervals in one
/// accumulator, under the second one's scales. Nothing without promotion.
std::optional<std::vector<float>> compute_missing_promotion(const Product& product);

/// The FP32 result of K cut into `parts` equal parts (at multiples of the
/// promotion interval or of the model's terms), each summed alone and then added in
/// FP32 in order: `SplitK` with that many parts. Nothing where K is too short.
std::optional<std::vector<float>> compute_split_k(const Product& product, int parts,
                                                  int threads = 0);

}  // namespace fp8lab
