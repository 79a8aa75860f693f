#include "fp8lab/gemm/dot_pack.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace fp8lab::gemm_detail {
namespace {

/// What codes become; NaN and Inf, whose outputs no kernel computes, like zeros.
struct Table {
  std::array<float, 256> values{};
  std::array<std::uint8_t, 256> exponents{};
  std::array<std::int8_t, 256> signs{};
  std::array<std::int8_t, 256> zeros{};

  Table(const Format& f, int b_bias) {
    constexpr int kHalfBias = 15;
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

PackedDotRows::PackedDotRows(const DotSource& from, const Format& a, const DotLayout& b,
                             std::int64_t chunk)
    : rows_(from.rows),
      values_(from.rows * from.steps * kDotTerms),
      exponents_(from.rows * from.steps * kDotTerms),
      signs_(from.rows * from.steps * kDotTerms),
      zeros_(from.rows * from.steps * kDotTerms) {
  const Table table(a, b.bias);
  const auto places = places_of_values(chunk);
  std::array<std::uint8_t, kDotTerms> codes{};  // what is beyond the step's terms stays zero
  std::array<float, kDotTerms> values{};
  const auto look_up = [&](const auto& in, auto* to) {
    for (std::size_t t = 0; t < codes.size(); ++t) to[t] = in[codes[t]];
  };
  for (std::int64_t step = 0; step < from.steps; ++step) {
    for (std::int64_t row = 0; row < from.rows; ++row) {
      const std::int64_t at = (step * from.rows + row) * kDotTerms;
      std::copy_n(from.codes + row * from.row_stride + step * from.terms, from.terms,
                  codes.begin());
      look_up(table.values, values.data());
      for (std::size_t t = 0; t < values.size(); ++t) values_.data()[at + places[t]] = values[t];
      look_up(table.exponents, exponents_.data() + at);
      look_up(table.signs, signs_.data() + at);
      look_up(table.zeros, zeros_.data() + at);
    }
  }
}

DotRows PackedDotRows::from(std::int64_t step) const {
  const std::int64_t at = step * rows_ * kDotTerms;
  return {values_.data() + at, exponents_.data() + at, signs_.data() + at, zeros_.data() + at};
}

}  // namespace fp8lab::gemm_detail
