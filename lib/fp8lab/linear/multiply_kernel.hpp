#pragma once
// The vector kernel of `multiply`: one block of packed operands.

#include <cstdint>

#include "fp8lab/core/target.hpp"

namespace fp8lab::train::detail {

/// Continues the sums of a [rows, width] block by k products each. `a` is packed
/// [k][rows], `b` [k][width], `d` has `d_stride`.
using MultiplyBlock = void (*)(std::int64_t k, const float* a, const float* b, float* d,
                               std::int64_t d_stride);

struct MultiplyKernel {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  MultiplyBlock block = nullptr;
};

/// The kernel of a target; `scalar` has one as well.
MultiplyKernel multiply_kernel(Target target);

}  // namespace fp8lab::train::detail
