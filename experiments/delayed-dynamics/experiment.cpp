#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/tensors.hpp"
#include "common/trace_file.hpp"
#include "delayed-dynamics/dynamics.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

struct Trace {
  std::string name;
  std::vector<float> amaxes;
};

struct Setup {
  const Format* format = nullptr;
  std::vector<Trace> traces;
  std::vector<Contender> contenders;
  std::vector<float> shape;  ///< largest magnitude 1
};

struct Settings {
  std::vector<std::string> traces;
  std::string file;
  TraceShape shape;
  std::vector<std::int64_t> histories;
  std::vector<double> margins;
  std::vector<AmaxAlgorithm> algorithms;
  const Format* format = nullptr;
  std::size_t elements = 0;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("traces", &Settings::traces),
                      field("file", &Settings::file),
                      group(&Settings::shape, field("steps", &TraceShape::steps),
                            field("noise_octaves", &TraceShape::noise_octaves),
                            field("drift_octaves", &TraceShape::drift_octaves),
                            field("jump", &TraceShape::jump), field("period", &TraceShape::period)),
                      field("histories", &Settings::histories),
                      field("margins", &Settings::margins),
                      field("algorithms", &Settings::algorithms, find_amax_algorithm),
                      field("format", &Settings::format, find_format),
                      field("elements", &Settings::elements),
                      field("repeats", &Settings::repeats)};
  }
};

std::vector<Contender> make_contenders(const Settings& p) {
  std::vector<Contender> contenders{{.current = true, .delayed = {}}};
  for (const AmaxAlgorithm algorithm : p.algorithms)
    for (const double margin : p.margins)
      for (const std::int64_t history : p.histories) {
        const DelayedOptions options{history, margin, algorithm, ZeroAmax::keep_history};
        const bool same = algorithm == AmaxAlgorithm::most_recent && history != p.histories.front();
        // The length of the history means nothing to most_recent.
        if (!same) contenders.push_back({.current = false, .delayed = options});
      }
  return contenders;
}

Setup draw_setup(const RunContext& context, const Settings& p) {
  Setup s;
  s.format = p.format;
  s.contenders = make_contenders(p);
  if (!p.file.empty())
    s.traces.push_back({"file", read_trace(p.file)});
  else
    for (const std::string& name : p.traces)
      s.traces.push_back(
          {name, make_trace(context.random("delayed-dynamics/" + name), name, p.shape)});
  s.shape = normal(context.random("delayed-dynamics/tensor"), p.elements, 1.0);
  normalize_amax(s.shape);
  return s;
}

using Losses = std::vector<std::vector<StepLoss>>;

/// The traces and the tensor of one repeat, and what each recipe loses on them.
struct Draw {
  Setup setup;
  Losses losses;
};

Draw measure(const RunContext& context, const Settings& settings) {
  Draw d{draw_setup(context, settings), {}};
  const Setup& s = d.setup;
  d.losses.resize(s.traces.size() * s.contenders.size());
  parallel_points(context, d.losses.size(), [&](std::size_t i) {
    d.losses[i] = run_trace(s.contenders[i % s.contenders.size()], *s.format,
                            s.traces[i / s.contenders.size()].amaxes, s.shape, context.backend);
  });
  return d;
}

/// Means over the run; the first step, which every recipe takes with scale 1, is left out.
struct Summary {
  double overflow = 0.0;
  double worst_overflow = 0.0;
  double underflow = 0.0;
  double wasted = 0.0;
  double overflowing_steps = 0.0;
};

Summary summarize(const std::vector<StepLoss>& losses) {
  Summary s;
  const double weight = 1.0 / static_cast<double>(losses.size() - 1);
  for (std::size_t i = 1; i < losses.size(); ++i) {
    s.overflow += weight * losses[i].overflow_percent;
    s.worst_overflow = std::max(s.worst_overflow, losses[i].overflow_percent);
    s.underflow += weight * losses[i].underflow_percent;
    s.wasted += weight * losses[i].wasted_octaves;
    if (losses[i].overflow_percent > 0.0) s.overflowing_steps += 100.0 * weight;
  }
  return s;
}

/// A figure of one recipe on one trace, in each repeat.
std::vector<double> each(const std::vector<Draw>& draws, std::size_t trace, std::size_t contender,
                         double Summary::*figure) {
  return each_repeat(draws, [&](const Draw& d) {
    return summarize(d.losses[trace * d.setup.contenders.size() + contender]).*figure;
  });
}

Table make_table(const Draw& draw) {
  const auto& [s, losses] = draw;
  Table table("dynamics",
              fmt::format("Errors of each recipe over a trace ({}, {} elements)",
                          short_name(*s.format), s.shape.size()),
              {{"trace", "", "how the amax moves"},
               {"recipe", "", "current, or delayed: algorithm, history, margin"},
               {"overflow", "%", "elements that round above max finite, mean over steps"},
               {"worst_overflow", "%", "the same, worst step"},
               {"overflowing_steps", "%", "steps with at least one such element"},
               {"underflow", "%", "non-zero elements that became zero, mean over steps"},
               {"wasted", "octaves", "headroom between the scaled amax and max finite, mean"}});
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const Summary sum = summarize(losses[i]);
    table.add_row({s.traces[i / s.contenders.size()].name,
                   s.contenders[i % s.contenders.size()].name(), sum.overflow, sum.worst_overflow,
                   sum.overflowing_steps, sum.underflow, sum.wasted});
  }
  return table;
}

