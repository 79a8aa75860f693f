#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "fp8-allreduce/parts.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

/// The scheme that plots across topologies show for FP8.
constexpr ReduceScaling kShown = ReduceScaling::unified_over_n;

struct Point {
  WireFormat wire = kWireFormats[0];
  Topology topology = Topology::ring;
  ReduceScaling scaling = ReduceScaling::none;
  int ranks = 1;
  Reduced reduced;
};

std::vector<Point> reduction_points(const Setup& s) {
  std::vector<Point> points;
  for (const WireFormat& wire : s.wires)
    for (const Topology topology : s.topologies) {
      const std::vector<ReduceScaling> schemes =
          wire.bytes == 1 ? s.schemes : std::vector<ReduceScaling>{ReduceScaling::none};
      for (const ReduceScaling scaling : schemes)
        for (const int ranks : s.ranks) points.push_back({wire, topology, scaling, ranks, {}});
    }
  return points;
}

std::vector<Point> measure_reductions(const Setup& s) {
  std::vector<Point> points = reduction_points(s);
  std::map<int, ReduceInput> inputs;
  for (const int ranks : s.ranks)
    inputs.try_emplace(ranks, s.context.random("fp8-allreduce"), s.shape, ranks);
  parallel_points(s.context, points.size(), [&](std::size_t i) {
    Point& p = points[i];
    p.reduced = reduce_mean(*s.fabric, inputs.at(p.ranks), p.wire, p.topology, p.scaling,
                            s.context.backend);
  });
  return points;
}

Table reduction_table(const Setup& s, const std::vector<Point>& points) {
  return row_table<Point>(
      "reduction", fmt::format("Mean gradient after an all-reduce ({} elements)", s.shape.elements),
      {{"topology", "", "who adds what to what", &Point::topology},
       {"wire", "", "format that travels; FP8 is rounded at every hop",
        [](const Point& p) { return p.wire.name; }},
       {"scheme", "", "how gradients are scaled into FP8", &Point::scaling},
       {"ranks", "1", "gradients in the sum", &Point::ranks},
       {"relative_l2", "1", "of the mean, against its exact value",
        [](const Point& p) { return p.reduced.loss.relative_l2; }},
       {"sqnr", "dB", "of the mean", [](const Point& p) { return p.reduced.loss.sqnr_db; }},
       {"underflow", "%", "non-zero means that became zero",
        [](const Point& p) { return p.reduced.loss.underflow_percent; }},
       {"saturated", "%", "additions (direct: final casts) that overflowed",
        [](const Point& p) { return p.reduced.saturated_percent; }}},
      points);
}

/// Bits that each rank sends for an element of its gradient, on average.
double bits_per_element(const Setup& s, const Point& p) {
  return 8.0 * static_cast<double>(p.reduced.counts.total.bytes_sent) /
         (static_cast<double>(p.ranks) * static_cast<double>(s.shape.elements));
}

/// The same of the rank that sends most.
double busiest_bits(const Setup& s, const Point& p) {
  return 8.0 * static_cast<double>(p.reduced.counts.busiest_bytes) /
         static_cast<double>(s.shape.elements);
}

Table traffic_table(const Setup& s, const std::vector<Point>& points) {
  std::vector<Point> counted;
  for (const Point& p : points)
    if (p.scaling == ReduceScaling::none || p.scaling == s.schemes.front()) counted.push_back(p);
  return row_table<Point>(
      "traffic", fmt::format("Traffic of an all-reduce of {} elements", s.shape.elements),
      {{"topology", "", "who adds what to what", &Point::topology},
       {"wire", "", "format that travels", [](const Point& p) { return p.wire.name; }},
       {"ranks", "1", "gradients in the sum", &Point::ranks},
       {"mean_bits", "bits", "sent per element, average of the ranks",
        [&](const Point& p) { return bits_per_element(s, p); }},
       {"busiest_bits", "bits", "sent per element by the busiest rank",
        [&](const Point& p) { return busiest_bits(s, p); }},
       {"messages", "1", "of all ranks",
        [](const Point& p) { return p.reduced.counts.total.messages_sent; }},
       {"longest_chain", "1", "sequential roundings of an element",
        [](const Point& p) { return longest_chain(p.topology, p.ranks); }},
       {"scale_bytes", "bytes", "sent by all ranks to agree on a scale",
        [](const Point& p) { return p.reduced.scale_counts.total.bytes_sent; }}},
      counted);
}

