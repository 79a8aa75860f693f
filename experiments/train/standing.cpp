#include "train/standing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/spread.hpp"

namespace fp8lab::experiments {
namespace {

double deviation_of(std::span<const double> values) {
  const double mean = spread_of(values).mean;
  double squares = 0.0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::vector<double> gaps_of(std::span<const double> tails, std::span<const double> references) {
  std::vector<double> gaps;
  for (std::size_t i = 0; i < tails.size(); ++i) gaps.push_back(tails[i] - references[i]);
  return gaps;
}

}  // namespace

std::string_view to_string(Standing standing) {
  constexpr std::array<std::string_view, 4> kNames{"follows", "leaves", "cannot tell",
                                                   "ends lower"};
  return kNames[static_cast<std::size_t>(standing)];
}

Judgement judge_seeds(std::span<const double> tails, std::span<const double> references,
                      std::span<const double> controls, double least,
                      const std::vector<bool>& diverged) {
  constexpr double kDeviations = 3.0;
  const std::vector<double> gaps = gaps_of(tails, references);
  std::vector<double> healthy;
  for (std::size_t s = 0; s < gaps.size(); ++s)
    if (std::isfinite(gaps[s]) && (diverged.empty() || !diverged[s])) healthy.push_back(gaps[s]);
  const double nan = std::nan("");
  const Spread of = healthy.empty() ? Spread{nan, nan, nan, nan} : spread_of(healthy);
  Judgement j{.seeds = gaps.size(),
              .diverged = gaps.size() - healthy.size(),
              .mean = of.mean,
              .min = of.min,
              .max = of.max,
              .half_width = of.half_width};
  if (gaps.size() < 2) return j;
  const std::vector<double> noise = gaps_of(controls, references);
  j.band = std::abs(spread_of(noise).mean) +
           std::max(kDeviations * deviation_of(noise), interval_of(noise).half_width);
  if (j.band < least) j.band = least;
  if (std::isnan(j.band)) return j;
  const auto count = [&](auto holds) {
    return static_cast<std::size_t>(std::count_if(healthy.begin(), healthy.end(), holds));
  };
  const std::size_t beyond = j.diverged + count([&](double gap) { return gap > j.band; });
  const std::size_t below = count([&](double gap) { return gap < -j.band; });
  if (beyond == 0 && below == 0) j.standing = Standing::follows;
  if (beyond == j.seeds) j.standing = Standing::leaves;
  if (below == j.seeds) j.standing = Standing::lower;
  return j;
}

std::string text_of(const Judgement& j) {
  const std::string standing = fmt::format("({}; band {:.2g})", to_string(j.standing), j.band);
  if (j.seeds > 0 && j.diverged == j.seeds)
    return fmt::format("diverged in all {} seeds {}", j.seeds, standing);
  std::string gap = fmt::format("{:+.3f}", j.mean);
  if (!std::isnan(j.half_width)) gap += fmt::format(" ± {:.2g}", j.half_width);
  const std::string others =
      j.diverged == 0 ? ""
                      : fmt::format("diverged in {} of {} seeds, the others ", j.diverged, j.seeds);
  return fmt::format("{}{} nats {}", others, gap, standing);
}

}  // namespace fp8lab::experiments
