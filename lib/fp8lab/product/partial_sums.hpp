#pragma once
// Parts of a product's sum and the operations after it, shared by split sums and variants.

#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Whether C enters this product at `place`.
bool enters_at(const GemmProblem& problem, CPlacement place);

/// Repeats the scales for tiles of `k_block` terms, which must divide the present tiles.
void refine_scales(InverseScales& scales, const CodeMatrix& m, std::int64_t k_block,
                   Product& product);

/// Removes the scales that are applied after the sum. Those that the instruction itself applies
/// stay, without their second level.
void drop_outer_scales(Product& product);

/// Adds C to the part that begins the sum of a product, if C enters there.
void begin_with_c(Product& part, const GemmProblem& whole);

/// Applies scales of the whole sum, and C in the epilogue placement, to the finished FP32 sums.
void scale_sums(const GemmProblem& problem, std::vector<float>& sums);

}  // namespace fp8lab
