// The table of formats, their names, and what is derived from them.

#include "fp8lab/formats/format.hpp"

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/formats/scale_code.hpp"

using namespace fp8lab;

TEST_CASE("formats: each has the widths, the bias and the limits of its definition", "[formats]") {
  struct Expected {
    FormatId id;
    int exponent, mantissa, bias, storage;
    std::string specials;
    double largest, normal, subnormal;
  };
  const std::vector<Expected> all{
      {FormatId::e4m3fn, 4, 3, 7, 8, "nan_only", 448.0, 0x1p-6, 0x1p-9},
      {FormatId::e5m2, 5, 2, 15, 8, "ieee", 57344.0, 0x1p-14, 0x1p-16},
      {FormatId::e4m3fnuz, 4, 3, 8, 8, "fnuz", 240.0, 0x1p-7, 0x1p-10},
      {FormatId::e5m2fnuz, 5, 2, 16, 8, "fnuz", 57344.0, 0x1p-15, 0x1p-17},
      {FormatId::e8m0fnu, 8, 0, 127, 8, "nan_only", 0x1p127, 0x1p-127, 0x1p-127},
      {FormatId::e2m1, 2, 1, 1, 8, "none", 6.0, 1.0, 0.5},
      {FormatId::e2m3, 2, 3, 1, 8, "none", 7.5, 1.0, 0.125},
      {FormatId::e3m2, 3, 2, 3, 8, "none", 28.0, 0.25, 0.0625},
      {FormatId::f16, 5, 10, 15, 16, "ieee", 65504.0, 0x1p-14, 0x1p-24},
      {FormatId::bf16, 8, 7, 127, 16, "ieee", 0x1.fep127, 0x1p-126, 0x1p-133},
      {FormatId::tf32, 8, 10, 127, 32, "ieee", 0x1.ffcp127, 0x1p-126, 0x1p-136},
      {FormatId::e8m13, 8, 13, 127, 32, "ieee", 0x1.fff8p127, 0x1p-126, 0x1p-139},
      {FormatId::f32, 8, 23, 127, 32, "ieee", 0x1.fffffep127, 0x1p-126, 0x1p-149}};
  REQUIRE(all.size() == kFormats.size());
  for (const Expected& one : all) {
    const Format& f = format(one.id);
    INFO(f.name);
    CHECK(f.id == one.id);
    CHECK(f.exponent_bits == one.exponent);
    CHECK(f.mantissa_bits == one.mantissa);
    CHECK(f.bias == one.bias);
    CHECK(f.storage_bits == one.storage);
    CHECK(to_string(f.specials) == one.specials);
    CHECK(f.max_finite() == one.largest);
    CHECK(f.min_normal() == one.normal);
    CHECK(f.min_subnormal() == one.subnormal);
    CHECK(f.has_sign == (one.id != FormatId::e8m0fnu));
    CHECK(f.code_bits() == one.exponent + one.mantissa + (f.has_sign ? 1 : 0));
    CHECK(f.has_infinity() == (one.specials == "ieee"));
    CHECK(f.has_nan() == (one.specials != "none"));
    CHECK(decode(f, f.max_finite_code()) == one.largest);
    CHECK(std::isnan(decode(f, f.max_finite_code() + 1)) ==
          (one.specials == "nan_only" || one.specials == "fnuz"));
    if (f.has_infinity()) {
      CHECK(std::isinf(decode(f, f.infinity_code())));
      CHECK(decode(f, f.infinity_code() | f.sign_mask()) == -HUGE_VAL);
      CHECK(std::isnan(decode(f, f.infinity_code() + 1)));
      CHECK(std::signbit(decode(f, f.sign_mask() | (f.infinity_code() + 1))));
    }
  }
}

