#pragma once
// Parts of tensors, for the groups of a batch.

#include <cstdint>
#include <memory>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// A view and the owner of its bytes; null if the source of the view owns them.
struct HeldTensor {
  TensorView view;
  std::shared_ptr<const void> owner;
};

/// The elements in row-major order: the tensor itself, or a copy if it has Fortran order.
/// Throws `Error` for packed codes in Fortran order and for bytes that do not fit the shape.
HeldTensor row_major(const TensorView& tensor);

/// Elements [begin, end) of the first dimension of a row-major tensor.
TensorView slice(const TensorView& tensor, std::int64_t begin, std::int64_t end);

/// Element `index` of the first dimension of a row-major tensor, without that dimension.
TensorView element(const TensorView& tensor, std::int64_t index);

/// The values as binary32, as `to_float`, but each F64 value must be a binary32 number or a NaN: a
/// hidden rounding would change the bits of later results. Otherwise throws `Error` that names
/// `argument`, the first such value and its row-major position.
std::vector<float> to_float_exactly(const TensorView& tensor, std::string_view argument);

/// Integers of any type in row-major order. Throws `Error` that names `argument` for other element
/// types and for integers above 2^63 - 1.
std::vector<std::int64_t> to_integers(const TensorView& tensor, std::string_view argument);

}  // namespace fp8lab
