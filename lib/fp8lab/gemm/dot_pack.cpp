#include "fp8lab/gemm/dot_pack.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fp8lab::gemm_detail {
namespace {

/// What a code becomes; of NaN and Inf, whose outputs no kernel computes, a zero.
struct Term {
  float value = 0.0F;
  std::uint8_t exponent = 0;
  std::int8_t sign = -128;
  std::int8_t zero = 127;
};

Term term_of(const Format& f, std::uint32_t code, int b_bias) {
  constexpr int kHalfBias = 15;
  const Unpacked x = unpack(f, code);
  if (!x.is_finite() || x.significand == 0) return {};
  const int shift = x.exponent - x.mantissa_bits + kHalfBias - b_bias;
  const float value = std::ldexp(static_cast<float>(x.significand), shift) * kStretchFloat;
  return {.value = x.negative ? -value : value,
          .exponent = static_cast<std::uint8_t>(x.exponent + kFloatBiasA),
          .sign = static_cast<std::int8_t>(x.negative ? 0 : -128),
          .zero = 0};
}

}  // namespace

PackedDotRows::PackedDotRows(const Format& a, const DotLayout& b, std::int64_t chunk,
                             std::int64_t rows, std::int64_t steps, std::int64_t terms)
    : rows_(rows),
      steps_(steps),
      terms_(terms),
      values_(rows * steps * kDotTerms),
      exponents_(rows * steps * kDotTerms),
      signs_(rows * steps * kDotTerms),
      zeros_(rows * steps * kDotTerms) {
  for (std::uint32_t code = 0; code < 1u << a.code_bits(); ++code) {
    const Term term = term_of(a, code, b.bias);
    code_values_[code] = term.value;
    code_exponents_[code] = term.exponent;
    code_signs_[code] = term.sign;
    code_zeros_[code] = term.zero;
  }
  for (std::int64_t t = 0; t < kDotTerms; ++t) {
    const std::int64_t i = t % chunk;
    places_[static_cast<std::size_t>(t)] = t - i + i % 2 * (chunk / 2) + i / 2;
  }
}

void PackedDotRows::fill(std::int64_t row, const unsigned char* codes) {
  for (std::int64_t step = 0; step < steps_; ++step) {
    const std::int64_t at = (step * rows_ + row) * kDotTerms;
    std::array<std::uint8_t, kDotTerms> terms{};
    std::copy_n(codes + step * terms_, terms_, terms.begin());
    const auto look_up = [&](const auto& table, auto* to) {
      for (std::size_t t = 0; t < kDotTerms; ++t) to[t] = table[terms[t]];
    };
    std::array<float, kDotTerms> values{};
    look_up(code_values_, values.data());
    for (std::size_t t = 0; t < kDotTerms; ++t) values_.data()[at + places_[t]] = values[t];
    look_up(code_exponents_, exponents_.data() + at);
    look_up(code_signs_, signs_.data() + at);
    look_up(code_zeros_, zeros_.data() + at);
  }
}

DotRows PackedDotRows::from(std::int64_t step) const {
  const std::int64_t at = step * rows_ * kDotTerms;
  return {values_.data() + at, exponents_.data() + at, signs_.data() + at, zeros_.data() + at};
}

}  // namespace fp8lab::gemm_detail