TEST_CASE("formats: every code has the value and the class of its fields", "[formats]") {
  for (const Format& f : kFormats) {
    const int fields = f.exponent_bits + f.mantissa_bits;
    const std::uint32_t count = fields > 16 ? 1U << 16 : 1U << fields;
    // Of the widest formats the codes at both ends, and some between.
    int wrong = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t magnitude = i;
      if (fields > 16 && i >= 1U << 14) magnitude = i * 65521U & ((1U << fields) - 1);
      if (fields > 16 && i >= 1U << 15) magnitude = ((1U << fields) - 1) - (i - (1U << 15));
      for (const bool negative : {false, true}) {
        if (negative && !f.has_sign) continue;
        const std::uint32_t code = magnitude | (negative ? 1U << fields : 0);
        const std::uint32_t field = magnitude >> f.mantissa_bits;
        const std::uint32_t rest = magnitude - (field << f.mantissa_bits);
        const bool all_ones = field == (1U << f.exponent_bits) - 1;
        const bool rest_ones = rest == (1U << f.mantissa_bits) - 1;
        ValueClass kind = ValueClass::normal;
        if (field == 0 && f.has_sign) kind = rest == 0 ? ValueClass::zero : ValueClass::subnormal;
        if (f.specials == SpecialValues::ieee && all_ones)
          kind = rest == 0 ? ValueClass::infinity : ValueClass::nan;
        if (f.specials == SpecialValues::nan_only && all_ones && rest_ones) kind = ValueClass::nan;
        if (f.specials == SpecialValues::fnuz && magnitude == 0 && negative) kind = ValueClass::nan;
        const Unpacked u = unpack(f, code | (f.code_bits() < 32 ? 1U << f.code_bits() : 0));
        const double value = decode(f, code);
        bool same = u.value_class == kind && u.negative == negative &&
                    std::signbit(value) == negative && u.mantissa_bits == f.mantissa_bits;
        if (kind == ValueClass::nan)
          same = same && std::isnan(value);
        else if (kind == ValueClass::infinity)
          same = same && std::isinf(value);
        else {
          const bool hidden = kind == ValueClass::normal;
          const int exponent =
              f.has_sign && field == 0 ? 1 - f.bias : static_cast<int>(field) - f.bias;
          const double fraction = std::ldexp(static_cast<double>(rest), -f.mantissa_bits);
          const double magnitude_of = std::ldexp((hidden ? 1.0 : 0.0) + fraction, exponent);
          same = same && std::fabs(value) == magnitude_of && u.exponent == exponent &&
                 u.significand == rest + (hidden ? 1U << f.mantissa_bits : 0);
        }
        if (!same && ++wrong <= 5) UNSCOPED_INFO("code " << code);
      }
    }
    INFO(f.name);
    CHECK(wrong == 0);
  }
}

TEST_CASE("formats: every spelling of a name finds its format", "[formats]") {
  const std::vector<std::pair<std::string, FormatId>> spellings{
      {"e4m3", FormatId::e4m3fn},
      {"fp8_e4m3", FormatId::e4m3fn},
      {"float8_e4m3fn", FormatId::e4m3fn},
      {"fp8_e5m2", FormatId::e5m2},
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
      {"fp32", FormatId::f32}};
  for (const auto& [name, id] : spellings) {
    INFO(name);
    CHECK(find_format(name).id == id);
  }
  for (const Format& f : kFormats) CHECK(find_format(f.name).id == f.id);
  for (const char* wrong : {"", "E4M3", "e4m3fn ", "float8", "half"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(find_format(wrong),
                      contains("format: expected one of e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e8m0fnu, "
                               "e2m1, e2m3, e3m2, f16, bf16, tf32, e8m13, f32") &&
                          contains(", got '" + std::string(wrong) + "'"));
  }
}

TEST_CASE("formats: names of classes and of special values", "[formats]") {
  CHECK(to_string(ValueClass::zero) == "zero");
  CHECK(to_string(ValueClass::subnormal) == "subnormal");
  CHECK(to_string(ValueClass::normal) == "normal");
  CHECK(to_string(ValueClass::infinity) == "infinity");
  CHECK(to_string(ValueClass::nan) == "nan");
  CHECK(to_string(SpecialValues::ieee) == "ieee");
  CHECK(to_string(SpecialValues::nan_only) == "nan_only");
  CHECK(to_string(SpecialValues::fnuz) == "fnuz");
  CHECK(to_string(SpecialValues::none) == "none");
}

TEST_CASE("formats: the other coding of a format, where it has one", "[formats]") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    const std::optional<FormatId> other = fnuz_counterpart(f.id);
    const bool has = f.storage_bits == 8 && (f.code_bits() == 8 && f.has_sign);
    REQUIRE(other.has_value() == has);
    if (!has) continue;
    const Format& g = format(*other);
    CHECK(fnuz_counterpart(g.id) == f.id);
    CHECK(g.exponent_bits == f.exponent_bits);
    CHECK(g.mantissa_bits == f.mantissa_bits);
    const bool to_fnuz = f.specials != SpecialValues::fnuz;
    CHECK((g.specials == SpecialValues::fnuz) == to_fnuz);
    CHECK(g.bias == f.bias + (to_fnuz ? 1 : -1));
  }
}

