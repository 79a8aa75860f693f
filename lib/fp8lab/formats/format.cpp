#include "fp8lab/formats/format.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/definition.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::pair<std::string_view, FormatId>, 18> kAliases{{
    {"e4m3", FormatId::e4m3fn},
    {"fp8_e4m3", FormatId::e4m3fn},
    {"fp8_e5m2", FormatId::e5m2},
    {"float8_e4m3fn", FormatId::e4m3fn},
    {"float8_e5m2", FormatId::e5m2},
    {"float8_e4m3fnuz", FormatId::e4m3fnuz},
    {"float8_e5m2fnuz", FormatId::e5m2fnuz},
    {"float8_e8m0fnu", FormatId::e8m0fnu},
    {"e8m0", FormatId::e8m0fnu},
    {"xf32", FormatId::tf32},
    {"float4_e2m1fn", FormatId::e2m1},
    {"float6_e2m3fn", FormatId::e2m3},
    {"float6_e3m2fn", FormatId::e3m2},
    {"fp16", FormatId::f16},
    {"float16", FormatId::f16},
    {"bfloat16", FormatId::bf16},
    {"float32", FormatId::f32},
    {"fp32", FormatId::f32},
}};

/// The tables of the built-in formats of at most 16 code bits.
std::array<FormatTables, kFormats.size()> built_in_tables() {
  std::array<FormatTables, kFormats.size()> tables;
  for (const Format& f : kFormats)
    if (f.code_bits() <= 16) tables[static_cast<std::size_t>(f.id)] = format_tables(f);
  return tables;
}

const FormatTables& tables_of(FormatId id) {
  static const auto kTables = built_in_tables();
  require(format(id).code_bits() <= 16, "format", "at most 16 code bits", format(id).name);
  return is_built_in(id) ? kTables[static_cast<std::size_t>(id)] : tables_of_defined(id);
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names = name_list(kFormats);
  for (const NamedFormat& one : named_formats()) names.push_back(one.name);
  return names;
}

/// The largest exponent of a finite value.
int largest_exponent(const Format& f) {
  const Unpacked last = unpack(f, f.max_finite_code());
  return last.exponent - (last.value_class == ValueClass::normal ? 0 : 1);
}

}  // namespace

FormatTables format_tables(const Format& f) {
  // The first caller may flush subnormals: the tables are everyone's.
  const FloatEnvironment environment;
  FormatTables tables;
  const int bits = is_built_in(f.id) ? f.code_bits() : f.storage_bits;
  for (std::uint32_t code = 0; code < std::uint32_t{1} << bits; ++code) {
    tables.unpacked.push_back(unpack(f, code));
    if (f.fits_binary32()) tables.values.push_back(static_cast<float>(decode(f, code)));
  }
  return tables;
}

bool Format::fits_binary32() const {
  const int least =
      field_zero == FieldZero::gradual ? min_exponent() - mantissa_bits : min_exponent();
  return largest_exponent(*this) <= 127 && least >= -149;
}

double Format::max_finite() const { return decode(*this, max_finite_code()); }
double Format::min_normal() const { return std::ldexp(1.0, min_exponent()); }
double Format::min_subnormal() const {
  const bool gradual = field_zero == FieldZero::gradual;
  return std::ldexp(1.0, gradual ? min_exponent() - mantissa_bits : min_exponent());
}

const Format& find_format(std::string_view name) {
  for (const auto& [alias, id] : kAliases)
    if (alias == name) return format(id);
  for (const Format& f : kFormats)
    if (f.name == name) return f;
  if (const Format* defined = find_defined_format(name)) return *defined;
  throw Error("format",
              "one of " + names_of(kFormats) + ", " + names_of(named_formats()) +
                  ", binaryKpP of IEEE P3109 (binary8p3se), or float:e=BITS,m=BITS,..." +
                  did_you_mean(all_names(), name),
              std::string("'").append(name).append("'"));
}

double decode(const Format& f, std::uint32_t code) {
  const Unpacked u = unpack(f, code);
  double magnitude = 0.0;
  switch (u.value_class) {
    case ValueClass::nan:
      magnitude = std::numeric_limits<double>::quiet_NaN();
      break;
    case ValueClass::infinity:
      magnitude = std::numeric_limits<double>::infinity();
      break;
    default:
      magnitude = std::ldexp(static_cast<double>(u.significand), u.exponent - f.mantissa_bits);
  }
  return u.negative ? -magnitude : magnitude;
}

std::span<const Unpacked> unpack_table(FormatId id) { return tables_of(id).unpacked; }

std::span<const float> decode_table(FormatId id) {
  const FormatTables& tables = tables_of(id);
  require(!tables.values.empty(), "format", "a format whose values binary32 represents",
          format(id).name);
  return tables.values;
}

std::string_view to_string(SpecialValues specials) {
  constexpr std::array<std::string_view, 7> kNames{"ieee",     "nan_only", "fnuz",    "none",
                                                   "fnuz_inf", "nan_inf",  "inf_only"};
  return kNames[static_cast<std::size_t>(specials)];
}

std::string_view to_string(FieldZero field_zero) {
  constexpr std::array<std::string_view, 3> kNames{"gradual", "flushed", "normal"};
  return kNames[static_cast<std::size_t>(field_zero)];
}

std::string_view to_string(ValueClass value_class) {
  constexpr std::array<std::string_view, 5> kNames{"zero", "subnormal", "normal", "infinity",
                                                   "nan"};
  return kNames[static_cast<std::size_t>(value_class)];
}

}  // namespace fp8lab
