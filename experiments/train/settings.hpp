#pragma once
// What every experiment that trains reads from its parameters.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lab/experiment/parameter_struct.hpp"
#include "lab/plots/plot.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {

/// `name` if it is a model that takes BF16. Throws `Error` that names the parameter
/// `bf16_accumulator`.
std::string bf16_accumulator_of(const std::string& name);

/// The parameters of `StudySettings` that every such experiment has.
constexpr auto study_fields() {
  using train::Schedule;
  using train::TransformerShape;
  return std::tuple{
      group(&StudySettings::shape, field("vocabulary", &TransformerShape::vocabulary),
            field("length", &TransformerShape::length), field("width", &TransformerShape::width),
            field("layers", &TransformerShape::layers), field("heads", &TransformerShape::heads),
            field("hidden", &TransformerShape::hidden)),
      group(&StudySettings::schedule, field("learning_rate", &Schedule::peak),
            field("warmup", &Schedule::warmup), field("steps", &Schedule::steps)),
      field("bf16_accumulator", &StudySettings::bf16_accumulator, bf16_accumulator_of),
      field("sequences", &StudySettings::sequences),
      field("text", &StudySettings::text),
      field("tail_share", &StudySettings::tail_share),
      field("follow_nats", &StudySettings::follow_nats),
      field("diverge_nats", &StudySettings::diverge_nats)};
}

/// Those of its channels that are scaled up.
constexpr auto outlier_fields() {
  using train::OutlierChannels;
  return std::tuple{group(&StudySettings::outliers,
                          field("outlier_channels", &OutlierChannels::count),
                          field("outlier_log2", &OutlierChannels::log2_magnitude))};
}

/// `N parameters, T tokens a step, S steps`: for titles.
std::string describe_setup(const StudySettings& settings, std::int64_t parameters);

/// Losses averaged over some 30 stretches, as a line of a plot.
Series loss_curve(const std::string& label, const std::vector<double>& losses);

}  // namespace fp8lab::experiments