/// At most `kPoints` points: of each run of steps the one furthest from zero,
/// so that a spike of one step is not lost.
Series thin(const std::vector<StepLoss>& losses, double StepLoss::*field, const std::string& label,
            Series::Style style) {
  constexpr std::size_t kPoints = 500;
  Series series{label, {}, {}, style};
  const std::size_t stride = std::max<std::size_t>(1, losses.size() / kPoints);
  for (std::size_t begin = 1; begin < losses.size(); begin += stride) {
    std::size_t at = begin;
    for (std::size_t i = begin; i < std::min(begin + stride, losses.size()); ++i)
      if (std::abs(losses[i].*field) > std::abs(losses[at].*field)) at = i;
    series.x.push_back(static_cast<double>(at));
    series.y.push_back(losses[at].*field);
  }
  return series;
}

Plot trace_plot(const Setup& s, const Losses& losses, std::size_t trace) {
  Plot plot{"wasted_" + s.traces[trace].name,
            fmt::format("Headroom above the amax (below 0 the tensor overflows), trace {}, {}",
                        s.traces[trace].name, short_name(*s.format)),
            {"step", false},
            {"octaves between scaled amax and max finite", false},
            {}};
  for (std::size_t c = 0; c < s.contenders.size(); ++c) {
    // A margin only shifts a line, and most_recent draws that of a history of 1.
    const DelayedOptions& delayed = s.contenders[c].delayed;
    if (delayed.margin != 0.0 || delayed.algorithm == AmaxAlgorithm::most_recent) continue;
    plot.series.push_back(thin(
        losses[trace * s.contenders.size() + c], &StepLoss::wasted_octaves, s.contenders[c].name(),
        s.contenders[c].current ? Series::Style::dashed : Series::Style::lines));
  }
  return plot;
}

HeatMap make_map(const std::vector<Draw>& draws, const std::string& name, const std::string& title,
                 const std::string& label, double Summary::*field) {
  const Setup& s = draws.front().setup;
  HeatMap map{name, title, "trace", "recipe", label, {}, {}, {}, false};
  for (const Trace& trace : s.traces) map.columns.push_back(trace.name);
  for (std::size_t c = s.contenders.size(); c-- > 0;) {
    map.rows.push_back(s.contenders[c].name());
    for (std::size_t t = 0; t < s.traces.size(); ++t)
      map.values.push_back(spread_of(each(draws, t, c, field)).mean);
  }
  return map;
}

void add_findings(const std::vector<Draw>& draws, Results& results) {
  const Setup& s = draws.front().setup;
  for (std::size_t t = 0; t < s.traces.size(); ++t) {
    std::string figures;
    std::vector<double> worst(draws.size());
    std::vector<double> wasted(draws.size());
    const auto raise = [](std::vector<double>& most, const std::vector<double>& values) {
      for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], values[i]);
    };
    for (std::size_t c = 0; c < s.contenders.size(); ++c) {
      if (s.contenders[c].delayed.margin != 0.0) continue;
      figures += fmt::format("{} {} with {}", figures.empty() ? "" : ",",
                             share_text(each(draws, t, c, &Summary::overflowing_steps), 1.0,
                                        100.0 * share_resolution(s.traces[t].amaxes.size())),
                             s.contenders[c].name());
      raise(worst, each(draws, t, c, &Summary::worst_overflow));
      raise(wasted, each(draws, t, c, &Summary::wasted));
    }
    results.findings.push_back(fmt::format(
        "The {} trace overflows in these shares of its steps:{} ({}, {} steps, margin 0; {}; "
        "draws: {}).",
        s.traces[t].name, figures, short_name(*s.format), s.traces[t].amaxes.size(),
        kIntervalMeaning, draws.size()));
    results.findings.push_back(fmt::format(
        "In the worst step of the {} trace {} of the elements overflow. The scale that wastes most "
        "leaves {} octaves unused on average ({}, margin 0; {}; {}; draws: {}).",
        s.traces[t].name, share_text(worst, 1.0), log_interval_text(wasted), short_name(*s.format),
        kIntervalMeaning, kLogIntervalMeaning, draws.size()));
  }
}

}  // namespace

Results delayed_dynamics(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  const auto draws = measure_repeats(context, settings.repeats,
                                     [&](const RunContext& one) { return measure(one, settings); });
  const Draw& first = draws.front();
  std::vector<Table> tables;
  for (const Draw& draw : draws) tables.push_back(make_table(draw));
  Results results;
  results.tables = join_repeats(
      tables, {"overflow", "worst_overflow", "overflowing_steps", "underflow", "wasted"});
  results.heat_maps = {make_map(draws, "overflowing_steps", "Steps in which elements overflow",
                                "steps (%)", &Summary::overflowing_steps),
                       make_map(draws, "wasted", "Headroom that the scale leaves unused, mean",
                                "octaves", &Summary::wasted)};
  for (std::size_t t = 0; t < first.setup.traces.size(); ++t)
    results.plots.push_back(trace_plot(first.setup, first.losses, t));
  add_findings(draws, results);
  return results;
}

}  // namespace fp8lab::experiments
