#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "fp8-allreduce/gather.hpp"
#include "fp8-allreduce/reduce.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<GatherCast, 4> kGatherCasts{GatherCast::after, GatherCast::before,
                                                 GatherCast::before_own, GatherCast::before_lost};
/// The scheme that plots across topologies show for FP8.
constexpr ReduceScaling kShown = ReduceScaling::unified_over_n;

struct Setup {
  Fabric* fabric = nullptr;
  RunContext context;  // with one thread where the fabric allows no more
  GradientShape shape;
  std::vector<int> ranks;
  std::vector<Topology> topologies;
  std::vector<WireFormat> wires;
  std::vector<ReduceScaling> schemes;
};

std::vector<int> rank_counts(const Parameters& p, std::string_view key) {
  std::vector<int> counts;
  for (const std::int64_t ranks : p.integers(key)) {
    require(ranks >= 1 && ranks <= 4096, key, "integers from 1 to 4096", fmt::format("{}", ranks));
    counts.push_back(static_cast<int>(ranks));
  }
  require(!counts.empty(), key, "at least one", "none");
  return counts;
}

Setup read_setup(const RunContext& context) {
  const Parameters& p = context.parameters;
  Setup s;
  s.context = context;
  s.fabric = context.fabric == nullptr ? &in_process_fabric() : context.fabric;
  if (!s.fabric->concurrent()) s.context.threads = 1;
  s.shape = {positive(p, "elements"), p.real("decades"), p.real("noise_to_signal")};
  s.ranks = rank_counts(p, "ranks");
  for (const std::string& name : p.texts("topologies")) s.topologies.push_back(find_topology(name));
  for (const std::string& name : p.texts("wires")) s.wires.push_back(find_wire_format(name));
  for (const std::string& name : p.texts("schemes")) s.schemes.push_back(find_reduce_scaling(name));
  return s;
}

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
  parallel_points(
      s.context, points.size(),
      [&](std::size_t i) {
        Point& p = points[i];
        p.reduced = reduce_mean(*s.fabric, inputs.at(p.ranks), p.wire, p.topology, p.scaling);
      },
      0.0, 0.8);
  return points;
}

Table reduction_table(const Setup& s, const std::vector<Point>& points) {
  Table table("reduction",
              fmt::format("Mean gradient after an all-reduce ({} elements)", s.shape.elements),
              {{"topology", "", "who adds what to what"},
               {"wire", "", "format that travels; FP8 is rounded at every hop"},
               {"scheme", "", "how gradients are scaled into FP8"},
               {"ranks", "1", "gradients in the sum"},
               {"relative_l2", "1", "of the mean, against its exact value"},
               {"sqnr", "dB", "of the mean"},
               {"underflow", "%", "non-zero means that became zero"},
               {"saturated", "%", "additions (direct: final casts) that overflowed"}});
  for (const Point& p : points)
    table.add_row({std::string(to_string(p.topology)), std::string(p.wire.name),
                   std::string(to_string(p.scaling)), std::int64_t{p.ranks},
                   p.reduced.loss.relative_l2, p.reduced.loss.sqnr_db,
                   p.reduced.loss.underflow_percent, p.reduced.saturated_percent});
  return table;
}

/// Bits that each rank sends for an element of its gradient, on average.
double bits_per_element(const Setup& s, const Point& p) {
  return 8.0 * static_cast<double>(p.reduced.counts.total.bytes_sent) /
         (static_cast<double>(p.ranks) * static_cast<double>(s.shape.elements));
}

