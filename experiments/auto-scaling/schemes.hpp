#pragma once
// The ways to scale gradients before an FP8 all-reduce, measured over ranks and repeats.

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "auto-scaling/reduction.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {

struct AutoScalingSettings;

/// The rule of mu that the parameters set.
struct MuRule {
  AutoScalingOptions options;
  double start = 1.0;

  [[nodiscard]] AutoScaler scaler() const { return AutoScaler(options, start); }
  /// `as paper` where it is the paper's, else `as set`.
  [[nodiscard]] std::string name() const;

  /// The parameters that set it.
  static constexpr auto fields() {
    using Options = AutoScalingOptions;
    return std::tuple{group(&MuRule::options, field("delta", &Options::threshold),
                            field("doubling_steps", &Options::steps_to_double),
                            field("clean_steps", &Options::clean_steps),
                            field("growth", &Options::growth, find_growth_law)),
                      field("mu_start", &MuRule::start)};
  }
};

/// The listing's rule: threshold 0.1 %, growth after 1000 clean steps.
MuRule listing_rule();

/// max finite / amax, which mu multiplies.
double amax_scale(const Gradients& gradients, const Format& f);

/// mu after `steps` steps on the same gradients, and the last share of sums at max finite.
struct Settled {
  double mu = 1.0;
  double share = 0.0;
};
Settled settle(const Gradients& gradients, const MuRule& rule, std::int64_t steps, const Format& f,
               const Backend& backend = {});

/// The reduction whose gradients are cast with the amax scale times mu.
ReductionLoss reduce_with_mu(const Gradients& gradients, const std::vector<float>& mean, double mu,
                             const Format& f, const Backend& backend = {});

/// The table, plots and findings of reductions over ranks.
void add_reductions(const RunContext& context, const AutoScalingSettings& settings,
                    Results& results);

/// Whether `elements` can tell shares of delta: "One of 131072 elements is 0.00076 %; ...".
std::string resolution_finding(std::size_t elements, double delta);

}  // namespace fp8lab::experiments
