#pragma once
// Conversion between packed codes of fewer than eight bits, as checkpoints store them, and one
// code per byte, as products and ml_dtypes read them.
//
// Code i of a tensor, in row-major order, takes bits [i * width, (i + 1) * width) of its bytes, bit
// 0 being the lowest of byte 0. So two E2M1 codes share a byte with the first in the low nibble, as
// in torch's float4_e2m1fn_x2, safetensors' F4 as written by PyTorch, compressed-tensors, ModelOpt
// and the blocks of gpt-oss (*read*). Four FP6 codes take three bytes, as in the MXFP6 of
// compressed-tensors (*read*). safetensors does not define the order of F6_E2M3 and F6_E3M2
// (*assumed* to be this one).

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// The type with one code per byte: e2m1 for e2m1x2 ...; all other types are returned unchanged.
ElementType unpacked(ElementType type);

/// The packed type: e2m1x2 for e2m1 ...; all other types are returned unchanged.
ElementType packed(ElementType type);

/// "3 elements of 2 bytes", "8 elements of 4 bits".
std::string elements_text(std::size_t count, ElementType type);

/// Unpacks to one code per byte, row-major. Throws `Error` for a type that is not packed, Fortran
/// order, and bytes that disagree with the shape.
std::vector<std::byte> unpack_codes(const TensorView& tensor);

/// Packs codes of e2m1, e2m3 or e3m2. Throws `Error` also for a number of codes that does not fill
/// whole bytes, and for a byte that is not a code.
std::vector<std::byte> pack_codes(const TensorView& tensor);

/// Throws `Error` that names `argument` if a byte, or a word of a format of more than 8 bits, has
/// bits above those of its code, which must be zero.
void require_narrow_codes(FormatId format, std::span<const std::byte> codes,
                          std::string_view argument);

/// The shape in codes for a shape in bytes of packed codes; the last dimension is longer. Throws
/// `Error` that names `argument` for no dimensions, and for bytes that cut a group of codes.
std::vector<std::int64_t> shape_of_packed(ElementType type, std::span<const std::int64_t> bytes,
                                          std::string_view argument);

/// The shape in bytes. Throws `Error` if the last dimension does not fill whole bytes.
std::vector<std::int64_t> shape_in_bytes(ElementType type, std::span<const std::int64_t> codes,
                                         std::string_view argument);

}  // namespace fp8lab