Table traffic_table(const Setup& s, const std::vector<Point>& points) {
  Table table("traffic", fmt::format("What an all-reduce of {} elements moves", s.shape.elements),
              {{"topology", "", "who adds what to what"},
               {"wire", "", "format that travels"},
               {"ranks", "1", "gradients in the sum"},
               {"mean_bits", "bits", "sent for an element, average of the ranks"},
               {"busiest_bits", "bits", "sent for an element by the busiest rank"},
               {"messages", "1", "of all ranks"},
               {"longest_chain", "1", "roundings one after the other behind an element"},
               {"scale_bytes", "bytes", "sent by all ranks to agree on a scale"}});
  for (const Point& p : points) {
    if (p.scaling != ReduceScaling::none && p.scaling != s.schemes.front()) continue;
    const CollectiveCounts& counts = p.reduced.counts;
    table.add_row(
        {std::string(to_string(p.topology)), std::string(p.wire.name), std::int64_t{p.ranks},
         bits_per_element(s, p),
         8.0 * static_cast<double>(counts.busiest_bytes) / static_cast<double>(s.shape.elements),
         static_cast<std::int64_t>(counts.total.messages_sent),
         std::int64_t{longest_chain(p.topology, p.ranks)},
         static_cast<std::int64_t>(p.reduced.scale_counts.total.bytes_sent)});
  }
  return table;
}

bool is_shown(const Setup& s, const Point& p) {
  if (p.wire.bytes > 1) return true;
  const bool has_shown = std::find(s.schemes.begin(), s.schemes.end(), kShown) != s.schemes.end();
  return p.scaling == (has_shown ? kShown : s.schemes.front());
}

Plot error_plot(const Setup& s, const std::vector<Point>& points) {
  Plot plot{"error_against_ranks",
            fmt::format("Mean gradient after an all-reduce ({} elements, FP8 scaled {})",
                        s.shape.elements, to_string(kShown)),
            {"ranks", true, 2},
            {"relative L2 error", true},
            {}};
  std::map<std::string, Series> lines;
  for (const Point& p : points) {
    if (!is_shown(s, p)) continue;
    Series& line =
        lines[fmt::format("{}, {}", short_name(format(p.wire.format)), to_string(p.topology))];
    line.x.push_back(p.ranks);
    line.y.push_back(p.reduced.loss.relative_l2);
  }
  for (auto& [label, line] : lines) {
    line.label = label;
    plot.series.push_back(line);
  }
  return plot;
}