/// The points of each repeat.
using Draws = std::vector<std::vector<Point>>;

std::vector<double> each(const Draws& draws, std::size_t point, double Loss::*figure) {
  return each_repeat(draws,
                     [&](const std::vector<Point>& d) { return d[point].reduced.loss.*figure; });
}

bool is_shown(const Setup& s, const Point& p) {
  if (p.wire.bytes > 1) return true;
  const bool has_shown = std::find(s.schemes.begin(), s.schemes.end(), kShown) != s.schemes.end();
  return p.scaling == (has_shown ? kShown : s.schemes.front());
}

/// Lines of the error against ranks, of the points that fit, one a label.
template <typename Fits, typename Label>
Plot error_plot(const Setup& s, const Draws& draws, const std::string& name,
                const std::string& what, const Fits& fits, const Label& label) {
  const std::vector<Point>& points = draws.front();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (is_shown(s, points[i]) && fits(points[i])) chosen.push_back(i);
  return {name,
          fmt::format("Mean gradient after an all-reduce, {} ({} elements, FP8 scaled {})", what,
                      s.shape.elements, to_string(kShown)),
          {"ranks", true, 2},
          {"relative L2 error (%)", true},
          series_by(
              chosen, [&](std::size_t i) { return label(points[i]); },
              [&](std::size_t i) {
                const Spread error = spread_of(each(draws, i, &Loss::relative_l2));
                return std::tuple(static_cast<double>(points[i].ranks), 100.0 * error.mean,
                                  100.0 * error.min, 100.0 * error.max);
              })};
}

/// Every wire on the first topology, then every topology under the first FP8 wire: all pairs in
/// one picture cannot be told apart.
std::vector<Plot> error_plots(const Setup& s, const Draws& draws) {
  const Topology topology = s.topologies.front();
  std::vector<Plot> plots{error_plot(
      s, draws, "error_of_wires", fmt::format("formats on the wire of a {}", to_string(topology)),
      [&](const Point& p) { return p.topology == topology; },
      [](const Point& p) { return short_name(format(p.wire.format)); })};
  const auto narrow =
      std::ranges::find_if(s.wires, [](const WireFormat& wire) { return wire.bytes == 1; });
  if (narrow == s.wires.end() || s.topologies.size() < 2) return plots;
  plots.push_back(error_plot(
      s, draws, "error_of_topologies",
      fmt::format("order of the additions in {}", short_name(format(narrow->format))),
      [&](const Point& p) { return p.wire.format == narrow->format; },
      [](const Point& p) { return std::string(to_string(p.topology)); }));
  return plots;
}

