#pragma once
// The tensors of an epilogue and C, put in their places in a product.

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Throws `Error` naming the operand for shapes that do not fit the sums [m, n] and for what
/// are no floats; for beta without C, or with a C that is said to enter elsewhere.
void add_epilogue(const GemmOperands& operands, const GemmSpec& spec, Product& product);

}  // namespace fp8lab
