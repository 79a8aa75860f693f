#include "fp8lab/scaling/auto_scaling.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kNames{"as_paper", "as_seed", "as_shipped"};
constexpr std::array<std::string_view, 4> kGrowthNames{"exponential", "linear", "doubling", "none"};

}  // namespace

AutoScaling find_auto_scaling(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<AutoScaling>(i);
  throw Error("auto_scaling", "as_paper, as_seed or as_shipped", "'" + std::string(name) + "'");
}

std::string_view to_string(GrowthLaw law) { return kGrowthNames[static_cast<std::size_t>(law)]; }

GrowthLaw find_growth_law(std::string_view name) {
  for (std::size_t i = 0; i < kGrowthNames.size(); ++i)
    if (kGrowthNames[i] == name) return static_cast<GrowthLaw>(i);
  throw Error("growth", "exponential, linear, doubling or none", "'" + std::string(name) + "'");
}

AutoScalingOptions auto_scaling_options(AutoScaling variant) {
  require(variant != AutoScaling::as_shipped, "auto_scaling", "as_paper or as_seed",
          "as_shipped, which has no mu");
  if (variant == AutoScaling::as_paper) return {};
  return {.threshold = 1e-3, .steps_to_double = 1000, .clean_steps = 1000};
}

AutoScaler::AutoScaler(AutoScalingOptions options, double mu)
    : options_(options), mu_(mu), base_(mu) {
  const FloatEnvironment environment;
  require(options.threshold >= 0.0 && options.threshold <= 1.0, "threshold", "0 to 1",
          fmt::format("{}", options.threshold));
  require(options.steps_to_double >= 1, "steps_to_double", "at least 1",
          fmt::format("{}", options.steps_to_double));
  require(options.clean_steps >= 0, "clean_steps", "at least 0",
          fmt::format("{}", options.clean_steps));
  require(mu > 0.0 && std::isfinite(mu), "mu", "a positive, finite number", fmt::format("{}", mu));
  growth_ = std::exp2(1.0 / static_cast<double>(options.steps_to_double));
}

void AutoScaler::update(double saturated_share) {
  const FloatEnvironment environment;
  require(saturated_share >= 0.0 && saturated_share <= 1.0, "saturated_share", "0 to 1",
          fmt::format("{}", saturated_share));
  if (saturated_share > options_.threshold) {
    mu_ /= 2.0;
    base_ = mu_;
    clean_ = 0;
    counted_ = 0;
    return;
  }
  ++clean_;
  if (clean_ >= options_.clean_steps) grow();
}

void AutoScaler::set_state(const State& state) {
  require(state.mu > 0.0 && state.base > 0.0, "mu", "above 0",
          fmt::format("{} and {}", state.mu, state.base));
  require(state.clean >= 0 && state.counted >= 0, "clean steps", "at least 0",
          fmt::format("{} and {}", state.clean, state.counted));
  mu_ = state.mu;
  base_ = state.base;
  clean_ = state.clean;
  counted_ = state.counted;
}

void AutoScaler::grow() {
  ++counted_;
  const auto steps = static_cast<double>(options_.steps_to_double);
  switch (options_.growth) {
    case GrowthLaw::exponential:
      mu_ *= growth_;
      return;
    case GrowthLaw::linear:
      mu_ = base_ * (1.0 + static_cast<double>(counted_) / steps);
      return;
    case GrowthLaw::doubling:
      if (counted_ % options_.steps_to_double == 0) mu_ *= 2.0;
      return;
    case GrowthLaw::none:
      return;
  }
}

ShippedScaling shipped_scaling(float amax, std::int64_t ranks, float previous_scale) {
  const FloatEnvironment environment;
  require(ranks >= 1, "ranks", "at least 1", fmt::format("{}", ranks));
  const ScaleOptions options{.rule = ScaleRule::ms_amp, .previous_scale = previous_scale};
  float scale = std::isfinite(amax) ? tile_scale(options, amax).scale : previous_scale;
  scale *= static_cast<float>(1.0 / std::sqrt(static_cast<double>(ranks)));
  return {scale, 1.0F / scale / static_cast<float>(ranks)};
}

}  // namespace fp8lab
