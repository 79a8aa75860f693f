#include "auto-scaling/schemes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "auto-scaling/settings.hpp"
#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

enum class Scheme { pre, post, as_set, as_seed, as_shipped };
constexpr std::size_t kSchemes = 5;

struct Setup : AutoScalingSettings {
  Backend backend{};

  [[nodiscard]] std::string name(Scheme scheme) const {
    const std::array<std::string, kSchemes> names{"pre-scaling", "post-scaling",
                                                  "auto, " + rule.name(), "auto, as seed",
                                                  "as shipped (MS-AMP)"};
    return names[static_cast<std::size_t>(scheme)];
  }
};

/// One scheme at one number of ranks, over the repeats.
struct Point {
  Scheme scheme = Scheme::pre;
  std::int64_t ranks = 0;
  std::vector<double> mu, snr, underflow, overflow;

  void add(double factor, const ReductionLoss& loss) {
    mu.push_back(factor);
    snr.push_back(loss.snr_db);
    underflow.push_back(loss.underflow_percent);
    overflow.push_back(loss.overflow_percent);
  }
};

/// One more repeat of `p`.
void measure(const Setup& s, const Gradients& gradients, const std::vector<float>& mean, Point& p) {
  double mu = 1.0;
  if (p.scheme == Scheme::as_shipped) {
    const ShippedScaling shipped = shipped_scaling(gradients.amax(), p.ranks);
    const auto scale = static_cast<double>(shipped.scale);
    p.add(scale / amax_scale(gradients, *s.format),
          measure_reduction(mean, ring_sum(gradients, scale, *s.format, s.backend),
                            static_cast<double>(shipped.inverse_scale), *s.format));
    return;
  }
  if (p.scheme == Scheme::pre) mu = 1.0 / static_cast<double>(p.ranks);
  if (p.scheme == Scheme::as_set)
    mu = settle(gradients, s.rule, s.settle_steps, *s.format, s.backend).mu;
  if (p.scheme == Scheme::as_seed)
    mu = settle(gradients, listing_rule(), s.settle_steps, *s.format, s.backend).mu;
  p.add(mu, reduce_with_mu(gradients, mean, mu, *s.format, s.backend));
}

/// The gradients of many ranks are large: one set at a time, shared by the schemes.
std::vector<Point> measure_points(const RunContext& context, const Setup& s) {
  std::vector<Point> points;
  for (const std::int64_t ranks : s.ranks)
    for (std::size_t scheme = 0; scheme < kSchemes; ++scheme)
      points.push_back({static_cast<Scheme>(scheme), ranks, {}, {}, {}, {}});
  const double sets = static_cast<double>(s.repeats * s.ranks.size());
  double done = 0.0;
  for (std::size_t repeat = 0; repeat < s.repeats; ++repeat)
    for (std::size_t i = 0; i < s.ranks.size(); ++i, ++done) {
      const RandomStream random = context.random(fmt::format("auto-scaling/{}", repeat));
      const Gradients gradients(random, s.shape, s.ranks[i], context.threads);
      const std::vector<float> mean = gradients.mean();
      parallel_points(
          context, kSchemes,
          [&](std::size_t scheme) { measure(s, gradients, mean, points[i * kSchemes + scheme]); },
          done / sets, (done + 1.0) / sets);
    }
  return points;
}

Table reduction_table(const Setup& s, const std::vector<Point>& points) {
  Table table(
      "reduction",
      fmt::format("Mean gradient after an FP8 ring all-reduce ({}, {} elements, repeats: "
                  "{})",
                  short_name(*s.format), s.shape.elements, s.repeats),
      {{"scheme", "", "how gradients are scaled"},
       {"ranks", "1", "gradients in the sum"},
       {"mu", "1", "factor on top of max finite / amax, mean over repeats"},
       {"mu_min", "1", "smallest"},
       {"mu_max", "1", "largest"},
       {"snr", "dB", "of the mean gradient, mean over repeats"},
       {"snr_half_width", "dB", "half width of the interval that holds 99 % of single draws"},
       {"snr_min", "dB", "smallest"},
       {"snr_max", "dB", "largest"},
       {"underflow", "%", "non-zero means that became zero, mean over repeats"},
       {"underflow_min", "%", "smallest"},
       {"underflow_max", "%", "largest"},
       {"overflow", "%", "sums that saturated at some hop, mean over repeats"},
       {"overflow_min", "%", "smallest"},
       {"overflow_max", "%", "largest"}});
  for (const Point& p : points) {
    const Spread mu = spread_of(p.mu);
    const Spread snr = spread_of(p.snr);
    const Spread under = spread_of(p.underflow);
    const Spread over = spread_of(p.overflow);
    table.add_row({s.name(p.scheme), p.ranks, mu.mean, mu.min, mu.max, snr.mean,
                   interval_of(p.snr).half_width, snr.min, snr.max, under.mean, under.min,
                   under.max, over.mean, over.min, over.max});
  }
  return table;
}

Table repeat_table(const Setup& s, const std::vector<Point>& points) {
  Table table("reduction_repeats", "Every draw that the means are computed from",
              {{"scheme", "", "how gradients are scaled"},
               {"ranks", "1", "gradients in the sum"},
               {"repeat", "1", "draw, from 0; all schemes use the same gradients"},
               {"mu", "1", "factor on top of max finite / amax"},
               {"snr", "dB", "of the mean gradient"},
               {"underflow", "%", "non-zero means that became zero"},
               {"overflow", "%", "sums that saturated at some hop"}});
  for (const Point& p : points)
    for (std::size_t i = 0; i < s.repeats; ++i)
      table.add_row({s.name(p.scheme), p.ranks, static_cast<std::int64_t>(i), p.mu[i], p.snr[i],
                     p.underflow[i], p.overflow[i]});
  return table;
}

