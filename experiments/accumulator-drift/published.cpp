#include "accumulator-drift/published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/repeats.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/counted.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

constexpr struct PublishedSetup {
  Distribution distribution;
  std::int64_t k;
} kPublishedSetups[] = {{Distribution::uniform, 4096},
                        {Distribution::normal, 4096},
                        {Distribution::correlated, 4096},
                        {Distribution::uniform, 16384}};

struct PublishedPoint {
  Distribution distribution = Distribution::uniform;
  std::int64_t k = 0;
  std::int64_t interval = 0;  ///< 0: no promotion
  Comparison error;
  double amax = 0.0;  ///< of the exact outputs
};

/// Each setup without promotion, then with it.
std::vector<PublishedPoint> measure(const Sweep& sweep, std::uint64_t seed) {
  const RunContext& context = sweep.context();
  const std::int64_t side = sweep.settings().published_rows;
  const AccumulatorModel& model = find_instruction_model(kHopper).accumulator;
  std::vector<PublishedPoint> points;
  for (const auto& [d, k] : kPublishedSetups) {
    const QuantizedOperands q =
        quantize_unscaled(make_operands({d, side, side, k, sweep.settings().correlation}, seed),
                          kNvidiaSatfinite, context.backend);
    const std::vector<double> exact = exact_product(q);
    double amax = 0.0;
    for (const double e : exact) amax = std::max(amax, std::abs(e));
    for (const std::int64_t interval : {std::int64_t{0}, kDeepSeekInterval})
      points.push_back(
          {d, k, interval,
           compare(exact, accumulate(q, model, interval, context.threads, context.backend)), amax});
  }
  return points;
}

Table table_of(const Sweep& sweep, const std::vector<PublishedPoint>& points) {
  const std::int64_t side = sweep.settings().published_rows;
  return row_table<PublishedPoint>(
      "published_setups",
      fmt::format("The setups of publications, under {}; operands cast without a scale", kHopper),
      {{"distribution", "", "of the operands", &PublishedPoint::distribution},
       {"k", "1", "length of each dot product", &PublishedPoint::k},
       {"promotion_interval", "1", "terms between promotions; 0 for none",
        &PublishedPoint::interval},
       {"outputs", "1", "dot products measured",
        [=](const PublishedPoint&) { return side * side; }},
       {"relative_l2", "1", "|d - exact|_2 / |exact|_2",
        [](const PublishedPoint& p) { return p.error.relative_l2; }},
       {"bias", "1", "sum sign(exact)(d - exact) / sum |exact|; negative: toward zero",
        [](const PublishedPoint& p) { return p.error.mean_signed_relative; }},
       {"max_relative", "1", "largest |d - exact| / |exact|",
        [](const PublishedPoint& p) { return p.error.max_relative; }},
       {"max_absolute_over_amax", "1", "largest |d - exact| / largest |exact|",
        [](const PublishedPoint& p) { return p.error.max_absolute / p.amax; }},
       {"cosine_distance", "1", "1 - cosine similarity of the outputs and exact ones",
        [](const PublishedPoint& p) { return 1.0 - p.error.cosine; }}},
      points);
}

}  // namespace

void add_published_setups(const Sweep& sweep, Results& results) {
  std::vector<std::vector<PublishedPoint>> sets;
  std::vector<Table> tables;
  for (std::int64_t set = 0; set < sweep.settings().fit_repeats; ++set) {
    sets.push_back(measure(sweep, sweep.seed_of(set)));
    tables.push_back(table_of(sweep, sets.back()));
  }
  for (Table& table : join_repeats(tables, {"relative_l2", "bias", "max_relative",
                                            "max_absolute_over_amax", "cosine_distance"}))
    results.tables.push_back(std::move(table));
  for (std::size_t i = 0; i < sets.front().size(); i += 2) {
    std::string figures;
    for (const std::size_t row : {i, i + 1}) {
      const auto each = [&](double Comparison::*figure) {
        return each_repeat(
            sets, [&](const std::vector<PublishedPoint>& set) { return set[row].error.*figure; });
      };
      const std::int64_t interval = sets.front()[row].interval;
      figures += fmt::format(
          "{}relative L2 error {} %, bias {} %, largest relative error {} %",
          interval == 0 ? " without promotion " : fmt::format("; promoted every {} ", interval),
          interval_text(each(&Comparison::relative_l2), 100.0),
          interval_text(each(&Comparison::mean_signed_relative), 100.0),
          log_interval_text(each(&Comparison::max_relative), 100.0));
    }
    const PublishedPoint& p = sets.front()[i];
    results.findings.push_back(fmt::format(
        "{}, K = {}, {} operands without a scale, {}:{} ({}; {}; sets of operands: {}).", kHopper,
        p.k, to_string(p.distribution),
        counted(sweep.settings().published_rows * sweep.settings().published_rows, "output"),
        figures, kIntervalMeaning, kLogIntervalMeaning, sets.size()));
  }
}

}  // namespace fp8lab::experiments
