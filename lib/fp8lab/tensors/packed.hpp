#pragma once
// Codes of fewer than eight bits without gaps, as checkpoints hold them, and one a byte, as
// products and ml_dtypes read them.
//
// Code i of a tensor, in row-major order, takes bits [i * width, (i + 1) * width) of its bytes, bit
// 0 being the lowest of byte 0. So two E2M1 codes share a byte with the first in the low nibble, as
// torch's float4_e2m1fn_x2, safetensors' F4 as it is written by PyTorch, compressed-tensors,
// ModelOpt and the blocks of gpt-oss have it (*read*), and four FP6 codes lie in three bytes as
// compressed-tensors packs MXFP6 (*read*); safetensors names F6_E2M3 and F6_E3M2 without saying
// their order (*assumed* to be this one).

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// e2m1 for e2m1x2, and so on; every other type is its own.
ElementType unpacked(ElementType type);

/// e2m1x2 for e2m1, and so on; every other type is its own.
ElementType packed(ElementType type);

/// One code a byte, row-major. Throws `Error` for a type that is not packed, Fortran order, and
/// bytes that disagree with the shape.
std::vector<std::byte> unpack_codes(const TensorView& tensor);

/// The other way round, from e2m1, e2m3 or e3m2. Throws `Error` too for a number of codes that does
/// not fill whole bytes, and for a byte that is no code.
std::vector<std::byte> pack_codes(const TensorView& tensor);

/// Throws `Error` naming `argument` where a byte has bits that the format does not: codes of 4 or
/// 6 bits have zeros above them.
void require_narrow_codes(FormatId format, std::span<const std::byte> codes,
                          std::string_view argument);

/// The shape in codes of bytes that hold packed codes: the last dimension is longer. Throws `Error`
/// naming `argument` for no dimensions and bytes that break a group of codes.
std::vector<std::int64_t> shape_of_packed(ElementType type, std::span<const std::int64_t> bytes,
                                          std::string_view argument);

/// The other way round. Throws `Error` where the last dimension does not fill whole bytes.
std::vector<std::int64_t> shape_in_bytes(ElementType type, std::span<const std::int64_t> codes,
                                         std::string_view argument);

}  // namespace fp8lab