Plot bits_plot(const Setup& s, const std::vector<Point>& points) {
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  Plot plot{"error_against_bits",
            fmt::format("Error against traffic of the busiest rank at {} ranks", most),
            {"bits sent for an element by the busiest rank", true, 2},
            {"relative L2 error", true},
            {}};
  for (const Topology topology : s.topologies) {
    Series series{std::string(to_string(topology)), {}, {}, Series::Style::points};
    for (const Point& p : points) {
      if (p.topology != topology || p.ranks != most || !is_shown(s, p)) continue;
      series.x.push_back(8.0 * static_cast<double>(p.reduced.counts.busiest_bytes) /
                         static_cast<double>(s.shape.elements));
      series.y.push_back(p.reduced.loss.relative_l2);
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot scheme_plot(const Setup& s, const std::vector<Point>& points) {
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
      for (const Point& p : points) {
        if (p.wire.format != wire.format || p.scaling != scaling || p.topology != topology)
          continue;
        series.x.push_back(p.ranks);
        series.y.push_back(p.reduced.loss.sqnr_db);
      }
      if (!series.x.empty()) plot.series.push_back(series);
    }
  return plot;
}

struct GatherPoint {
  int ranks = 1;
  GatherCast cast = GatherCast::after;
  Gathered gathered;
  double differing_percent = 0.0;  ///< codes unlike those of `after`
};

std::vector<GatherPoint> measure_gathers(const Setup& s) {
  const Parameters& p = s.context.parameters;
  const std::size_t elements = positive(p, "gather_elements");
  std::vector<GatherPoint> points;
  for (const int ranks : rank_counts(p, "gather_ranks")) {
    const GatherInput input(s.context.random("fp8-allreduce/weights"), elements, ranks,
                            p.real("shard_octaves"));
    Message after;
    for (const GatherCast cast : kGatherCasts) {
      GatherPoint point{ranks, cast,
                        gather_weights(*s.fabric, input, find_wire_format("e4m3fn"), cast)};
      const Message& codes = point.gathered.codes;
      if (cast == GatherCast::after) after = codes;
      std::size_t differing = 0;
      for (std::size_t i = 0; i < codes.size(); ++i)
        if (codes[i] != after[i]) ++differing;
      point.differing_percent =
          100.0 * static_cast<double>(differing) / static_cast<double>(elements);
      points.push_back(std::move(point));
    }
  }
  s.context.progress(0.9);
  return points;
}

Table gather_table(const Setup& s, const std::vector<GatherPoint>& points) {
  const std::size_t elements = positive(s.context.parameters, "gather_elements");
  Table table("gather", fmt::format("All-gather of {} weights in shards, E4M3 (ring)", elements),
              {{"cast", "", "before or after the gather, and with whose scale"},
               {"ranks", "1", "shards"},
               {"relative_l2", "1", "of the dequantized weights, against FP32"},
               {"sqnr", "dB", "of the dequantized weights"},
               {"differing", "%", "codes unlike those of the cast after the gather"},
               {"mean_bits", "bits", "sent for an element, average of the ranks"}});
  for (const GatherPoint& p : points)
    table.add_row({std::string(to_string(p.cast)), std::int64_t{p.ranks},
                   p.gathered.loss.relative_l2, p.gathered.loss.sqnr_db, p.differing_percent,
                   8.0 * static_cast<double>(p.gathered.bytes_sent) /
                       (static_cast<double>(p.ranks) * static_cast<double>(elements))});
  return table;
}

struct DesyncPoint {
  std::string collective;
  std::string case_name;
  int ranks = 1;
  double octaves = 0.0;  ///< NaN where every rank is off by its own
  Loss loss;
};

std::vector<DesyncPoint> measure_desync(const Setup& s) {
  const Parameters& p = s.context.parameters;
  const WireFormat& wire = find_wire_format("e4m3fn");
  std::vector<DesyncPoint> points;
  for (const int ranks : rank_counts(p, "desync_ranks")) {
    const ReduceInput gradients(s.context.random("fp8-allreduce"), s.shape, ranks);
    const GatherInput weights(s.context.random("fp8-allreduce/weights"),
                              positive(p, "gather_elements"), ranks, p.real("shard_octaves"));
    for (const double octaves : p.reals("desync_octaves")) {
      points.push_back({"all-reduce", "one rank off", ranks, octaves,
                        reduce_with_one_off(*s.fabric, gradients, wire, Topology::ring, octaves)});
      points.push_back({"all-gather", "one rank off", ranks, octaves,
                        gather_with_one_off(*s.fabric, weights, wire, octaves)});
    }
    points.push_back({"all-reduce", "no amax reduction", ranks, NAN,
                      reduce_without_agreement(*s.fabric, gradients, wire, Topology::ring)});
    points.push_back({"all-gather", "no amax reduction", ranks, NAN,
                      gather_weights(*s.fabric, weights, wire, GatherCast::before_lost).loss});
  }
  s.context.progress(1.0);
  return points;
}

Table desync_table(const std::vector<DesyncPoint>& points) {
  Table table("desync", "Ranks whose scale is not the one that the others assume (E4M3, ring)",
              {{"collective", "",
                "all-reduce of gradients, scaled unified-over-n; all-gather of "
                "weights, cast before with the reduced amax"},
               {"case", "", "one rank off by so many octaves, or each with its own amax"},
               {"ranks", "1", ""},
               {"octaves", "log2", "by which one rank's scale is too large"},
               {"relative_l2", "1", "of the result, against its exact value"},
               {"sqnr", "dB", "of the result"}});
  for (const DesyncPoint& p : points)
    table.add_row({p.collective, p.case_name, std::int64_t{p.ranks}, p.octaves, p.loss.relative_l2,
                   p.loss.sqnr_db});
  return table;
}

Plot desync_plot(const std::vector<DesyncPoint>& points) {
  Plot plot{"desync",
            "One rank's scale is off and nobody knows (E4M3, ring)",
            {"octaves by which it is too large", false},
            {"relative L2 error", true},
            {}};
  std::map<std::pair<std::string, int>, Series> lines;
  for (const DesyncPoint& p : points) {
    if (std::isnan(p.octaves)) continue;
    Series& line = lines[{p.collective, p.ranks}];
    line.label = fmt::format("{}, {} ranks", p.collective, p.ranks);
    line.x.push_back(p.octaves);
    line.y.push_back(p.loss.relative_l2);
  }
  for (const auto& [key, line] : lines) plot.series.push_back(line);
  return plot;
}

/// The error of each topology at the most ranks, wire by wire.
std::vector<std::string> error_findings(const Setup& s, const std::vector<Point>& points) {
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  std::vector<std::string> findings;
  for (const WireFormat& wire : s.wires) {
    std::string text;
    for (const Point& p : points) {
      if (p.wire.format != wire.format || p.ranks != most || !is_shown(s, p)) continue;
      text +=
          fmt::format("{}{} {:.3g} ({:.1f} bits from the busiest rank)", text.empty() ? "" : ", ",
                      to_string(p.topology), p.reduced.loss.relative_l2,
                      8.0 * static_cast<double>(p.reduced.counts.busiest_bytes) /
                          static_cast<double>(s.shape.elements));
    }
    findings.push_back(fmt::format("{} ranks, {} on the wire: relative L2 error of the mean {}.",
                                   most, short_name(format(wire.format)), text));
  }
  return findings;
}

std::string saturation_finding(const Setup& s, const std::vector<Point>& points) {
  const int most = *std::max_element(s.ranks.begin(), s.ranks.end());
  std::string text;
  for (const Point& p : points)
    if (p.wire.bytes == 1 && p.wire.format == s.wires.front().format && p.ranks == most &&
        p.topology == s.topologies.front())
      text +=
          fmt::format("{}{} {:.1f} dB with {:.3g} % saturated", text.empty() ? "" : ", ",
                      to_string(p.scaling), p.reduced.loss.sqnr_db, p.reduced.saturated_percent);
  return fmt::format("Scales at {} ranks ({}, {}): {}.", most,
                     short_name(format(s.wires.front().format)), to_string(s.topologies.front()),
                     text);
}

std::string gather_finding(const std::vector<GatherPoint>& points) {
  const int most = points.back().ranks;
  std::string text;
  for (const GatherPoint& p : points)
    if (p.ranks == most)
      text += fmt::format("{}{}: {:.3g}, {:.3g} % of codes differ", text.empty() ? "" : "; ",
                          to_string(p.cast), p.gathered.loss.relative_l2, p.differing_percent);
  return fmt::format("All-gather over {} ranks, relative L2 error by where the cast stands: {}.",
                     most, text);
}

std::vector<std::string> desync_findings(const std::vector<DesyncPoint>& points) {
  std::vector<std::string> findings;
  const int most = points.back().ranks;
  for (const char* collective : {"all-reduce", "all-gather"}) {
    std::string text;
    for (const DesyncPoint& p : points) {
      if (p.collective != collective || p.ranks != most) continue;
      text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ",
                          std::isnan(p.octaves) ? "no amax reduction at all"
                                                : fmt::format("{:+} octaves", p.octaves),
                          p.loss.relative_l2);
    }
    findings.push_back(fmt::format("{} over {} ranks with one scale off, relative L2 error: {}.",
                                   collective, most, text));
  }
  return findings;
}

}  // namespace

Results fp8_allreduce(const RunContext& context) {
  const Setup s = read_setup(context);
  const std::vector<Point> points = measure_reductions(s);
  const std::vector<GatherPoint> gathers = measure_gathers(s);
  const std::vector<DesyncPoint> desync = measure_desync(s);
  Results results;
  results.tables = {reduction_table(s, points), traffic_table(s, points), gather_table(s, gathers),
                    desync_table(desync)};
  results.plots = {error_plot(s, points), bits_plot(s, points), scheme_plot(s, points),
                   desync_plot(desync)};
  results.findings = error_findings(s, points);
  results.findings.push_back(saturation_finding(s, points));
  results.findings.push_back(gather_finding(gathers));
  for (std::string& finding : desync_findings(desync)) results.findings.push_back(finding);
  return results;
}

}  // namespace fp8lab::experiments
