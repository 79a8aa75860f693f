#pragma once
// The storage formats as one table of traits, and exact decoding of their
// codes. Sources: OCP OFP8 1.0 (E4M3, E5M2), OCP MX 1.0 (E8M0, E2M1, E2M3,
// E3M2), the FNUZ pair as ml_dtypes and AMD CDNA3 define it, IEEE 754 (FP16).
// Formats beyond the table are defined by name or as text (definition.hpp).

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fp8lab {

/// Values after the last enumerator are formats beyond the table, numbered as they come: they
/// differ from process to process, and no array has them as indices.
enum class FormatId : std::uint16_t {
  e4m3fn,
  e5m2,
  e4m3fnuz,
  e5m2fnuz,
  e8m0fnu,
  e2m1,
  e2m3,
  e3m2,
  f16,
  bf16,
  tf32,
  e8m13,
  f32,
};

/// The codes that are not finite numbers.
enum class SpecialValues : std::uint8_t {
  ieee,      ///< exponent field all ones: mantissa 0 is Inf, all others are NaN
  nan_only,  ///< magnitude all ones is NaN, no Inf (`fn`)
  fnuz,      ///< only the code of -0 is NaN, no Inf, no -0
  none,      ///< every code is finite
  fnuz_inf,  ///< the code of -0 is NaN, magnitude all ones is Inf (P3109, signed extended)
  nan_inf,   ///< magnitude all ones is NaN, the one below it Inf (P3109, unsigned extended)
  inf_only,  ///< magnitude all ones is Inf, no NaN
};
std::string_view to_string(SpecialValues specials);

/// The finite codes whose exponent field is 0.
enum class FieldZero : std::uint8_t {
  gradual,  ///< zero and subnormal numbers
  flushed,  ///< all of them are zero, and a cast makes all below min normal zero before it rounds
  normal,   ///< normal numbers, as of every other field: no zero (E8M0)
};
std::string_view to_string(FieldZero field_zero);

/// The traits of one format. The value of a finite code with exponent field E and
/// mantissa field T is (1 + T/2^M) 2^(E - bias) if E > 0, and (T/2^M) 2^(1 - bias)
/// if E = 0. E8M0 has no sign, no mantissa and no zero: its code E is 2^(E - 127)
/// for all E < 255.
struct Format {
  FormatId id;
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_sign;
  SpecialValues specials;
  int storage_bits;  ///< width of a stored element; TF32 and E8M13 are stored in binary32
  FieldZero field_zero = FieldZero::gradual;

  [[nodiscard]] constexpr int bytes() const { return storage_bits / 8; }  ///< of an element
  [[nodiscard]] constexpr bool is_scale_only() const { return field_zero == FieldZero::normal; }
  [[nodiscard]] constexpr int code_bits() const {
    return (has_sign ? 1 : 0) + exponent_bits + mantissa_bits;
  }
  [[nodiscard]] constexpr std::uint32_t sign_mask() const {
    return has_sign ? std::uint32_t{1} << (exponent_bits + mantissa_bits) : 0u;
  }
  [[nodiscard]] constexpr std::uint32_t magnitude_mask() const {
    return static_cast<std::uint32_t>((std::uint64_t{1} << (exponent_bits + mantissa_bits)) - 1);
  }
  /// Exponent of the smallest normal number.
  [[nodiscard]] constexpr int min_exponent() const { return is_scale_only() ? -bias : 1 - bias; }
  /// Code of the largest finite positive number; magnitudes grow with codes.
  [[nodiscard]] constexpr std::uint32_t max_finite_code() const {
    switch (specials) {
      case SpecialValues::ieee:
        return infinity_code() - 1;
      case SpecialValues::nan_only:
      case SpecialValues::fnuz_inf:
      case SpecialValues::inf_only:
        return magnitude_mask() - 1;
      case SpecialValues::nan_inf:
        return magnitude_mask() - 2;
      default:
        return magnitude_mask();
    }
  }
  [[nodiscard]] constexpr bool has_infinity() const {
    return specials == SpecialValues::ieee || specials >= SpecialValues::fnuz_inf;
  }
  [[nodiscard]] constexpr bool has_nan() const {
    return specials != SpecialValues::none && specials != SpecialValues::inf_only;
  }
  /// Whether the code of -0 is NaN, as in FNUZ formats.
  [[nodiscard]] constexpr bool has_nan_for_negative_zero() const {
    return specials == SpecialValues::fnuz || specials == SpecialValues::fnuz_inf;
  }
  /// Code of +Inf if the format has one, else a code with the exponent field all ones.
  [[nodiscard]] constexpr std::uint32_t infinity_code() const {
    if (specials >= SpecialValues::fnuz_inf) return max_finite_code() + 1;
    return magnitude_mask() & ~((std::uint32_t{1} << mantissa_bits) - 1);
  }
  /// Whether codes are narrower than the bytes that hold one: the bits above must be zero.
  [[nodiscard]] constexpr bool is_padded() const {
    return code_bits() < storage_bits && storage_bits <= 16;
  }
  /// Whether every finite value is a binary32 number. All are binary64 numbers.
  [[nodiscard]] bool fits_binary32() const;
  [[nodiscard]] double max_finite() const;  ///< largest finite value
  [[nodiscard]] double min_normal() const;  ///< smallest positive normal
  [[nodiscard]] double min_subnormal()
      const;  ///< smallest positive value: a subnormal if there are any
};

inline constexpr std::array<Format, 13> kFormats{{
    {FormatId::e4m3fn, "e4m3fn", 4, 3, 7, true, SpecialValues::nan_only, 8},
    {FormatId::e5m2, "e5m2", 5, 2, 15, true, SpecialValues::ieee, 8},
    {FormatId::e4m3fnuz, "e4m3fnuz", 4, 3, 8, true, SpecialValues::fnuz, 8},
    {FormatId::e5m2fnuz, "e5m2fnuz", 5, 2, 16, true, SpecialValues::fnuz, 8},
    {FormatId::e8m0fnu, "e8m0fnu", 8, 0, 127, false, SpecialValues::nan_only, 8, FieldZero::normal},
    {FormatId::e2m1, "e2m1", 2, 1, 1, true, SpecialValues::none, 8},
    {FormatId::e2m3, "e2m3", 2, 3, 1, true, SpecialValues::none, 8},
    {FormatId::e3m2, "e3m2", 3, 2, 3, true, SpecialValues::none, 8},
    {FormatId::f16, "f16", 5, 10, 15, true, SpecialValues::ieee, 16},
    {FormatId::bf16, "bf16", 8, 7, 127, true, SpecialValues::ieee, 16},
    {FormatId::tf32, "tf32", 8, 10, 127, true, SpecialValues::ieee, 32},
    {FormatId::e8m13, "e8m13", 8, 13, 127, true, SpecialValues::ieee, 32},
    {FormatId::f32, "f32", 8, 23, 127, true, SpecialValues::ieee, 32},
}};

constexpr bool is_built_in(FormatId id) { return static_cast<std::size_t>(id) < kFormats.size(); }

/// A format beyond the table, by the id that `find_format` gave it.
const Format& defined_format(FormatId id);

constexpr const Format& format(FormatId id) {
  return is_built_in(id) ? kFormats[static_cast<std::size_t>(id)] : defined_format(id);
}

/// The format with the same field widths and the other coding. FNUZ has a bias one higher, no -0
/// and no Inf. E4M3FN <-> E4M3FNUZ and E5M2 <-> E5M2FNUZ; empty for all other formats.
constexpr std::optional<FormatId> fnuz_counterpart(FormatId id) {
  switch (id) {
    case FormatId::e4m3fn:
      return FormatId::e4m3fnuz;
    case FormatId::e5m2:
      return FormatId::e5m2fnuz;
    case FormatId::e4m3fnuz:
      return FormatId::e4m3fn;
    case FormatId::e5m2fnuz:
      return FormatId::e5m2;
    default:
      return std::nullopt;
  }
}

/// The format called `name`. The short names e4m3, fp16, bfloat16, float32 and
/// the NumPy spellings (float8_e4m3fn ...) are accepted too, and names and texts of formats beyond
/// the table (definition.hpp). The reference stays valid, and is one for all names of a format.
/// Throws `Error`. Thread-safe.
const Format& find_format(std::string_view name);

enum class ValueClass : std::uint8_t { zero, subnormal, normal, infinity, nan };

/// An unpacked code. A finite value is
/// (-1)^negative * significand * 2^(exponent - mantissa_bits). For normal numbers
/// `significand` includes the hidden bit. Zeros and subnormals have the smallest
/// normal exponent, as tensor cores read them.
struct Unpacked {
  std::uint32_t significand = 0;
  std::int16_t exponent = 0;
  std::int8_t mantissa_bits = 0;
  ValueClass value_class = ValueClass::zero;
  bool negative = false;

  [[nodiscard]] constexpr bool is_finite() const {
    return value_class != ValueClass::infinity && value_class != ValueClass::nan;
  }
};

/// Unpacks `code`. Bits above the format's width are ignored.
constexpr Unpacked unpack(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & f.magnitude_mask();
  const std::uint32_t hidden = std::uint32_t{1} << f.mantissa_bits;
  const std::uint32_t field = magnitude >> f.mantissa_bits;
  Unpacked u;
  u.negative = (code & f.sign_mask()) != 0;
  u.mantissa_bits = static_cast<std::int8_t>(f.mantissa_bits);
  u.significand = magnitude & (hidden - 1);
  if (f.has_nan_for_negative_zero() && u.negative && magnitude == 0) {
    u.value_class = ValueClass::nan;
  } else if (magnitude > f.max_finite_code()) {
    u.value_class =
        f.has_infinity() && magnitude == f.infinity_code() ? ValueClass::infinity : ValueClass::nan;
  } else if (field == 0 && !f.is_scale_only()) {
    if (f.field_zero == FieldZero::flushed) u.significand = 0;
    u.value_class = u.significand == 0 ? ValueClass::zero : ValueClass::subnormal;
    u.exponent = static_cast<std::int16_t>(f.min_exponent());
  } else {
    u.value_class = ValueClass::normal;
    u.significand |= hidden;
    u.exponent = static_cast<std::int16_t>(static_cast<int>(field) - f.bias);
  }
  return u;
}

/// The exact value of `code`. A NaN code gives a quiet NaN with its sign.
double decode(const Format& f, std::uint32_t code);

/// The code in a storage word. TF32 and E8M13 are stored in binary32, whose low
/// bits are dropped, as tensor cores ignore them. For other formats the word is
/// the code.
constexpr std::uint32_t code_of_storage(const Format& f, std::uint32_t word) {
  return f.storage_bits == 32 ? word >> (23 - f.mantissa_bits) : word;
}

/// All values of a format of at most 16 code bits, unpacked and indexed by code.
std::span<const Unpacked> unpack_table(FormatId id);

/// All values of a format of at most 16 code bits as binary32, indexed by code. Throws `Error` for
/// a format that has other values than binary32.
std::span<const float> decode_table(FormatId id);

std::string_view to_string(ValueClass value_class);

}  // namespace fp8lab
