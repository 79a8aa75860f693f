#pragma once
// Adds the tensors of an epilogue, and C, to a product.

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Throws `Error` that names the operand for shapes that do not fit the sums [m, n], for types that
/// are not floats, and for beta without C or with a C that enters elsewhere.
void add_epilogue(const GemmOperands& operands, const GemmSpec& spec, Product& product);

}  // namespace fp8lab
