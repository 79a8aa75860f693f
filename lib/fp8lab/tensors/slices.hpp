#pragma once
// Parts of tensors: what one group of a batch reads.

#include <cstdint>
#include <memory>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// A view and what its bytes live in; null where they live in what it was made from.
struct HeldTensor {
  TensorView view;
  std::shared_ptr<const void> owner;
};

/// The same elements in row-major order: the tensor itself, or a copy of one in Fortran order.
/// Throws `Error` for packed codes in Fortran order and for bytes that do not fit the shape.
HeldTensor row_major(const TensorView& tensor);

/// Elements [begin, end) of the first dimension of a row-major tensor.
TensorView slice(const TensorView& tensor, std::int64_t begin, std::int64_t end);

/// Element `index` of the first dimension of a row-major tensor, without that dimension.
TensorView element(const TensorView& tensor, std::int64_t index);

/// The values as binary32, as `to_float`, but of F64 ones each must be a binary32 number or a NaN:
/// a rounding that nobody asked for would change the bits of what follows. Throws `Error` naming
/// `argument`, the first such value and its place in row-major order.
std::vector<float> to_float_exactly(const TensorView& tensor, std::string_view argument);

/// Integers of any type in row-major order. Throws `Error` naming `argument` for other elements and
/// for ones above 2^63 - 1.
std::vector<std::int64_t> to_integers(const TensorView& tensor, std::string_view argument);

}  // namespace fp8lab
