#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "auto-scaling/reduction.hpp"
#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "common/trace_file.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

/// How gradients are scaled before their sum.
enum class Scheme { pre, post, as_paper, as_seed, as_shipped };
constexpr std::array<const char*, 5> kSchemes{"pre-scaling", "post-scaling", "auto, as paper",
                                              "auto, as seed", "as shipped (MS-AMP)"};

struct Setup {
  const Format* format = nullptr;
  GradientShape shape;
  std::vector<std::int64_t> ranks;
  std::int64_t settle_steps = 0;
  std::vector<double> sizes;  ///< of the dynamics' gradient, in units of the first step's
};

/// The gradient's size over the steps: from a file, or drifting with spikes.
std::vector<double> read_sizes(const Parameters& p) {
  std::vector<double> sizes;
  if (!p.text("file").empty()) {
    const std::vector<float> trace = read_trace(p.text("file"));
    for (const float amax : trace) {
      require(amax > 0.0F, "file", "numbers above 0", "0");
      sizes.push_back(static_cast<double>(amax) / static_cast<double>(trace.front()));
    }
    return sizes;
  }
  const auto steps = static_cast<std::int64_t>(positive(p, "steps"));
  const auto period = static_cast<std::int64_t>(positive(p, "spike_period"));
  for (std::int64_t step = 0; step < steps; ++step) {
    const double drift =
        std::exp2(p.real("drift_octaves") * static_cast<double>(step) / static_cast<double>(steps));
    sizes.push_back(step % period == period - 1 ? drift * p.real("spike") : drift);
  }
  return sizes;
}

Setup read_setup(const Parameters& p) {
  Setup s;
  s.format = &find_format(p.text("format"));
  require(s.format->id == FormatId::e4m3fn || s.format->id == FormatId::e5m2, "format",
          "e4m3fn or e5m2", s.format->name);
  s.shape = {positive(p, "elements"), p.real("decades"), p.real("noise_to_signal")};
  s.ranks = p.integers("ranks");
  for (const std::int64_t ranks : s.ranks)
    require(ranks >= 1, "ranks", "integers >= 1", fmt::format("{}", ranks));
  s.settle_steps = static_cast<std::int64_t>(positive(p, "settle_steps"));
  s.sizes = read_sizes(p);
  return s;
}

struct Point {
  Scheme scheme = Scheme::pre;
  std::int64_t ranks = 0;
  double mu = 1.0;
  ReductionLoss loss;
};

/// mu after it has found its place: halved until the sum no longer saturates
/// more than the threshold. From 1 that takes some log2(ranks) steps; growth
/// over so few steps is small.
double settled_mu(const Setup& s, const Gradients& gradients, double scale, AutoScaling variant) {
  AutoScaler scaler(auto_scaling_options(variant));
  for (std::int64_t step = 0; step < s.settle_steps; ++step)
    scaler.update(
        share_at_max(ring_sum(gradients, scale * scaler.mu(), *s.format).codes, *s.format));
  return scaler.mu();
}

void measure(const RunContext& context, const Setup& s, Point& p) {
  const Gradients gradients(context.random("auto-scaling"), s.shape, p.ranks);
  const float amax = gradients.amax();
  const double scale =
      static_cast<double>(tile_scale({.format = s.format->id}, amax).scale);  // unified
  const auto ranks = static_cast<double>(p.ranks);
  if (p.scheme == Scheme::as_shipped) {
    const ShippedScaling shipped = shipped_scaling(amax, p.ranks);
    p.mu = static_cast<double>(shipped.scale) / scale;
    p.loss = measure_reduction(gradients,
                               ring_sum(gradients, static_cast<double>(shipped.scale), *s.format),
                               static_cast<double>(shipped.inverse_scale), *s.format);
    return;
  }
  if (p.scheme == Scheme::pre) p.mu = 1.0 / ranks;
  if (p.scheme == Scheme::as_paper) p.mu = settled_mu(s, gradients, scale, AutoScaling::as_paper);
  if (p.scheme == Scheme::as_seed) p.mu = settled_mu(s, gradients, scale, AutoScaling::as_seed);
  p.loss = measure_reduction(gradients, ring_sum(gradients, scale * p.mu, *s.format),
                             1.0 / (scale * p.mu * ranks), *s.format);
}

std::vector<Point> measure_points(const RunContext& context, const Setup& s) {
  std::vector<Point> points;
  for (const std::int64_t ranks : s.ranks)
    for (std::size_t scheme = 0; scheme < kSchemes.size(); ++scheme)
      points.push_back({static_cast<Scheme>(scheme), ranks, 1.0, {}});
  parallel_points(
      context, points.size(), [&](std::size_t i) { measure(context, s, points[i]); }, 0.0, 0.6);
  return points;
}

Table reduction_table(const Setup& s, const std::vector<Point>& points) {
  Table table("reduction",
              fmt::format("Mean gradient after an FP8 ring all-reduce ({}, {} elements)",
                          short_name(*s.format), s.shape.elements),
              {{"scheme", "", "how gradients are scaled"},
               {"ranks", "1", "gradients in the sum"},
               {"mu", "1", "factor on top of max finite / amax"},
               {"snr", "dB", "of the mean gradient"},
               {"underflow", "%", "non-zero means that became zero"},
               {"overflow", "%", "sums that saturated at some hop"}});
  for (const Point& p : points)
    table.add_row({std::string(kSchemes[static_cast<std::size_t>(p.scheme)]), p.ranks, p.mu,
                   p.loss.snr_db, p.loss.underflow_percent, p.loss.overflow_percent});
  return table;
}

