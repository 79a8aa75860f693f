#pragma once
// Tensors as files store them: an element type, a shape and little-endian
// bytes. The readers and writers of .npy and .safetensors share them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The type of the elements of a tensor. FP8, FP6, FP4 and E8M0 elements are storage codes, one per
/// byte, in its low bits, as in ml_dtypes. The types with `x` are packed codes of FP4 and FP6
/// (packed.hpp); their shapes count codes, not bytes.
///
/// Values after the last enumerator are codes of formats beyond the built-in table, which no file
/// has a name for: a .npy file holds them as unsigned words, and the caller says what they are.
enum class ElementType : std::uint16_t {
  f64,
  f32,
  f16,
  bf16,
  e4m3fn,
  e5m2,
  e8m0fnu,
  e4m3fnuz,
  e5m2fnuz,
  e2m1,
  e2m3,
  e3m2,
  e2m1x2,  ///< two codes a byte, the first in the low nibble: torch's float4_e2m1fn_x2
  e2m3x4,  ///< four codes in three bytes, the first in the lowest bits
  e3m2x4,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  boolean,
};

std::string_view to_string(ElementType type);

/// The type called `name` (f32, bf16, e4m3fn ...; the spellings that
/// `find_format` knows are accepted too). Throws `Error`.
ElementType find_element_type(std::string_view name);

/// Whether the elements are floats: F64, F32, F16 or BF16.
constexpr bool is_float(ElementType type) {
  return type == ElementType::f64 || type == ElementType::f32 || type == ElementType::f16 ||
         type == ElementType::bf16;
}
/// The same without F64: what weights, calibration samples and outputs of kernels are.
constexpr bool is_float_of_32_bits_or_fewer(ElementType type) {
  return is_float(type) && type != ElementType::f64;
}

/// The name of the type in safetensors files; empty where they have no such elements.
std::string_view safetensors_name(ElementType type);
/// The type of this name in safetensors files, or nothing.
std::optional<ElementType> element_type_in_safetensors(std::string_view name);

/// Bytes per element. Throws `Error` for packed codes, which share bytes.
std::size_t element_bytes(ElementType type);

/// Bits per element: 4 or 6 for packed codes, else a multiple of 8.
std::size_t element_bits(ElementType type);

/// Whether the elements are packed codes, which share bytes.
constexpr bool is_packed(ElementType type) {
  return type >= ElementType::e2m1x2 && type <= ElementType::e3m2x4;
}

/// Bytes of `count` elements. Throws `Error` naming `argument` for packed codes that do not fill
/// whole bytes.
std::size_t storage_bytes(ElementType type, std::int64_t count, std::string_view argument);

/// The format of the elements, if they are codes or floats of a format. Nothing for
/// F64, integers and packed codes.
std::optional<FormatId> format_of(ElementType type);

/// The element type for codes of a format. Throws `Error` for a built-in format without an
/// element type (TF32, E8M13).
ElementType element_type_of(FormatId format);

/// A view of a tensor whose bytes another object owns (a mapped file, a vector).
struct TensorView {
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;   ///< no dimensions: a scalar, one element
  std::span<const std::byte> bytes;  ///< little endian, at any alignment
  bool fortran_order = false;        ///< the first index varies fastest

  [[nodiscard]] std::int64_t size() const;  ///< elements
};

/// The largest number of dimensions, as in NumPy.
inline constexpr std::size_t kMostDimensions = 64;

/// The product of a shape. Throws `Error` naming `argument` for a negative
/// dimension, a product above 2^62 or more than `kMostDimensions`.
std::int64_t element_count(std::span<const std::int64_t> shape, std::string_view argument);

/// A row-major view of typed data: `view_of(ElementType::f32, {m, k}, values)`.
template <class T>
TensorView view_of(ElementType type, std::vector<std::int64_t> shape, std::span<const T> values) {
  return {type, std::move(shape), std::as_bytes(values), false};
}

/// The values as binary32 in row-major order. F64 and integers are rounded to
/// nearest even, and F64 above binary32's range gives Inf. All other types are exact. Codes,
/// also those of NaN, are decoded as by `decode`. Throws `Error` for packed codes in Fortran order.
std::vector<float> to_float(const TensorView& tensor);

/// A shape as text: `[3, 4]`.
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace fp8lab
