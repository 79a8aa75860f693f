#pragma once
// The epilogue, measured: given the right sums, an output is a function of one variable, and the
// factors of sum, bias and C in it follow from least squares.

#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/judge.hpp"

namespace fp8lab {

/// Puts measured epilogues before the judge of the elements of `sample`. `sampled` is
/// `take(product, sample)`. Returns what was measured, for a reader.
std::vector<std::string> measure_epilogue(const Product& product, const Sample& sample,
                                          const Product& sampled, Judge& judge, int threads);

}  // namespace fp8lab
