#include "train/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kCurvePoints = 30;

}  // namespace

std::string bf16_accumulator_of(const std::string& name) {
  const AccumulatorModel& model = [&]() -> const AccumulatorModel& {
    try {
      return find_instruction_model(name).accumulator;
    } catch (const Error& error) {
      throw Error(fmt::format("bf16_accumulator: {}", error.what()));
    }
  }();
  require(takes_formats(model, FormatId::bf16, FormatId::bf16), "bf16_accumulator",
          "a model that takes BF16, such as fp32 or sm90.wgmma.bf16", fmt::format("'{}'", name));
  return name;
}

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
