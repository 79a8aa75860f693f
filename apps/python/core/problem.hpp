#pragma once
// A matrix product over Python's arrays.

#include <optional>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/io/operand.hpp"

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

/// An output [m, n] in words of its format.
using Output = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// The same as the library's tensor. Throws `Error` for words of another width.
Operand operand_of(const Output& got, FormatId id);

}  // namespace fp8lab::python
