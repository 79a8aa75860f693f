#pragma once
// The mistakes that a product can have, each put before a judge.

#include <span>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/judge.hpp"

namespace fp8lab {

/// Tries every mistake that the product has a place for. `sampled` is `take(product, sample)`,
/// `golden` its FP32 result, and the judge has the codes of these elements.
void try_mistakes(const Product& product, const Sample& sample, const Product& sampled,
                  std::span<const float> golden, Judge& judge, int threads);

}  // namespace fp8lab
