#include "fp8lab/gemm/dot_pack.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace fp8lab::gemm_detail {
namespace {

constexpr int kHalfBias = 15;

/// What codes become; NaN and Inf, whose outputs no kernel computes, like zeros.
struct Table {
  std::array<float, 256> values{};
  std::array<std::uint8_t, 256> exponents{};
  std::array<std::int8_t, 256> signs{};
  std::array<std::int8_t, 256> zeros{};

  Table(const Format& f, int b_bias) {
    const float scale = std::ldexp(kStretchFloat, kHalfBias - b_bias);
    const std::span<const Unpacked> unpacked = unpack_table(f.id);
    const std::span<const float> decoded = decode_table(f.id);
    for (std::size_t code = 0; code < values.size(); ++code) {
      const Unpacked& x = unpacked[code % unpacked.size()];  // whatever is above a narrow code
      const bool zero = !x.is_finite() || x.significand == 0;
      values[code] = zero ? 0.0F : decoded[code % decoded.size()] * scale;
      exponents[code] =
          zero ? std::uint8_t{0} : static_cast<std::uint8_t>(x.exponent + kFloatBiasA);
      signs[code] = x.negative ? 0 : -128;
      zeros[code] = zero ? 127 : 0;
    }
  }
};

/// Where a step's values are: in each chunk those of even place first.
std::array<std::int64_t, kDotTerms> places_of_values(std::int64_t chunk) {
  std::array<std::int64_t, kDotTerms> places{};
  for (std::int64_t t = 0; t < kDotTerms; ++t) {
    const std::int64_t i = t % chunk;
    places[static_cast<std::size_t>(t)] = t - i + i % 2 * (chunk / 2) + i / 2;
  }
  return places;
}

}  // namespace

bool has_half_fields(const Format& f) {
  return f.code_bits() == 8 && f.has_sign && (f.exponent_bits == 4 || f.exponent_bits == 5) &&
         f.specials != SpecialValues::fnuz;
}

PackedDotRows::PackedDotRows(const DotSource& from, const Format& a, const DotLayout& b,
                             const DotKernels& kernels)
    : rows_(from.rows),
      values_(from.rows * from.steps * kDotTerms),
      exponents_(from.rows * from.steps * kDotTerms),
      signs_(from.rows * from.steps * kDotTerms),
      zeros_(from.rows * from.steps * kDotTerms) {
  if (!has_half_fields(a)) {
    look_up(from, a, b, kernels.chunk);
    return;
  }
  kernels.pack({.codes = from.codes,
                .row_stride = from.row_stride,
                .rows = from.rows,
                .steps = from.steps,
                .terms = from.terms,
                .exponent_bits = a.exponent_bits,
                .bias = a.bias,
                .scale = std::ldexp(kStretchFloat, kHalfBias - a.bias + kHalfBias - b.bias),
                .values = values_.data(),
                .exponents = exponents_.data(),
                .signs = signs_.data(),
                .zeros = zeros_.data()});
}

void PackedDotRows::look_up(const DotSource& from, const Format& a, const DotLayout& b,
                            std::int64_t chunk) {
  const Table table(a, b.bias);
  const auto places = places_of_values(chunk);
  std::array<std::uint8_t, kDotTerms> codes{};  // what is beyond the step's terms stays zero
  std::array<float, kDotTerms> values{};
  const auto copy = [&](const auto& in, auto* to) {
    for (std::size_t t = 0; t < codes.size(); ++t) to[t] = in[codes[t]];
  };
  for (std::int64_t step = 0; step < from.steps; ++step) {
    for (std::int64_t row = 0; row < from.rows; ++row) {
      const std::int64_t at = (step * from.rows + row) * kDotTerms;
      std::copy_n(from.codes + row * from.row_stride + step * from.terms, from.terms,
                  codes.begin());
      copy(table.values, values.data());
      for (std::size_t t = 0; t < values.size(); ++t) values_.data()[at + places[t]] = values[t];
      copy(table.exponents, exponents_.data() + at);
      copy(table.signs, signs_.data() + at);
      copy(table.zeros, zeros_.data() + at);
    }
  }
}

DotRows PackedDotRows::from(std::int64_t step) const {
  const std::int64_t at = step * rows_ * kDotTerms;
  return {values_.data() + at, exponents_.data() + at, signs_.data() + at, zeros_.data() + at};
}

}  // namespace fp8lab::gemm_detail
