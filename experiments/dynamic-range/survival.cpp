#include <algorithm>
#include <cmath>
#include <utility>

#include "common/cast.hpp"
#include "dynamic-range/dynamic_range.hpp"

namespace fp8lab::experiments {

FormatRange range_of(const Format& f) {
  FormatRange r{f.min_subnormal(), f.min_normal(), f.max_finite(), 0.0, 0.0};
  r.decades_normal = std::log10(r.max_finite / r.min_normal);
  r.decades_with_subnormals = std::log10(r.max_finite / r.min_subnormal);
  return r;
}

SurvivalShares survival(std::span<const float> x, double scale, const Format& f,
                        const CastPolicy& policy, const Backend& backend) {
  const double bound = std::ldexp(1.0, -(f.mantissa_bits + 1));
  const auto factor = static_cast<float>(scale);
  const auto decoded = decode_table(f.id);
  std::size_t non_zero = 0;
  std::size_t crushed = 0;
  std::size_t saturated = 0;
  std::size_t accurate = 0;
  std::vector<float> scaled(x.size());
  std::transform(x.begin(), x.end(), scaled.begin(), [&](float v) { return v * factor; });
  const std::vector<CastResult> results = cast_all(backend, f, policy, scaled);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0.0F) continue;
    ++non_zero;
    const CastResult& r = results[i];
    if (r.overflowed) {
      ++saturated;
    } else if (decoded[r.code] == 0.0F) {
      ++crushed;
    } else {
      const auto value = static_cast<double>(scaled[i]);
      const double error = static_cast<double>(decoded[r.code]) - value;
      if (std::abs(error) <= bound * std::abs(value)) ++accurate;
    }
  }
  if (non_zero == 0) return {};
  const auto share = [&](std::size_t part) {
    return static_cast<double>(part) / static_cast<double>(non_zero);
  };
  return {share(non_zero - crushed - saturated), share(accurate), share(crushed), share(saturated)};
}

std::vector<SurvivalShares> sweep(std::span<const float> x, std::span<const double> scales,
                                  const Format& f, const CastPolicy& policy,
                                  const Backend& backend) {
  std::vector<SurvivalShares> shares;
  for (const double scale : scales) shares.push_back(survival(x, scale, f, policy, backend));
  return shares;
}

BestScale best_of(std::span<const double> scales, std::span<const SurvivalShares> shares) {
  BestScale best;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    best.accurate = std::max(best.accurate, shares[i].accurate);
    const auto rank = [](const SurvivalShares& s) {
      return std::pair(s.representable, s.accurate);
    };
    if (i > 0 && rank(shares[i]) <= rank(best.shares)) continue;
    best.scale = scales[i];
    best.shares = shares[i];
  }
  return best;
}

}  // namespace fp8lab::experiments
