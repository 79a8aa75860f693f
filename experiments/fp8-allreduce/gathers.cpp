#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "common/repeats.hpp"
#include "fp8-allreduce/gather.hpp"
#include "fp8-allreduce/parts.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<GatherCast, 4> kGatherCasts{GatherCast::after, GatherCast::before,
                                                 GatherCast::before_own, GatherCast::before_lost};
struct GatherPoint {
  int ranks = 1;
  GatherCast cast = GatherCast::after;
  Gathered gathered;
  double differing_percent = 0.0;  ///< codes unlike those of `after`
};

std::vector<GatherPoint> measure_gathers(const Setup& s) {
  const std::size_t elements = s.gather_elements;
  std::vector<GatherPoint> points;
  for (const int ranks : s.gather_ranks) {
    const GatherInput input(s.context.random("fp8-allreduce/weights"), elements, ranks,
                            s.shard_octaves);
    Message after;
    for (const GatherCast cast : kGatherCasts) {
      GatherPoint point{
          ranks, cast,
          gather_weights(*s.fabric, input, find_wire_format("e4m3fn"), cast, s.context.backend)};
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
  s.context.progress(1.0);
  return points;
}

Table gather_table(const Setup& s, const std::vector<GatherPoint>& points) {
  const auto elements = static_cast<double>(s.gather_elements);
  return row_table<GatherPoint>(
      "gather", fmt::format("All-gather of {} weights in shards, E4M3 (ring)", s.gather_elements),
      {{"cast", "", "cast before or after the gather, and the scale used", &GatherPoint::cast},
       {"ranks", "1", "shards", &GatherPoint::ranks},
       {"relative_l2", "1", "of the dequantized weights, against FP32",
        [](const GatherPoint& p) { return p.gathered.loss.relative_l2; }},
       {"sqnr", "dB", "of the dequantized weights",
        [](const GatherPoint& p) { return p.gathered.loss.sqnr_db; }},
       {"differing", "%", "codes that differ from those of the cast after the gather",
        &GatherPoint::differing_percent},
       {"mean_bits", "bits", "sent per element, average of the ranks",
        [=](const GatherPoint& p) {
          return 8.0 * static_cast<double>(p.gathered.bytes_sent) /
                 (static_cast<double>(p.ranks) * elements);
        }}},
      points);
}

std::string gather_finding(const std::vector<std::vector<GatherPoint>>& draws) {
  const std::vector<GatherPoint>& points = draws.front();
  const int most = points.back().ranks;
  // Codes differ shard by shard, so that equal draws leave whole shards open.
  const double resolution = 100.0 * share_resolution(static_cast<std::size_t>(most));
  std::string text;
  using Points = std::vector<GatherPoint>;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].ranks != most) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", to_string(points[i].cast),
                        log_interval_text(each_repeat(draws, [&](const Points& d) {
                          return d[i].gathered.loss.relative_l2;
                        })));
    if (points[i].cast == GatherCast::after) continue;  // the others' codes are compared with these
    text += fmt::format(
        ", {} of codes differ",
        share_text(each_repeat(draws, [&](const Points& d) { return d[i].differing_percent; }), 1.0,
                   resolution));
  }
  return fmt::format(
      "All-gather over {} ranks, relative L2 error by the place of the cast: {} ({}; {}; draws: "
      "{}).",
      most, text, kIntervalMeaning, kLogIntervalMeaning, draws.size());
}

}  // namespace

void add_gathers(const std::vector<Setup>& repeats, Results& results) {
  std::vector<std::vector<GatherPoint>> draws;
  std::vector<Table> tables;
  for (const Setup& s : repeats) {
    draws.push_back(measure_gathers(s));
    tables.push_back(gather_table(s, draws.back()));
  }
  for (Table& table : join_repeats(tables, {"relative_l2", "sqnr", "differing"}))
    results.tables.push_back(std::move(table));
  results.findings.push_back(gather_finding(draws));
}

}  // namespace fp8lab::experiments
