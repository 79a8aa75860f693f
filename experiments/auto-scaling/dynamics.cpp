#include "auto-scaling/dynamics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "common/tensor_file.hpp"
#include "common/trace_file.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

/// What one step of one rule did.
struct Step {
  double mu = 1.0;
  double counted_percent = 0.0;  ///< what the rule compares with its threshold
  ReductionLoss loss;
};

/// A rule and its steps.
struct Dynamics {
  std::string name;
  MuRule rule;
  bool as_written = false;  ///< counts unscaled values, and an amax scale follows mu
  std::vector<Step> steps;
};

struct Setup {
  const Format* format = nullptr;
  std::vector<double> sizes;
  Gradients gradients;      ///< of the first step, in the units of their source
  std::vector<float> mean;  ///< of these
  double unit = 1.0;        ///< turns those units into the gradient's own, which mu meets
  Backend backend{};
};

Dynamics find_rule(const std::string& name, const MuRule& set) {
  if (name == "set") return {set.name(), set, false, {}};
  if (name == "listing") return {"listing as written", listing_rule(), true, {}};
  if (name == "listing-corrected") return {"listing corrected", listing_rule(), false, {}};
  throw Error("dynamics_rules", "set, listing or listing-corrected", "'" + name + "'");
}

Gradients make_gradients(const RunContext& context, const AutoScalingSettings& p) {
  const DynamicsSettings& d = p.dynamics;
  if (d.gradients.empty())
    return {context.random("auto-scaling/dynamics"),
            {d.elements, p.shape.decades, p.shape.noise_to_signal},
            d.ranks,
            context.threads};
  const std::vector<NamedMatrix> matrices = read_matrices(d.gradients);
  require(matrices.size() == 1, "gradients", "one tensor [ranks, elements]",
          fmt::format("{} tensors in {}", matrices.size(), d.gradients));
  const NamedMatrix& matrix = matrices.front();
  std::vector<std::vector<float>> ranks;
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    ranks.emplace_back(matrix.values.begin() + r * matrix.columns,
                       matrix.values.begin() + (r + 1) * matrix.columns);
  return Gradients(std::move(ranks));
}

/// The gradient's size at each step, in units of the first one's: drift there and back with
/// spikes, or what `file` holds.
std::vector<double> sizes_of(const DynamicsSettings& d) {
  std::vector<double> sizes;
  if (!d.file.empty()) {
    const std::vector<float> trace = read_trace(d.file);
    for (const float amax : trace) {
      require(amax > 0.0F, "file", "numbers above 0", "0");
      sizes.push_back(static_cast<double>(amax) / static_cast<double>(trace.front()));
    }
    return sizes;
  }
  require(d.spike_steps <= d.spike_period, "spike_steps",
          fmt::format("at most spike_period = {}", d.spike_period), d.spike_steps);
  for (std::int64_t step = 0; step < d.steps; ++step) {
    const double at = static_cast<double>(step) / static_cast<double>(d.steps);
    double octaves = d.drift_octaves * std::min(at / d.turn_at, 1.0);
    if (at > d.turn_at) octaves += d.drift_back_octaves * (at - d.turn_at) / (1.0 - d.turn_at);
    const double drift = std::exp2(octaves);
    const bool spikes = step % d.spike_period >= d.spike_period - d.spike_steps;
    sizes.push_back(spikes ? drift * d.spike : drift);
  }
  return sizes;
}

Setup make_setup(const RunContext& context, const AutoScalingSettings& p) {
  const DynamicsSettings& d = p.dynamics;
  Gradients gradients = make_gradients(context, p);
  const auto drawn = static_cast<double>(gradients.amax());
  require(drawn > 0.0, "gradients", "an element that is not 0", "none");
  const double amax = d.file.empty() ? d.amax : static_cast<double>(read_trace(d.file).front());
  std::vector<float> mean = gradients.mean();
  return {p.format,
          sizes_of(d),
          std::move(gradients),
          std::move(mean),
          d.gradients.empty() ? amax / drawn : 1.0,
          context.backend};
}

/// The share that the listing counts, `(grad * mu).abs() >= FP8_MAX`, over all ranks in binary32.
double share_above_max(const Gradients& gradients, double size, double mu, const Format& f) {
  const auto step = static_cast<float>(size);
  const auto factor = static_cast<float>(mu);
  const auto limit = static_cast<float>(f.max_finite());
  std::size_t count = 0;
  for (std::int64_t r = 0; r < gradients.ranks(); ++r)
    for (const float x : gradients.of_rank(r))
      if (std::abs(x * step * factor) >= limit) ++count;
  return static_cast<double>(count) / static_cast<double>(gradients.elements()) /
         static_cast<double>(gradients.ranks());
}

/// The listing's scale of a tensor of this amax, which divides out again what mu has multiplied.
double listing_scale(double amax, const Format& f) {
  return static_cast<double>(static_cast<float>(f.max_finite()) /
                             std::max(static_cast<float>(amax), 1e-12F));
}

Step run_step(const Setup& s, const Dynamics& d, double first_scale, double size, double mu) {
  const double own = s.unit * size;  // of this step's gradient
  double factor = first_scale * size * mu;
  Step step{mu, 0.0, {}};
  if (d.as_written) {
    step.counted_percent = share_above_max(s.gradients, own, mu, *s.format);
    const double amax = static_cast<double>(s.gradients.amax()) * own * mu;
    factor = own * mu * listing_scale(amax, *s.format);
  }
  const RingSum sum = ring_sum(s.gradients, factor, *s.format, s.backend);
  if (!d.as_written) step.counted_percent = share_at_max(sum.codes, *s.format);
  const auto ranks = static_cast<double>(s.gradients.ranks());
  step.loss = measure_reduction(s.mean, sum, 1.0 / (factor * ranks), *s.format);
  return step;
}

