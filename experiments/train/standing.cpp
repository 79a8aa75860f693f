#include "train/standing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
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
                      std::span<const double> controls, double least) {
  constexpr double kDeviations = 3.0;
  const std::vector<double> gaps = gaps_of(tails, references);
  Judgement j{.mean = spread_of(gaps).mean};
  std::vector<double> finite;
  std::copy_if(gaps.begin(), gaps.end(), std::back_inserter(finite),
               [](double gap) { return std::isfinite(gap); });
  j.min = finite.empty() ? std::nan("") : spread_of(finite).min;
  j.max = finite.empty() ? std::nan("") : spread_of(finite).max;
  if (!std::isfinite(j.mean)) j.mean = std::nan("");
  if (!std::isnan(j.mean)) j.half_width = interval_of(gaps).half_width;
  if (gaps.size() < 2) return j;
  const std::vector<double> noise = gaps_of(controls, references);
  j.band = std::abs(spread_of(noise).mean) +
           std::max(kDeviations * deviation_of(noise), interval_of(noise).half_width);
  if (j.band < least) j.band = least;
  // A gap of NaN is a run that broke off: beyond any band.
  const auto beyond =
      std::count_if(gaps.begin(), gaps.end(), [&](double gap) { return !(gap <= j.band); });
  const auto below =
      std::count_if(gaps.begin(), gaps.end(), [&](double gap) { return gap < -j.band; });
  if (std::isnan(j.band)) return j;
  if (beyond == 0 && below == 0) j.standing = Standing::follows;
  if (beyond == std::ssize(gaps)) j.standing = Standing::leaves;
  if (below == std::ssize(gaps)) j.standing = Standing::lower;
  return j;
}

std::string text_of(const Judgement& j) {
  if (std::isnan(j.min))
    return fmt::format("every run broke off ({}; band {:.2g})", to_string(j.standing), j.band);
  if (std::isnan(j.mean))
    return fmt::format("a run broke off, the others {:+.3f} to {:+.3f} nats ({}; band {:.2g})",
                       j.min, j.max, to_string(j.standing), j.band);
  return fmt::format("{:+.3f} ± {:.2g} nats ({}; band {:.2g})", j.mean, j.half_width,
                     to_string(j.standing), j.band);
}

}  // namespace fp8lab::experiments
