#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "common/repeats.hpp"
#include "fp8-allreduce/gather.hpp"
#include "fp8-allreduce/parts.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

struct DesyncPoint {
  std::string collective;
  std::string case_name;
  int ranks = 1;
  double octaves = 0.0;  ///< NaN where every rank is off by its own
  Loss loss;
};

std::vector<DesyncPoint> measure_desync(const Setup& s) {
  const WireFormat& wire = find_wire_format("e4m3fn");
  std::vector<DesyncPoint> points;
  for (const int ranks : s.desync_ranks) {
    const ReduceInput gradients(s.context.random("fp8-allreduce"), s.shape, ranks);
    const GatherInput weights(s.context.random("fp8-allreduce/weights"), s.gather_elements, ranks,
                              s.shard_octaves);
    for (const double octaves : s.desync_octaves) {
      points.push_back({"all-reduce", "one rank off", ranks, octaves,
                        reduce_with_one_off(*s.fabric, gradients, wire, Topology::ring, octaves,
                                            s.context.backend)});
      points.push_back({"all-gather", "one rank off", ranks, octaves,
                        gather_with_one_off(*s.fabric, weights, wire, octaves, s.context.backend)});
    }
    points.push_back(
        {"all-reduce", "no amax reduction", ranks, NAN,
         reduce_without_agreement(*s.fabric, gradients, wire, Topology::ring, s.context.backend)});
    points.push_back(
        {"all-gather", "no amax reduction", ranks, NAN,
         gather_weights(*s.fabric, weights, wire, GatherCast::before_lost, s.context.backend)
             .loss});
  }
  s.context.progress(1.0);
  return points;
}

Table desync_table(const std::vector<DesyncPoint>& points) {
  return row_table<DesyncPoint>(
      "desync", "Ranks with a scale that the other ranks do not assume (E4M3, ring)",
      {{"collective", "",
        "all-reduce of gradients, scaled unified-over-n; all-gather of "
        "weights, cast before with the reduced amax",
        &DesyncPoint::collective},
       {"case", "",
        "one rank's scale is wrong by this many octaves, or each rank uses its own amax",
        &DesyncPoint::case_name},
       {"ranks", "1", "", &DesyncPoint::ranks},
       {"octaves", "log2", "by which one rank's scale is too large", &DesyncPoint::octaves},
       {"relative_l2", "1", "of the result, against its exact value",
        [](const DesyncPoint& p) { return p.loss.relative_l2; }},
       {"sqnr", "dB", "of the result", [](const DesyncPoint& p) { return p.loss.sqnr_db; }}},
      points);
}

using DesyncDraws = std::vector<std::vector<DesyncPoint>>;

std::vector<double> errors(const DesyncDraws& draws, std::size_t point) {
  return each_repeat(draws,
                     [&](const std::vector<DesyncPoint>& d) { return d[point].loss.relative_l2; });
}

Plot desync_plot(const DesyncDraws& draws) {
  Plot plot{"desync",
            "One rank's scale is wrong without the others knowing (E4M3, ring)",
            {"octaves by which it is too large", false},
            {"relative L2 error (%)", true},
            {}};
  std::map<std::pair<std::string, int>, Series> lines;
  for (std::size_t i = 0; i < draws.front().size(); ++i) {
    const DesyncPoint& p = draws.front()[i];
    if (std::isnan(p.octaves)) continue;
    const Spread spread = spread_of(errors(draws, i));
    Series& line = lines[{p.collective, p.ranks}];
    line.label = fmt::format("{}, {} ranks", p.collective, p.ranks);
    line.x.push_back(p.octaves);
    line.y.push_back(100.0 * spread.mean);
    line.low.push_back(100.0 * spread.min);
    line.high.push_back(100.0 * spread.max);
  }
  for (const auto& [key, line] : lines) plot.series.push_back(line);
  return plot;
}

std::vector<std::string> desync_findings(const DesyncDraws& draws) {
  const std::vector<DesyncPoint>& points = draws.front();
  std::vector<std::string> findings;
  const int most = points.back().ranks;
  for (const char* collective : {"all-reduce", "all-gather"}) {
    std::string text;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const DesyncPoint& p = points[i];
      if (p.collective != collective || p.ranks != most) continue;
      text += fmt::format(
          "{}{} {}", text.empty() ? "" : ", ",
          std::isnan(p.octaves) ? "no amax reduction at all" : fmt::format("{} octaves", p.octaves),
          log_interval_text(errors(draws, i)));
    }
    findings.push_back(
        fmt::format("{} over {} ranks with one wrong scale, relative L2 error: {} ({}; "
                    "draws: {}).",
                    collective, most, text, kLogIntervalMeaning, draws.size()));
  }
  return findings;
}

}  // namespace

void add_desync(const std::vector<Setup>& repeats, Results& results) {
  DesyncDraws draws;
  std::vector<Table> tables;
  for (const Setup& s : repeats) {
    draws.push_back(measure_desync(s));
    tables.push_back(desync_table(draws.back()));
  }
  for (Table& table : join_repeats(tables, {"relative_l2", "sqnr"}))
    results.tables.push_back(std::move(table));
  results.plots.push_back(desync_plot(draws));
  for (std::string& finding : desync_findings(draws)) results.findings.push_back(finding);
}

}  // namespace fp8lab::experiments