Plot reduction_plot(const Setup& s, const std::vector<Point>& points, const std::string& name,
                    const std::string& title, const std::string& label,
                    double ReductionLoss::*field) {
  Plot plot{name,
            fmt::format("{} ({}, {} elements)", title, short_name(*s.format), s.shape.elements),
            {"ranks", true, 2},
            {label, false},
            {}};
  plot.series = series_by(
      points, [](const Point& p) { return kSchemes[static_cast<std::size_t>(p.scheme)]; },
      [&](const Point& p) { return std::pair(static_cast<double>(p.ranks), p.loss.*field); });
  return plot;
}

/// One variant's mu over the steps, with no other scale than mu itself.
struct Dynamics {
  AutoScaling variant = AutoScaling::as_paper;
  bool amax_scaled = false;  ///< the amax scale follows mu, as in the summary's listing
  std::vector<double> mu;
  std::vector<double> overflow;
  std::vector<double> underflow;
};

void run_dynamics(const RunContext& context, const Setup& s, Dynamics& d) {
  const Parameters& p = context.parameters;
  GradientShape shape = s.shape;
  shape.elements = positive(p, "dynamics_elements");
  const Gradients gradients(context.random("auto-scaling/dynamics"), shape,
                            static_cast<std::int64_t>(positive(p, "dynamics_ranks")));
  const auto unit =
      static_cast<double>(tile_scale({.format = s.format->id}, gradients.amax()).scale);
  AutoScaler scaler(auto_scaling_options(d.variant));
  for (const double size : s.sizes) {
    // The amax scale divides by what the gradient and mu have multiplied.
    const double factor = d.amax_scaled ? unit : unit * size * scaler.mu();
    const RingSum sum = ring_sum(gradients, factor, *s.format);
    const ReductionLoss loss = measure_reduction(
        gradients, sum, 1.0 / (factor * static_cast<double>(gradients.ranks())), *s.format);
    d.mu.push_back(scaler.mu());
    d.overflow.push_back(loss.overflow_percent);
    d.underflow.push_back(loss.underflow_percent);
    scaler.update(share_at_max(sum.codes, *s.format));
  }
}

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string dynamics_name(const Dynamics& d) {
  return std::string(d.variant == AutoScaling::as_paper ? "as paper" : "as seed") +
         (d.amax_scaled ? ", then amax scale" : "");
}

/// mu beside what would keep the sum where the first step had it.
Plot mu_plot(const Setup& s, const std::vector<Dynamics>& all) {
  Plot plot{"mu",
            "mu over the steps of gradients that drift and spike",
            {"step", false},
            {"mu", true, 2},
            {}};
  Series ideal{"1 / scale of the gradient", {}, {}, Series::Style::dashed};
  for (const Dynamics& d : all) {
    if (d.amax_scaled) continue;  // it runs away without any effect: see the findings
    Series series{dynamics_name(d), {}, {}, Series::Style::lines};
    const std::size_t stride = std::max<std::size_t>(1, d.mu.size() / 1000);
    for (std::size_t i = 0; i < d.mu.size(); i += stride) {
      series.x.push_back(static_cast<double>(i));
      series.y.push_back(d.mu[i]);
      if (!plot.series.empty()) continue;
      ideal.x.push_back(static_cast<double>(i));
      ideal.y.push_back(1.0 / s.sizes[i]);
    }
    plot.series.push_back(series);
  }
  plot.series.push_back(ideal);
  return plot;
}

void add_findings(const Setup& s, const std::vector<Point>& points,
                  const std::vector<Dynamics>& dynamics, Results& results) {
  const std::int64_t most = s.ranks.back();
  std::string figures;
  for (const Point& p : points)
    if (p.ranks == most)
      figures +=
          fmt::format("{} {} {:.1f} dB, underflow {:.3g} %, overflow {:.3g} %",
                      figures.empty() ? "" : ";", kSchemes[static_cast<std::size_t>(p.scheme)],
                      p.loss.snr_db, p.loss.underflow_percent, p.loss.overflow_percent);
  results.findings.push_back(fmt::format("{} ranks, {} elements in {}:{}.", most, s.shape.elements,
                                         short_name(*s.format), figures));
  for (const Dynamics& d : dynamics)
    results.findings.push_back(fmt::format(
        "mu {} over {} steps of drifting, spiking gradients: from 1 to {:.4g}; overflow {:.3g} %, "
        "underflow {:.3g} % on average.",
        dynamics_name(d), d.mu.size(), d.mu.back(), mean_of(d.overflow), mean_of(d.underflow)));
}

}  // namespace

Results auto_scaling(const RunContext& context) {
  const Setup setup = read_setup(context.parameters);
  const std::vector<Point> points = measure_points(context, setup);
  std::vector<Dynamics> dynamics{{AutoScaling::as_paper, false, {}, {}, {}},
                                 {AutoScaling::as_seed, false, {}, {}, {}},
                                 {AutoScaling::as_seed, true, {}, {}, {}}};
  parallel_points(
      context, dynamics.size(), [&](std::size_t i) { run_dynamics(context, setup, dynamics[i]); },
      0.6, 1.0);
  Results results;
  results.tables = {reduction_table(setup, points)};
  results.plots = {
      reduction_plot(setup, points, "snr", "FP8 all-reduce: signal to noise of the mean",
                     "SNR (dB)", &ReductionLoss::snr_db),
      reduction_plot(setup, points, "underflow", "FP8 all-reduce: means that become zero",
                     "underflow (%)", &ReductionLoss::underflow_percent),
      reduction_plot(setup, points, "overflow", "FP8 all-reduce: sums that saturate at some hop",
                     "overflow (%)", &ReductionLoss::overflow_percent),
      mu_plot(setup, dynamics)};
  add_findings(setup, points, dynamics, results);
  return results;
}

}  // namespace fp8lab::experiments
