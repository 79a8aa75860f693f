#pragma once
// A matrix product over Python's arrays.

#include <optional>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::python {

using Scales = std::optional<Vector<const float>>;

/// A problem and the arrays that it points into, kept alive.
struct Problem {
  GemmProblem problem;
  Words a;
  Words b;
  std::optional<Matrix<const float>> c;
  Scales a_scales;
  Scales b_scales;
};

}  // namespace fp8lab::python
