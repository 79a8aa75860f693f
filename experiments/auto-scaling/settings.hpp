#pragma once
// The parameters of the auto-scaling experiment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "auto-scaling/schemes.hpp"
#include "fp8lab/formats/format.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {

/// The gradient that drifts and spikes, and the rules that follow it.
struct DynamicsSettings {
  std::int64_t steps = 0;
  std::int64_t ranks = 0;
  std::size_t elements = 0;
  std::vector<std::string> rules;
  double drift_octaves = 0.0;
  double drift_back_octaves = 0.0;
  double turn_at = 0.0;
  double spike = 0.0;
  std::int64_t spike_steps = 0;
  std::int64_t spike_period = 0;
  double amax = 0.0;
  std::string gradients;  ///< a file, or empty
  std::string file;       ///< of amaxes, or empty

  static constexpr auto fields() {
    using Self = DynamicsSettings;
    return std::tuple{field("steps", &Self::steps),
                      field("dynamics_ranks", &Self::ranks),
                      field("dynamics_elements", &Self::elements),
                      field("dynamics_rules", &Self::rules),
                      field("drift_octaves", &Self::drift_octaves),
                      field("drift_back_octaves", &Self::drift_back_octaves),
                      field("turn_at", &Self::turn_at),
                      field("spike", &Self::spike),
                      field("spike_steps", &Self::spike_steps),
                      field("spike_period", &Self::spike_period),
                      field("amax", &Self::amax),
                      field("gradients", &Self::gradients),
                      field("file", &Self::file)};
  }
};

struct AutoScalingSettings {
  const Format* format = nullptr;
  GradientShape shape;
  std::vector<std::int64_t> ranks;
  std::size_t repeats = 1;
  std::int64_t settle_steps = 0;
  MuRule rule;
  DynamicsSettings dynamics;

  static constexpr auto fields() {
    using Self = AutoScalingSettings;
    return std::tuple{field("format", &Self::format, find_format),
                      group(&Self::shape),
                      field("ranks", &Self::ranks),
                      field("repeats", &Self::repeats),
                      field("settle_steps", &Self::settle_steps),
                      group(&Self::rule),
                      group(&Self::dynamics)};
  }
};

}  // namespace fp8lab::experiments
