#include "accumulator-drift/operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "common/cast.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 5> kNames{"uniform", "normal", "correlated", "ones", "own"};

struct Draws {
  const OperandSpec& spec;
  RandomStream own;
  RandomStream shared;  ///< one draw a column, the same for both matrices

  [[nodiscard]] double at(std::int64_t row, std::int64_t k) const {
    const auto index = static_cast<std::uint64_t>(row * spec.k + k);
    switch (spec.distribution) {
      case Distribution::uniform:
        return own.uniform(index);
      case Distribution::normal:
        return own.normal(index);
      case Distribution::correlated:
        return std::sqrt(spec.correlation) * shared.normal(static_cast<std::uint64_t>(k)) +
               std::sqrt(1.0 - spec.correlation) * own.normal(index);
      case Distribution::ones:
        return 1.0;
      case Distribution::own:
        break;  // drawn as a whole
    }
    return 0.0;
  }
};

std::vector<std::uint16_t> draw_matrix(const OperandSpec& spec, std::uint64_t seed,
                                       std::int64_t rows, std::string_view matrix) {
  const std::string name =
      fmt::format("accumulator-drift/{}/{}/", to_string(spec.distribution), spec.k);
  const Draws draws{spec, {seed, name + std::string(matrix)}, {seed, name + "shared"}};
  const auto bf16 = [](double value) {
    return static_cast<std::uint16_t>(
        encode(format(FormatId::bf16), kNvidiaNosat, static_cast<float>(value)));
  };
  std::vector<std::uint16_t> codes;
  codes.reserve(static_cast<std::size_t>(rows * spec.k));
  if (spec.distribution == Distribution::own) {
    const TensorSource* source = matrix == "a" ? spec.own_a : spec.own_b;
    require(source != nullptr, "own_a", "a source of operands", "none");
    for (const float x :
         source->draw(draws.own, static_cast<std::size_t>(rows), static_cast<std::size_t>(spec.k)))
      codes.push_back(bf16(static_cast<double>(x)));
    return codes;
  }
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < spec.k; ++k) codes.push_back(bf16(draws.at(row, k)));
  return codes;
}

/// BF16 codes to those of E4M3 under one scale.
std::vector<std::uint8_t> cast_scaled(std::span<const std::uint16_t> values, float scale,
                                      const CastPolicy& policy, const Backend& backend) {
  const std::span<const float> decoded = decode_table(FormatId::bf16);
  std::vector<float> scaled;
  scaled.reserve(values.size());
  for (const std::uint16_t v : values) scaled.push_back(decoded[v] * scale);
  std::vector<std::uint8_t> codes;
  codes.reserve(values.size());
  for (const CastResult& result : cast_all(backend, format(FormatId::e4m3fn), policy, scaled))
    codes.push_back(static_cast<std::uint8_t>(result.code));
  return codes;
}

/// One scale for the whole matrix; returns the inverse scale.
float quantize_matrix(std::span<const std::uint16_t> values, std::vector<std::uint8_t>& codes,
                      const Backend& backend) {
  const std::span<const float> decoded = decode_table(FormatId::bf16);
  float amax = 0.0F;
  for (const std::uint16_t v : values) amax = std::max(amax, std::abs(decoded[v]));
  const float scale = amax > 0.0F ? 448.0F / amax : 1.0F;
  codes = cast_scaled(values, scale, kNvidiaSatfinite, backend);
  return 1.0F / scale;
}

template <class Code>
std::vector<double> sums(std::span<const float> values, std::span<const Code> a,
                         std::span<const Code> b, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto row = a.subspan(static_cast<std::size_t>(i * k), static_cast<std::size_t>(k));
      const auto column = b.subspan(static_cast<std::size_t>(j * k), static_cast<std::size_t>(k));
      double sum = 0.0;
      for (std::size_t at = 0; at < row.size(); ++at)
        sum += static_cast<double>(values[row[at]]) * static_cast<double>(values[column[at]]);
      result.push_back(sum);
    }
  return result;
}

}  // namespace

std::string_view to_string(Distribution distribution) {
  return kNames[static_cast<std::size_t>(distribution)];
}

Distribution find_distribution(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Distribution>(i);
  throw Error("distribution", "uniform, normal, correlated, ones or own",
              "'" + std::string(name) + "'");
}

Bf16Operands make_operands(const OperandSpec& spec, std::uint64_t seed) {
  require(spec.m > 0 && spec.n > 0 && spec.k > 0, "operands", "m, n, k > 0",
          fmt::format("{}, {}, {}", spec.m, spec.n, spec.k));
  require(spec.correlation >= 0.0 && spec.correlation <= 1.0, "correlation", "0 .. 1",
          fmt::format("{}", spec.correlation));
  return {spec.m, spec.n, spec.k, draw_matrix(spec, seed, spec.m, "a"),
          draw_matrix(spec, seed, spec.n, "b")};
}

QuantizedOperands quantize(const Bf16Operands& operands, const Backend& backend) {
  QuantizedOperands q{operands.m, operands.n, operands.k, {}, {}, 1.0};
  q.inverse_scale = static_cast<double>(quantize_matrix(operands.a, q.a, backend));
  q.inverse_scale *= static_cast<double>(quantize_matrix(operands.b, q.b, backend));
  return q;
}

QuantizedOperands quantize_unscaled(const Bf16Operands& operands, const CastPolicy& policy,
                                    const Backend& backend) {
  return {operands.m,
          operands.n,
          operands.k,
          cast_scaled(operands.a, 1.0F, policy, backend),
          cast_scaled(operands.b, 1.0F, policy, backend),
          1.0};
}

std::vector<double> exact_product(const QuantizedOperands& q) {
  return sums<std::uint8_t>(decode_table(FormatId::e4m3fn), q.a, q.b, q.m, q.n, q.k);
}

std::vector<double> exact_product(const Bf16Operands& o) {
  return sums<std::uint16_t>(decode_table(FormatId::bf16), o.a, o.b, o.m, o.n, o.k);
}

}  // namespace fp8lab::experiments
