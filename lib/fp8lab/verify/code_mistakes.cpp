#include "fp8lab/verify/code_mistakes.hpp"

#include <cmath>

namespace fp8lab {
namespace {

double with_sign(const Format& f, std::uint32_t code, double magnitude) {
  return (code & f.sign_mask()) != 0 ? -magnitude : magnitude;
}

/// A magnitude read as a normal number, whatever its exponent field is.
double as_normal(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & f.magnitude_mask();
  const auto fraction = static_cast<double>(magnitude & ((1U << f.mantissa_bits) - 1));
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits) - f.bias;
  return with_sign(f, code, std::ldexp(1.0 + std::ldexp(fraction, -f.mantissa_bits), exponent));
}

constexpr CodeMistake kAlways[]{
    {"sign_ignored_{}", "the signs of {}'s codes ignored",
     [](const Format& f, std::uint32_t code) { return std::abs(decode(f, code)); }},
    {"subnormals_as_normals_{}", "{}: subnormal codes read with an implicit one",
     [](const Format& f, std::uint32_t code) {
       const bool subnormal = unpack(f, code).value_class == ValueClass::subnormal;
       return subnormal ? as_normal(f, code) : decode(f, code);
     }},
    {"subnormals_as_normals_{}", "{}: zeros and subnormal codes read with an implicit one",
     [](const Format& f, std::uint32_t code) {
       const ValueClass kind = unpack(f, code).value_class;
       const bool low = kind == ValueClass::subnormal || kind == ValueClass::zero;
       return low ? as_normal(f, code) : decode(f, code);
     }},
};

constexpr CodeMistake kSpecials{
    "specials_as_numbers_{}", "{}: codes of NaN and infinity read as numbers",
    [](const Format& f, std::uint32_t code) {
      const ValueClass kind = unpack(f, code).value_class;
      const bool special = kind == ValueClass::nan || kind == ValueClass::infinity;
      return special ? as_normal(f, code) : decode(f, code);
    }};

constexpr CodeMistake kFp4[]{
    {"int4_codes_{}", "{}: E2M1 codes read as integers in two's complement",
     [](const Format&, std::uint32_t code) {
       return static_cast<double>(code < 8 ? static_cast<int>(code) : static_cast<int>(code) - 16);
     }},
    {"int4_codes_{}", "{}: E2M1 codes read as integers with a sign bit",
     [](const Format& f, std::uint32_t code) {
       return with_sign(f, code, static_cast<double>(code & 7U));
     }},
    {"int4_codes_{}", "{}: E2M1 codes read as integers with an offset of 8",
     [](const Format&, std::uint32_t code) { return static_cast<double>(code) - 8.0; }},
    {"e3m0_codes_{}", "{}: E2M1 codes read as E3M0",
     [](const Format& f, std::uint32_t code) {
       const auto field = static_cast<int>(code & 7U);
       return with_sign(f, code, field == 0 ? 0.0 : std::ldexp(1.0, field - 3));
     }},
    {"e1m2_codes_{}", "{}: E2M1 codes read as E1M2",
     [](const Format& f, std::uint32_t code) {
       return with_sign(f, code, static_cast<double>(code & 7U) / 4.0);
     }},
};

}  // namespace

std::vector<CodeMistake> code_mistakes(FormatId id) {
  std::vector<CodeMistake> mistakes(std::begin(kAlways), std::end(kAlways));
  if (format(id).has_nan() && !format(id).has_nan_for_negative_zero())
    mistakes.push_back(kSpecials);
  if (id == FormatId::e2m1) mistakes.insert(mistakes.end(), std::begin(kFp4), std::end(kFp4));
  return mistakes;
}

}  // namespace fp8lab
