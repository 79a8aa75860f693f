#pragma once
// The mistakes that a product can have, each put before a judge.

#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/measure.hpp"

namespace fp8lab {

/// Tries every mistake that the product has a place for. `sampled` is `take(product, sample)`,
/// `golden` its FP32 result, and the judge has the codes of these elements.
void try_mistakes(const Product& product, const Sample& sample, const Product& sampled,
                  std::span<const float> golden, Judge& judge, int threads);

/// Puts measured scales and terms before a judge whose causes leave mismatches unexplained. Causes
/// that explain less than all are dropped where one explains all.
void try_measured_beside(const MeasuredPart& part, const Product& sampled, Judge& judge);

/// Puts what is measured before the judge, for outputs that no known mistake explains. Returns the
/// measured figures, for a reader.
std::vector<std::string> try_measured(const MeasuredPart& part, const Product& sampled,
                                      std::span<const float> golden, Judge& judge);

}  // namespace fp8lab
