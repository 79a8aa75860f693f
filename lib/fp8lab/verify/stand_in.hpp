#pragma once
// Wrong products that no instruction computes: scales that are not values of the scale format,
// codes read by another table. Their sums are computed in FP64, and a kernel's output is compared
// with them within the error that the right output has.

#include <cstdint>
#include <functional>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The number of consecutive terms that share the scales of both operands: K if no scale changes
/// along it, and at least 1.
std::int64_t common_scale_block(const GemmProblem& problem);

/// The value that a kernel reads in a code of an operand.
using CodeValue = std::function<double(std::uint32_t code)>;

/// FP64 outputs of a product without an epilogue, row-major [rows, columns].
struct StandIn {
  std::vector<double> values;
  std::vector<double> magnitudes;  ///< the same sums over the absolute values of their terms
};

/// The outputs under the product's scales, whatever these are. A null table reads the codes as they
/// are. Products of a block of one scale are summed first and then scaled.
StandIn stand_in(const Product& product, const CodeValue& a = {}, const CodeValue& b = {});

}  // namespace fp8lab
