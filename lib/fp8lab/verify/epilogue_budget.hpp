#pragma once
// How far an epilogue may carry the error of a sum.

#include <cstdint>

#include "fp8lab/accumulate/bound.hpp"
#include "fp8lab/product/epilogue.hpp"

namespace fp8lab {

/// A sum before the epilogue's steps up to the activation, each with half a unit of binary32.
/// (row, column) of sums [m, n].
BoundedSum bounded_before_activation(const Epilogue& epilogue, BoundedSum sum, std::int64_t row,
                                     std::int64_t column, std::int64_t n);

/// The activation and what comes after it. `up` is what a gate multiplies, null without one.
/// GELU, SiLU and the others change by at most 1.13 times what their argument changes by, and
/// may be off by `activation_ulps`, and one rounding.
BoundedSum bounded_activation(const Epilogue& epilogue, const BoundedSum& v, const BoundedSum* up);

}  // namespace fp8lab
