#include "train/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kCurvePoints = 30;

}  // namespace

std::string describe_setup(const StudySettings& settings, std::int64_t parameters) {
  return fmt::format("{} parameters, {} tokens per step, {} steps", parameters,
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