Plot bits_plot(const Setup& s, const Draws& draws) {
  const std::vector<Point>& points = draws.front();
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  Plot plot{"error_against_bits",
            fmt::format("Error against traffic of the busiest rank at {} ranks", most),
            {"bits sent for an element by the busiest rank", true, 2},
            {"relative L2 error (%)", true},
            {}};
  for (const Topology topology : s.topologies) {
    Series series{std::string(to_string(topology)), {}, {}, Series::Style::points};
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point& p = points[i];
      if (p.topology != topology || p.ranks != most || !is_shown(s, p)) continue;
      series.x.push_back(busiest_bits(s, p));
      series.y.push_back(100.0 * spread_of(each(draws, i, &Loss::relative_l2)).mean);
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot scheme_plot(const Setup& s, const Draws& draws) {
  const std::vector<Point>& points = draws.front();
  const Topology topology = s.topologies.front();
  Plot plot{"schemes",
            fmt::format("Scales of an FP8 {} all-reduce ({} elements)", to_string(topology),
                        s.shape.elements),
            {"ranks", true, 2},
            {"SQNR of the mean (dB)", false},
            {}};
  for (const WireFormat& wire : s.wires)
    for (const ReduceScaling scaling : s.schemes) {
      Series series{
          fmt::format("{}, {}", short_name(format(wire.format)), to_string(scaling)), {}, {}};
      for (std::size_t i = 0; i < points.size(); ++i) {
        const Point& p = points[i];
        if (p.wire.format != wire.format || p.scaling != scaling || p.topology != topology)
          continue;
        const Spread sqnr = spread_of(each(draws, i, &Loss::sqnr_db));
        series.x.push_back(p.ranks);
        series.y.push_back(sqnr.mean);
        series.low.push_back(sqnr.min);
        series.high.push_back(sqnr.max);
      }
      if (!series.x.empty()) plot.series.push_back(series);
    }
  return plot;
}

/// The error of each topology at the most ranks, wire by wire.
std::vector<std::string> error_findings(const Setup& s, const Draws& draws) {
  const std::vector<Point>& points = draws.front();
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  std::vector<std::string> findings;
  for (const WireFormat& wire : s.wires) {
    std::string text;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point& p = points[i];
      if (p.wire.format != wire.format || p.ranks != most || !is_shown(s, p)) continue;
      text +=
          fmt::format("{}{} by {} ({:.1f} bits from the busiest rank)", text.empty() ? "" : ", ",
                      log_interval_text(each(draws, i, &Loss::relative_l2)), to_string(p.topology),
                      busiest_bits(s, p));
    }
    findings.push_back(fmt::format(
        "Over {} ranks with {} on the wire the mean has a relative L2 error of {} ({}; draws: {}).",
        most, short_name(format(wire.format)), text, kLogIntervalMeaning, draws.size()));
  }
  return findings;
}

/// Nothing where the first wire has no such scales.
std::optional<std::string> saturation_finding(const Setup& s, const Draws& draws) {
  const std::vector<Point>& points = draws.front();
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  std::string text;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    if (p.wire.bytes > 1 || p.wire.format != s.wires.front().format || p.ranks != most ||
        p.topology != s.topologies.front())
      continue;
    const auto saturated = each_repeat(
        draws, [&](const std::vector<Point>& d) { return d[i].reduced.saturated_percent; });
    text += fmt::format("{}{} {} dB with {} saturated", text.empty() ? "" : ", ",
                        to_string(p.scaling), interval_text(each(draws, i, &Loss::sqnr_db)),
                        share_text(saturated, 1.0, 100.0 * share_resolution(s.shape.elements)));
  }
  if (text.empty()) return std::nullopt;
  return fmt::format("Scales at {} ranks ({}, {}): {} ({}; draws: {}).", most,
                     short_name(format(s.wires.front().format)), to_string(s.topologies.front()),
                     text, kIntervalMeaning, draws.size());
}

}  // namespace

void add_reductions(const std::vector<Setup>& repeats, Results& results) {
  const Setup& s = repeats.front();
  Draws draws;
  std::vector<Table> tables;
  for (const Setup& repeat : repeats) {
    draws.push_back(measure_reductions(repeat));
    tables.push_back(reduction_table(repeat, draws.back()));
  }
  results.tables = join_repeats(tables, {"relative_l2", "sqnr", "underflow", "saturated"});
  results.tables.push_back(traffic_table(s, draws.front()));
  results.plots = error_plots(s, draws);
  results.plots.push_back(bits_plot(s, draws));
  results.plots.push_back(scheme_plot(s, draws));
  results.findings = error_findings(s, draws);
  if (const auto finding = saturation_finding(s, draws)) results.findings.push_back(*finding);
}

}  // namespace fp8lab::experiments
