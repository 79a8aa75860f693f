#include "train/standing.hpp"

#include <fmt/format.h>

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

}  // namespace

std::string_view to_string(Standing standing) {
  constexpr std::array<std::string_view, 3> kNames{"follows", "leaves", "cannot tell"};
  return kNames[static_cast<std::size_t>(standing)];
}

Judgement judge_seeds(std::span<const double> tails, std::span<const double> references,
                      std::span<const double> controls) {
  constexpr double kDeviations = 3.0;
  std::vector<double> gaps;
  std::vector<double> noise;
  for (std::size_t i = 0; i < tails.size(); ++i) {
    gaps.push_back(tails[i] - references[i]);
    noise.push_back(controls[i] - references[i]);
  }
  Judgement j{.mean = spread_of(gaps).mean};
  if (!std::isfinite(j.mean)) {
    j.mean = std::nan("");
    j.standing = Standing::leaves;
  }
  if (gaps.size() < 2) return j;
  j.band = kDeviations * deviation_of(noise);
  if (j.standing == Standing::leaves) return j;
  const auto n = static_cast<double>(gaps.size());
  j.half_width = student_t_995(gaps.size() - 1) * deviation_of(gaps) / std::sqrt(n);
  if (j.mean - j.half_width > j.band) j.standing = Standing::leaves;
  if (j.mean + j.half_width <= j.band) j.standing = Standing::follows;
  return j;
}

std::string text_of(const Judgement& j) {
  if (std::isnan(j.mean)) return "a run broke off (leaves)";
  return fmt::format("{:+.3f} ± {:.2g} nats ({}; band {:.2g})", j.mean, j.half_width,
                     to_string(j.standing), j.band);
}

}  // namespace fp8lab::experiments