Plot reduction_plot(const Setup& s, const std::vector<Point>& points, const std::string& name,
                    const std::string& title, const std::string& label,
                    std::vector<double> Point::*field) {
  Plot plot{name,
            fmt::format("{} ({}, {} elements, mean of {})", title, short_name(*s.format),
                        s.shape.elements, s.repeats),
            {"ranks", true, 2},
            {label, false},
            {}};
  plot.series = series_by(
      points, [&](const Point& p) { return s.name(p.scheme); },
      [&](const Point& p) {
        return std::pair(static_cast<double>(p.ranks), spread_of(p.*field).mean);
      });
  return plot;
}

/// Which schemes are better than others, draw by draw on the same gradients.
std::string verdict_on(const Setup& s, const std::vector<const Point*>& points) {
  std::vector<std::vector<double>> snrs;
  for (const Point* p : points) snrs.push_back(p->snr);
  const std::vector<std::size_t> best = largest_of(snrs);
  std::vector<std::string> names;
  for (const std::size_t i : best) names.push_back(s.name(points[i]->scheme));
  if (best.size() == points.size()) return "draws do not tell the schemes apart";
  if (best.size() == 1) return fmt::format("{} is better than the others", names.front());
  return fmt::format("{} are better than the others, and draws do not tell them apart",
                     fmt::join(names, " and "));
}

std::string scheme_finding(const Setup& s, const std::vector<Point>& all, std::int64_t ranks) {
  std::vector<const Point*> points;
  std::string figures;
  for (const Point& p : all)
    if (p.ranks == ranks) {
      figures += fmt::format("{} {} dB ({})", points.empty() ? "" : ",", interval_text(p.snr),
                             s.name(p.scheme));
      points.push_back(&p);
    }
  return fmt::format(
      "{} ranks, SNR of the mean gradient:{}: {} ({} elements in {}; {}; draws: {}).", ranks,
      figures, verdict_on(s, points), s.shape.elements, short_name(*s.format), kIntervalMeaning,
      s.repeats);
}

}  // namespace

std::string MuRule::name() const {
  const bool paper = options == auto_scaling_options(AutoScaling::as_paper) && start == 1.0;
  return paper ? "as paper" : "as set";
}

MuRule listing_rule() { return {auto_scaling_options(AutoScaling::as_seed), 1.0}; }

double amax_scale(const Gradients& gradients, const Format& f) {
  return static_cast<double>(tile_scale({.format = f.id}, gradients.amax()).scale);
}

Settled settle(const Gradients& gradients, const MuRule& rule, std::int64_t steps, const Format& f,
               const Backend& backend) {
  const double scale = amax_scale(gradients, f);
  AutoScaler scaler = rule.scaler();
  double share = 0.0;
  for (std::int64_t step = 0; step < steps; ++step) {
    share = share_at_max(ring_sum(gradients, scale * scaler.mu(), f, backend).codes, f);
    scaler.update(share);
  }
  return {scaler.mu(), share};
}

ReductionLoss reduce_with_mu(const Gradients& gradients, const std::vector<float>& mean, double mu,
                             const Format& f, const Backend& backend) {
  const double factor = amax_scale(gradients, f) * mu;
  return measure_reduction(mean, ring_sum(gradients, factor, f, backend),
                           1.0 / (factor * static_cast<double>(gradients.ranks())), f);
}

void add_reductions(const RunContext& context, const AutoScalingSettings& settings,
                    Results& results) {
  const Setup s{settings, context.backend};
  require(s.format->id == FormatId::e4m3fn || s.format->id == FormatId::e5m2, "format",
          "e4m3fn or e5m2", s.format->name);
  const std::vector<Point> points = measure_points(context, s);
  results.tables.push_back(reduction_table(s, points));
  results.tables.push_back(repeat_table(s, points));
  results.plots.push_back(reduction_plot(
      s, points, "snr", "FP8 all-reduce: signal to noise of the mean", "SNR (dB)", &Point::snr));
  results.plots.push_back(reduction_plot(s, points, "underflow",
                                         "FP8 all-reduce: means that become zero", "underflow (%)",
                                         &Point::underflow));
  results.plots.push_back(reduction_plot(s, points, "overflow",
                                         "FP8 all-reduce: sums that saturate at some hop",
                                         "overflow (%)", &Point::overflow));
  for (const std::int64_t ranks : s.ranks)
    if (ranks == s.ranks.front() || ranks == 8 || ranks == s.ranks.back())
      results.findings.push_back(scheme_finding(s, points, ranks));
  results.findings.push_back(resolution_finding(s.shape.elements, s.rule.options.threshold));
}

std::string resolution_finding(std::size_t elements, double delta) {
  const double one = 100.0 / static_cast<double>(elements);
  const double needed = delta * static_cast<double>(elements);
  const std::string verdict =
      needed >= 1.0 ? "the data resolve it"
                    : "the data cannot resolve it, and a single saturated sum halves mu";
  return fmt::format(
      "One of {} is {:.2g} %; smaller shares of overflow or underflow cannot be measured. "
      "delta = {:g} % is {:.3g} element{}: {}.",
      counted(elements, "element"), one, 100.0 * delta, needed, needed == 1.0 ? "" : "s", verdict);
}

}  // namespace fp8lab::experiments
