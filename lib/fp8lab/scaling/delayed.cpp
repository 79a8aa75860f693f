#include "fp8lab/scaling/delayed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 2> kZeroAmaxNames{"keep_history", "roll"};

/// torch.max over a dimension: one NaN wins.
float max_or_nan(std::span<const float> values) {
  float largest = values[0];
  for (const float value : values) {
    if (std::isnan(value)) return value;
    largest = std::max(largest, value);
  }
  return largest;
}

}  // namespace

std::string_view to_string(AmaxAlgorithm algorithm) {
  return algorithm == AmaxAlgorithm::max ? "max" : "most_recent";
}

AmaxAlgorithm find_amax_algorithm(std::string_view name) {
  if (name == "max") return AmaxAlgorithm::max;
  if (name == "most_recent") return AmaxAlgorithm::most_recent;
  throw Error("algorithm", "max or most_recent", "'" + std::string(name) + "'");
}

std::string_view to_string(ZeroAmax zero_amax) {
  return kZeroAmaxNames[static_cast<std::size_t>(zero_amax)];
}

ZeroAmax find_zero_amax(std::string_view name) {
  return find_enumerator<ZeroAmax>(kZeroAmaxNames, "zero_amax", name);
}

DelayedScaling::DelayedScaling(FormatId id, DelayedOptions options, ScaleRule rule)
    : options_(options),
      is_flax_(is_flax(rule)),
      scaled_max_(static_cast<float>(format(id).max_finite()) *
                  std::exp2(-static_cast<float>(options.margin))) {
  require(options.history >= 1, "history", "at least 1", fmt::format("{}", options.history));
  require(std::isfinite(options.margin), "margin", "a finite number",
          fmt::format("{}", options.margin));
  require(is_flax_ || rule == ScaleRule::te, "rule", "te, flax or flax_bf16", to_string(rule));
  past_.assign(static_cast<std::size_t>(options.history - 1), 0.0F);
}

void DelayedScaling::record(float amax) {
  if (is_flax_ && std::isnan(amax)) amax = std::numeric_limits<float>::infinity();
  current_ = std::fmax(current_, std::abs(amax));
}

void DelayedScaling::update() {
  const FloatEnvironment environment;
  if (current_ == 0.0F && options_.zero_amax == ZeroAmax::keep_history) return;
  float amax = current_;
  if (options_.algorithm == AmaxAlgorithm::max)
    for (const float value : past_) amax = std::max(amax, value);
  if (std::isfinite(amax) && amax > 0.0F) {
    scale_ = scaled_max_ / amax;
    if (std::isinf(scale_) && !is_flax_) scale_ = std::numeric_limits<float>::max();
  } else if (is_flax_) {
    scale_ = 1.0F / (1.0F / scale_);
  }
  if (!past_.empty()) {
    past_[oldest_] = current_;
    oldest_ = (oldest_ + 1) % past_.size();
  }
  current_ = 0.0F;
}

std::vector<float> DelayedScaling::history() const {
  std::vector<float> slots{current_};
  for (std::size_t i = 0; i < past_.size(); ++i)
    slots.push_back(past_[(oldest_ + i) % past_.size()]);
  return slots;
}

void DelayedScaling::restore(float scale, std::span<const float> history) {
  require(history.size() == past_.size() + 1, "history", counted(past_.size() + 1, "slot"),
          fmt::format("{}", history.size()));
  scale_ = scale;
  current_ = history[0];
  past_.assign(history.begin() + 1, history.end());
  oldest_ = 0;
}

MsAmpScaling::MsAmpScaling(FormatId format, std::int64_t window) : format_(format) {
  require(window >= 1, "window", "at least 1", fmt::format("{}", window));
  window_.assign(static_cast<std::size_t>(window), 0.0F);
}

bool MsAmpScaling::is_just_in_time() const {
  const auto window = static_cast<std::int64_t>(window_.size());
  return window == 1 || updates_ < window;
}

std::int64_t MsAmpScaling::updates() const {
  return std::min(updates_, static_cast<std::int64_t>(window_.size()));
}

void MsAmpScaling::restore(float scale, std::int64_t updates, std::span<const float> window) {
  require(window.size() == window_.size(), "window", counted(window_.size(), "slot"),
          fmt::format("{}", window.size()));
  require(updates >= 0 && updates <= static_cast<std::int64_t>(window_.size()), "updates",
          fmt::format("0 to {}", window_.size()), fmt::format("{}", updates));
  scale_ = scale;
  updates_ = updates;
  window_.assign(window.begin(), window.end());
}

float MsAmpScaling::scale_for(float amax) {
  const FloatEnvironment environment;
  window_[0] = amax;
  if (is_just_in_time())
    scale_ =
        tile_scale({.rule = ScaleRule::ms_amp, .format = format_, .previous_scale = scale_}, amax)
            .scale;
  return scale_;
}

void MsAmpScaling::update() {
  const FloatEnvironment environment;
  const ScaleOptions options{
      .rule = ScaleRule::ms_amp, .format = format_, .previous_scale = scale_};
  const bool valid = std::isfinite(window_[0]);
  if (valid) scale_ = tile_scale(options, max_or_nan(window_)).scale;
  updates_ = valid ? updates_ + 1 : 0;
  std::rotate(window_.rbegin(), window_.rbegin() + 1, window_.rend());
}

}  // namespace fp8lab
