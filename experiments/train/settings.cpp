#include "train/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/names.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kCurvePoints = 30;

}  // namespace

StudySettings read_settings(const Parameters& p) {
  const auto count = [&](std::string_view key) {
    return static_cast<std::int64_t>(positive(p, key));
  };
  StudySettings s;
  s.shape = {.vocabulary = count("vocabulary"),
             .length = count("length"),
             .width = count("width"),
             .layers = count("layers"),
             .heads = count("heads"),
             .hidden = count("hidden")};
  s.sequences = count("sequences");
  s.schedule = {
      .peak = p.real("learning_rate"), .warmup = count("warmup"), .steps = count("steps")};
  s.text = p.text("text");
  s.tail_share = p.real("tail_share");
  s.follow_nats = p.real("follow_nats");
  s.diverge_nats = p.real("diverge_nats");
  return s;
}

std::string describe_setup(const StudySettings& settings, std::int64_t parameters) {
  return fmt::format("{} parameters, {} tokens a step, {} steps", parameters,
                     settings.sequences * settings.shape.length, settings.schedule.steps);
}

Series loss_curve(const std::string& label, const std::vector<double>& losses) {
  const std::size_t length = std::max<std::size_t>(1, losses.size() / kCurvePoints);
  Series series{label, {}, {}, Series::Style::lines};
  for (std::size_t begin = 0; begin + length <= losses.size(); begin += length) {
    double sum = 0.0;
    for (std::size_t i = begin; i < begin + length; ++i) sum += losses[i];
    series.x.push_back(static_cast<double>(begin) + 0.5 * static_cast<double>(length));
    series.y.push_back(sum / static_cast<double>(length));
  }
  return series;
}

}  // namespace fp8lab::experiments
