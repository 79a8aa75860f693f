#pragma once
// Pieces of a product's sum, and what comes after all of them: shared by split sums and variants.

#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// C enters this product there.
bool enters_at(const GemmProblem& problem, CPlacement place);

/// The same scales on tiles of `k_block` terms, which divides theirs.
void refine_scales(InverseScales& scales, const CodeMatrix& m, std::int64_t k_block,
                   Product& product);

/// Neither operand has scales.
void drop_scales(Product& product);

/// Gives the part of a product that begins its sum C, if C enters there.
void begin_with_c(Product& part, const GemmProblem& whole);

/// Scales of the whole sum, and C in the epilogue placement, applied to the finished FP32 sums.
void scale_sums(const GemmProblem& problem, std::vector<float>& sums);

}  // namespace fp8lab
