#pragma once
// Matrix products of Python's arrays.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/verify.hpp"

namespace fp8lab::python {

/// An array and the type of its elements: dense by rows, or a matrix of any strides.
struct ProductTensor {
  using Array = nb::ndarray<nb::ro, nb::device::cpu>;

  Array words;
  TensorView view;
  std::string format;  ///< its elements' name; tf32, which is not a type, for float32 arrays of it
  /// Of a matrix that is neither, which only codes of an operand may be.
  std::optional<std::array<std::int64_t, 2>> strides{};
};

/// The operands of a product, and the arrays that they point into.
struct ProductInputs {
  std::vector<ProductTensor> arrays;  ///< A and B first
  GemmOperands operands;
};

/// A product and its inputs, kept alive.
struct ArrayProduct {
  ProductInputs inputs;
  Product product;
};

/// The same in groups.
struct ArrayGroups {
  ProductInputs inputs;
  GroupedProduct product;
};

/// An output as the library's tensor, called "got" in errors.
Operand operand_of(const ProductTensor& got);

void bind_expect(nb::module_& m);  ///< a part of `bind_verify`

/// The fields of Python's `VerifyReport` and `Identification`.
nb::dict to_dict(const VerifyReport& report);
nb::dict to_dict(const Identification& result);

}  // namespace fp8lab::python
