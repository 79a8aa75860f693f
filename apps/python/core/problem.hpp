#pragma once
// A matrix product over Python's arrays.

#include <optional>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/verify.hpp"

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
  SplitK split{};
  Epilogue epilogue{};
  Scales bias{};
  Scales row_scales{};
  Scales column_scales{};
};

/// The same as the library's product.
Product product_of(const Problem& problem, std::string model, const OutputCast& output);

/// An output [m, n] in words of its format.
using Output = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void bind_expect(nb::module_& m);  ///< a part of `bind_verify`

/// The same as the library's tensor. Throws `Error` for words of another width.
Operand operand_of(const Output& got, FormatId id);

/// The fields of Python's `VerifyReport` and `Identification`.
nb::dict to_dict(const VerifyReport& report);
nb::dict to_dict(const Identification& result);

}  // namespace fp8lab::python
