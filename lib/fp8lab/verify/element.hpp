#pragma once
// What is known about one wrong element of a product.

#include "fp8lab/verify/verify.hpp"

namespace fp8lab {

/// Fills in the budget, the K-block, its largest products and every model's answer.
void explain_element(const Product& product, ElementReport& element);

}  // namespace fp8lab
