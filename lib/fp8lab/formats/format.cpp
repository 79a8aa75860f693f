#include "fp8lab/formats/format.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"

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

/// One table for every format of at most 16 code bits; `make(format, code)` gives an entry.
template <typename Entry, typename Make>
std::array<std::vector<Entry>, kFormats.size()> all_tables(Make make) {
  std::array<std::vector<Entry>, kFormats.size()> tables;
  for (const Format& f : kFormats) {
    if (f.code_bits() > 16) continue;
    auto& table = tables[static_cast<std::size_t>(f.id)];
    for (std::uint32_t code = 0; code < std::uint32_t{1} << f.code_bits(); ++code)
      table.push_back(make(f, code));
  }
  return tables;
}

}  // namespace

double Format::max_finite() const { return decode(*this, max_finite_code()); }
double Format::min_normal() const { return std::ldexp(1.0, min_exponent()); }
double Format::min_subnormal() const { return std::ldexp(1.0, min_exponent() - mantissa_bits); }

const Format& find_format(std::string_view name) {
  for (const auto& [alias, id] : kAliases)
    if (alias == name) return format(id);
  return find_named(kFormats, "format", name);
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

std::span<const Unpacked> unpack_table(FormatId id) {
  static const auto kTables = all_tables<Unpacked>(unpack);
  require(format(id).code_bits() <= 16, "format", "at most 16 code bits", format(id).name);
  return kTables[static_cast<std::size_t>(id)];
}

std::span<const float> decode_table(FormatId id) {
  static const auto kTables = [] {
    // The first caller may flush subnormals: the tables are everyone's.
    const FloatEnvironment environment;
    return all_tables<float>(
        [](const Format& f, std::uint32_t code) { return static_cast<float>(decode(f, code)); });
  }();
  require(format(id).code_bits() <= 16, "format", "at most 16 code bits", format(id).name);
  return kTables[static_cast<std::size_t>(id)];
}

std::string_view to_string(SpecialValues specials) {
  constexpr std::array<std::string_view, 4> kNames{"ieee", "nan_only", "fnuz", "none"};
  return kNames[static_cast<std::size_t>(specials)];
}

std::string_view to_string(ValueClass value_class) {
  constexpr std::array<std::string_view, 5> kNames{"zero", "subnormal", "normal", "infinity",
                                                   "nan"};
  return kNames[static_cast<std::size_t>(value_class)];
}

}  // namespace fp8lab