TEST_CASE("formats: tables hold what single codes give, of at most 16 bits", "[formats]") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    if (f.code_bits() > 16) {
      const std::string message =
          "format: expected at most 16 code bits, got " + std::string(f.name);
      CHECK_THROWS_WITH(decode_table(f.id), message);
      CHECK_THROWS_WITH(unpack_table(f.id), message);
      continue;
    }
    const std::span<const float> values = decode_table(f.id);
    const std::span<const Unpacked> parts = unpack_table(f.id);
    REQUIRE(values.size() == std::size_t{1} << f.code_bits());
    REQUIRE(parts.size() == values.size());
    std::size_t wrong = 0;
    for (std::uint32_t code = 0; code < values.size(); ++code) {
      const auto value = static_cast<float>(decode(f, code));
      const Unpacked u = unpack(f, code);
      const Unpacked& p = parts[code];
      const bool same_value = std::isnan(value) ? std::isnan(values[code]) : value == values[code];
      const bool same_parts = p.significand == u.significand && p.exponent == u.exponent &&
                              p.mantissa_bits == u.mantissa_bits && p.negative == u.negative &&
                              p.value_class == u.value_class;
      const bool same_sign = std::signbit(value) == std::signbit(values[code]);
      wrong += same_value && same_parts && same_sign ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("formats: a storage word of 32 bits drops what its format has not", "[formats]") {
  CHECK(code_of_storage(format(FormatId::tf32), 0xffffffffU) == 0x7ffffU);
  CHECK(code_of_storage(format(FormatId::tf32), 0x3f801fffU) == 0x1fc00U);
  CHECK(code_of_storage(format(FormatId::e8m13), 0x3f8003ffU) == 0xfe000U);
  CHECK(code_of_storage(format(FormatId::f32), 0x3f8003ffU) == 0x3f8003ffU);
  CHECK(code_of_storage(format(FormatId::bf16), 0x3f80U) == 0x3f80U);
}

TEST_CASE("formats: a code in hexadecimal has the digits of its storage", "[formats]") {
  CHECK(code_hex(format(FormatId::e2m1), 0x7) == "07");
  CHECK(code_hex(format(FormatId::e4m3fn), 0xb8) == "b8");
  CHECK(code_hex(format(FormatId::bf16), 0xf) == "000f");
  CHECK(code_hex(format(FormatId::f16), 0xabcd) == "abcd");
  CHECK(code_hex(format(FormatId::f32), 0x123) == "00000123");
}

TEST_CASE("formats: scales have the storage format and the name of theirs", "[formats]") {
  CHECK(magnitude_format(ScaleFormat::ue8m0).id == FormatId::e8m0fnu);
  CHECK(magnitude_format(ScaleFormat::ue4m3).id == FormatId::e4m3fn);
  CHECK(to_string(ScaleFormat::ue8m0) == "ue8m0");
  CHECK(to_string(ScaleFormat::ue4m3) == "ue4m3");
  CHECK(find_scale_format("ue8m0") == ScaleFormat::ue8m0);
  CHECK_THROWS_WITH(find_scale_format("e8m0"),
                    "scale_format: expected one of ue8m0, ue4m3 (did you mean ue8m0?), got 'e8m0'");
  CHECK_THROWS_WITH(find_scale_format("", "scales"),
                    "scales: expected one of ue8m0, ue4m3, got ''");
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    INFO(code);
    const Unpacked u = unpack_scale(ScaleFormat::ue4m3, byte);
    const Unpacked positive = unpack(format(FormatId::e4m3fn), code & 0x7f);
    CHECK(u.negative == false);
    CHECK(u.value_class == positive.value_class);
    CHECK(u.significand == positive.significand);
    CHECK(u.exponent == positive.exponent);
    const Unpacked power = unpack_scale(ScaleFormat::ue8m0, byte);
    CHECK((power.value_class == ValueClass::nan) == (code == 255));
    if (code < 255) CHECK(power.exponent == static_cast<int>(code) - 127);
  }
}