void run_rule(const Setup& s, Dynamics& d) {
  const double first_scale = amax_scale(s.gradients, *s.format);
  AutoScaler scaler = d.rule.scaler();
  for (const double size : s.sizes) {
    Step step = run_step(s, d, first_scale, size, scaler.mu());
    scaler.update(step.counted_percent);
    step.counted_percent *= 100.0;
    d.steps.push_back(step);
  }
}

Table dynamics_table(const Setup& s, const std::vector<Dynamics>& all) {
  Table table("dynamics",
              fmt::format("mu, step by step ({}, {} ranks, {} elements)", short_name(*s.format),
                          s.gradients.ranks(), s.gradients.elements()),
              {{"rule", "", "of mu"},
               {"step", "1", "from 0"},
               {"size", "1", "of the gradient, in units of the first step's"},
               {"mu", "1", "factor of this step's gradient"},
               {"counted", "%", "elements that the rule counts as saturated"},
               {"overflow", "%", "sums that saturated at some hop"},
               {"underflow", "%", "non-zero means that became zero"},
               {"snr", "dB", "of the mean gradient, mu divided out"}});
  for (const Dynamics& d : all)
    for (std::size_t i = 0; i < d.steps.size(); ++i) {
      const Step& step = d.steps[i];
      table.add_row({d.name, static_cast<std::int64_t>(i), s.sizes[i], step.mu,
                     step.counted_percent, step.loss.overflow_percent, step.loss.underflow_percent,
                     step.loss.snr_db});
    }
  return table;
}

/// One line a rule; `value(step)` is its height.
template <typename Value>
Plot step_plot(const std::vector<Dynamics>& all, const std::string& name, const std::string& title,
               const Axis& axis, Value value) {
  Plot plot{name, title, {"step", false}, axis, {}};
  for (const Dynamics& d : all) {
    std::vector<double> heights;
    for (const Step& step : d.steps) heights.push_back(value(step));
    plot.series.push_back(thinned(d.name, heights));
  }
  return plot;
}

/// mu beside what would keep the sum where the first step had it.
Plot mu_plot(const Setup& s, const std::vector<Dynamics>& all) {
  Plot plot = step_plot(all, "mu", "mu over the steps of gradients that drift and spike",
                        {"mu", true, 2}, [](const Step& step) { return step.mu; });
  std::vector<double> ideal;
  for (const double size : s.sizes) ideal.push_back(1.0 / size);
  plot.series.push_back(thinned("1 / scale of the gradient", ideal, Series::Style::dashed));
  return plot;
}

template <typename Value>
double mean_over(const std::vector<Step>& steps, Value value) {
  PairwiseSum sum;
  for (const Step& step : steps) sum.add(value(step));
  return sum.total() / static_cast<double>(steps.size());
}

std::string rule_finding(const Dynamics& d) {
  std::size_t halvings = 0;
  double most = d.steps.front().mu;
  for (std::size_t i = 1; i < d.steps.size(); ++i) {
    if (d.steps[i].mu < d.steps[i - 1].mu) ++halvings;
    most = std::max(most, d.steps[i].mu);
  }
  std::string text = fmt::format(
      "mu {}, {} steps of one draw: from {:.4g} to {:.4g} with {} halvings, at most {:.4g}; "
      "overflow {:.3g} %, underflow {:.3g} %, SNR {:.1f} dB on average",
      d.name, d.steps.size(), d.steps.front().mu, d.steps.back().mu, halvings, most,
      mean_over(d.steps, [](const Step& step) { return step.loss.overflow_percent; }),
      mean_over(d.steps, [](const Step& step) { return step.loss.underflow_percent; }),
      mean_over(d.steps, [](const Step& step) { return step.loss.snr_db; }));
  if (d.as_written)
    text += "; the amax scale after mu cancels it, and the result is mu times the mean";
  return text + ".";
}

}  // namespace

void add_dynamics(const RunContext& context, const AutoScalingSettings& settings,
                  Results& results) {
  std::vector<Dynamics> all;
  for (const std::string& name : settings.dynamics.rules)
    all.push_back(find_rule(name, settings.rule));
  const Setup s = make_setup(context, settings);
  parallel_points(context, all.size(), [&](std::size_t i) { run_rule(s, all[i]); });
  results.tables.push_back(dynamics_table(s, all));
  results.plots.push_back(step_plot(all, "step_snr", "Signal to noise of the mean, step by step",
                                    {"SNR (dB)", false},
                                    [](const Step& step) { return step.loss.snr_db; }));
  results.plots.push_back(step_plot(all, "step_underflow", "Means that become zero, step by step",
                                    {"underflow (%)", false},
                                    [](const Step& step) { return step.loss.underflow_percent; }));
  results.plots.push_back(step_plot(
      all, "step_overflow", "Sums that saturate at some hop, step by step", {"overflow (%)", false},
      [](const Step& step) { return step.loss.overflow_percent; }));
  results.plots.push_back(mu_plot(s, all));
  for (const Dynamics& d : all) results.findings.push_back(rule_finding(d));
  if (s.gradients.elements() != settings.shape.elements)
    results.findings.push_back(
        "Dynamics: " + resolution_finding(s.gradients.elements(), settings.rule.options.threshold));
}

}  // namespace fp8lab::experiments
