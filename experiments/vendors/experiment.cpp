#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/counted.hpp"
#include "vendors/study.hpp"

namespace fp8lab::experiments {
namespace {

/// A figure of a chip, and how tables and plots name it.
struct Figure {
  const char* name;
  const char* help;
  double (*of)(const ChipErrors&);
};
constexpr Figure kFigures[] = {
    {"total", "|d - r|_2 / |r|_2, r: FP64 product of the unquantized tensors",
     [](const ChipErrors& e) { return e.total; }},
    {"format_part", "the same of exact sums of the chip's codes",
     [](const ChipErrors& e) { return e.format; }},
    {"accumulator_part", "|d - exact|_2 / |r|_2, exact: the exact sums of the same codes",
     [](const ChipErrors& e) { return e.accumulator; }},
    {"accumulator_share", "accumulator_part^2 / (format_part^2 + accumulator_part^2)",
     [](const ChipErrors& e) { return e.accumulator_share(); }},
    {"bias", "sum sign(r)(d - r) / sum |r|; negative: toward zero",
     [](const ChipErrors& e) { return e.bias; }},
    {"accumulator_bias", "sum sign(exact)(d - exact) / sum |exact|",
     [](const ChipErrors& e) { return e.accumulator_bias; }},
};

constexpr const Figure& kTotal = kFigures[0];
constexpr const Figure& kFormat = kFigures[1];
constexpr const Figure& kAccumulator = kFigures[2];

struct PairFigure {
  const char* name;
  const char* help;
  double ChipDifference::*of;
};
constexpr PairFigure kPairFigures[] = {
    {"differ", "share of outputs whose BF16 bits differ", &ChipDifference::differ},
    {"differ_format", "the same if both sum their codes exactly", &ChipDifference::differ_format},
    {"largest", "largest difference of BF16 outputs over the root mean square of r",
     &ChipDifference::largest},
};

std::vector<Column> chip_columns() {
  return {{"distribution", "", "of the tensors"},
          {"k", "1", "length of each dot product"},
          {"chip", "", "instruction; /N: promoted every N terms; to N: the amax becomes N"},
          {"format", "", "of its operands"}};
}

std::vector<Cell> chip_cells(const VendorsPoint& point, const Chip& chip) {
  return {point.distribution, static_cast<std::int64_t>(point.k), chip.label, format_text(chip)};
}

std::vector<Column> pair_columns() {
  return {{"distribution", "", "of the tensors"},
          {"k", "1", "length of each dot product"},
          {"first", "", "chip"},
          {"second", "", "chip"}};
}

std::vector<Cell> pair_cells(const VendorsStudy& s, const VendorsPoint& point, std::size_t x,
                             std::size_t y) {
  return {point.distribution, static_cast<std::int64_t>(point.k), s.chips[x].label,
          s.chips[y].label};
}

/// Mean, least and most of a figure.
void add_spread_columns(std::vector<Column>& columns, const char* name, const char* help) {
  const std::string column(name);
  columns.push_back({column, "1", fmt::format("mean of the repeats: {}", help)});
  columns.push_back({column + "_min", "1", "least of the repeats"});
  columns.push_back({column + "_max", "1", "most of the repeats"});
}

void add_spread(std::vector<Cell>& cells, std::span<const double> values) {
  const Spread spread = spread_of(values);
  cells.insert(cells.end(), {spread.mean, spread.min, spread.max});
}

std::string setup_text(const VendorsStudy& s) {
  return fmt::format("{}x{} outputs, one scale per {}, {}", s.rows, s.columns, s.scaling,
                     counted(s.repeats, "repeat"));
}

Table error_table(const VendorsStudy& s) {
  std::vector<Column> columns = chip_columns();
  for (const Figure& figure : kFigures) add_spread_columns(columns, figure.name, figure.help);
  Table table("errors", "Errors of chips on the same tensors: " + setup_text(s), columns);
  for (const VendorsPoint& point : s.points)
    for (std::size_t c = 0; c < s.chips.size(); ++c) {
      std::vector<Cell> cells = chip_cells(point, s.chips[c]);
      for (const Figure& figure : kFigures) add_spread(cells, s.of_chip(point, c, figure.of));
      table.add_row(std::move(cells));
    }
  return table;
}

Table pair_table(const VendorsStudy& s) {
  std::vector<Column> columns = pair_columns();
  for (const PairFigure& figure : kPairFigures)
    add_spread_columns(columns, figure.name, figure.help);
  Table table("pairs", "Where two chips differ on the same tensors: " + setup_text(s), columns);
  for (const VendorsPoint& point : s.points)
    for (std::size_t x = 0; x < s.chips.size(); ++x)
      for (std::size_t y = x + 1; y < s.chips.size(); ++y) {
        std::vector<Cell> cells = pair_cells(s, point, x, y);
        for (const PairFigure& figure : kPairFigures)
          add_spread(cells, s.of_pair(point, x, y, figure.of));
        table.add_row(std::move(cells));
      }
  return table;
}

Table error_repeats(const VendorsStudy& s) {
  std::vector<Column> columns = chip_columns();
  columns.push_back({"repeat", "1", "set of tensors"});
  for (const Figure& figure : kFigures) columns.push_back({figure.name, "1", figure.help});
  Table table("error_repeats", "Errors of chips, each repeat", columns);
  for (const VendorsPoint& point : s.points)
    for (std::size_t c = 0; c < s.chips.size(); ++c)
      for (std::size_t repeat = 0; repeat < s.repeats; ++repeat) {
        std::vector<Cell> cells = chip_cells(point, s.chips[c]);
        cells.emplace_back(static_cast<std::int64_t>(repeat));
        for (const Figure& figure : kFigures)
          cells.emplace_back(figure.of(point.repeats[repeat].chips[c]));
        table.add_row(std::move(cells));
      }
  return table;
}

Table pair_repeats(const VendorsStudy& s) {
  std::vector<Column> columns = pair_columns();
  columns.push_back({"repeat", "1", "set of tensors"});
  for (const PairFigure& figure : kPairFigures) columns.push_back({figure.name, "1", figure.help});
  Table table("pair_repeats", "Where two chips differ, each repeat", columns);
  for (const VendorsPoint& point : s.points)
    for (std::size_t x = 0; x < s.chips.size(); ++x)
      for (std::size_t y = x + 1; y < s.chips.size(); ++y)
        for (std::size_t repeat = 0; repeat < s.repeats; ++repeat) {
          std::vector<Cell> cells = pair_cells(s, point, x, y);
          cells.emplace_back(static_cast<std::int64_t>(repeat));
          for (const PairFigure& figure : kPairFigures)
            cells.emplace_back(point.repeats[repeat].differences[s.pair_index(x, y)].*figure.of);
          table.add_row(std::move(cells));
        }
  return table;
}

/// "log-normal tensors".
std::string tensors_of(std::string distribution) {
  if (distribution == "outliers") return "tensors with outliers";
  std::replace(distribution.begin(), distribution.end(), '_', '-');
  return distribution + " tensors";
}

Plot plot_against_k(const VendorsStudy& s, const std::string& distribution, const Figure& figure,
                    const std::string& title) {
  Plot plot;
  plot.name = fmt::format("{}_{}", figure.name, distribution);
  plot.title = fmt::format("{}, {}; bands: {}", title, tensors_of(distribution),
                           counted(s.repeats, "repeat"));
  plot.x = {"length of the dot product K (terms)", true, 2};
  plot.y = {"relative L2 error (%)", true};
  for (std::size_t c = 0; c < s.chips.size(); ++c) {
    Series series{s.chips[c].label, {}, {}};
    if (s.chips[c].promotion_interval != 0) series.style = Series::Style::dashed;
    for (const VendorsPoint& point : s.points) {
      if (point.distribution != distribution) continue;
      const Spread spread = spread_of(s.of_chip(point, c, figure.of));
      series.x.push_back(static_cast<double>(point.k));
      series.y.push_back(spread.mean);
      series.low.push_back(spread.min);
      series.high.push_back(spread.max);
    }
    plot.series.push_back(std::move(series));
  }
  for (const Chip& chip : s.chips)
    if (chip.promotion_interval != 0)
      share_colours(plot.series, fmt::format("/{}", chip.promotion_interval), "");
  return in_percent(std::move(plot));
}

HeatMap pair_map(const VendorsStudy& s, const std::string& distribution) {
  const VendorsPoint& point = s.longest(distribution);
  HeatMap map{
      fmt::format("differ_{}", distribution),
      fmt::format("Outputs whose BF16 bits differ, {}, K = {}", tensors_of(distribution), point.k),
      "chip",
      "chip",
      "share of outputs (%)",
      {},
      {},
      {},
      false};
  for (const Chip& chip : s.chips) map.columns.push_back(chip.label);
  for (std::size_t y = s.chips.size(); y-- > 0;) {
    map.rows.push_back(s.chips[y].label);
    for (std::size_t x = 0; x < s.chips.size(); ++x)
      map.values.push_back(
          x == y ? 0.0 : 100.0 * spread_of(s.of_pair(point, x, y, &ChipDifference::differ)).mean);
  }
  return map;
}

/// Of an error, which may be larger than 100 %.
std::string percent(std::span<const double> values) { return interval_text(values, 100.0) + " %"; }

/// A share of outputs: none in these draws does not make some in others unlikely.
std::string outputs_text(const VendorsStudy& s, const std::vector<double>& shares) {
  return share_text(shares, 100.0, share_resolution(s.rows * s.columns));
}

std::string place_text(const VendorsPoint& point) {
  return fmt::format("{}, K = {}", tensors_of(point.distribution), point.k);
}

/// Whose error comes from its accumulator, beyond the spread of both parts; and how large the
/// accumulator's part is on the other chips.
std::string split_finding(const VendorsStudy& s, const VendorsPoint& point) {
  std::vector<std::string> decided;
  std::optional<std::size_t> largest;
  const auto accumulator = [&](std::size_t c) { return s.of_chip(point, c, kAccumulator.of); };
  for (std::size_t c = 0; c < s.chips.size(); ++c) {
    const Interval part = interval_of(accumulator(c));
    const Interval other = interval_of(s.of_chip(point, c, kFormat.of));
    // Of one repeat nothing is known about the spread: NaN compares as "no".
    if (part.mean - part.half_width > other.mean + other.half_width)
      decided.push_back(fmt::format("{} ({}, format {})", s.chips[c].label, percent(accumulator(c)),
                                    percent(s.of_chip(point, c, kFormat.of))));
    else if (!largest || part.mean > interval_of(accumulator(*largest)).mean)
      largest = c;
  }
  const std::string where = place_text(point);
  const std::string rest =
      largest ? fmt::format("on {} it adds at most {} (on {}) to the {} of the format",
                            decided.empty() ? "all chips" : "the others",
                            percent(accumulator(*largest)), s.chips[*largest].label,
                            percent(s.of_chip(point, *largest, kFormat.of)))
              : "";
  if (decided.empty())
    return fmt::format("{}: the accumulator does not decide the error: {}.", where, rest);
  return fmt::format("{}: the accumulator decides the error of {}{}{}.", where,
                     fmt::join(decided, " and "), rest.empty() ? "" : "; ", rest);
}

/// Which chips differ most in BF16 bits, and how far codes and scales alone explain it.
std::optional<std::string> pair_finding(const VendorsStudy& s, const VendorsPoint& point,
                                        bool same_codes) {
  const auto mean = [&](std::size_t x, std::size_t y, double ChipDifference::*of) {
    return spread_of(s.of_pair(point, x, y, of)).mean;
  };
  std::optional<std::pair<std::size_t, std::size_t>> most;
  for (std::size_t x = 0; x < s.chips.size(); ++x)
    for (std::size_t y = x + 1; y < s.chips.size(); ++y) {
      const bool same =
          spread_of(s.of_pair(point, x, y, &ChipDifference::differ_format)).max == 0.0;
      if (same != same_codes) continue;
      if (!most || mean(x, y, &ChipDifference::differ) >
                       mean(most->first, most->second, &ChipDifference::differ))
        most = {x, y};
    }
  if (!most) return std::nullopt;
  const auto [x, y] = *most;
  const std::string differ = outputs_text(s, s.of_pair(point, x, y, &ChipDifference::differ));
  if (same_codes)
    return fmt::format(
        "{}: of the chips that read the same numbers, {} and {} differ most: in the BF16 bits of "
        "{} "
        "of the outputs, by their accumulators alone.",
        place_text(point), s.chips[x].label, s.chips[y].label, differ);
  return fmt::format(
      "{}: of the chips that read different numbers, {} and {} differ most: in the BF16 bits of {} "
      "of "
      "the outputs ({} with exact sums).",
      place_text(point), s.chips[x].label, s.chips[y].label, differ,
      outputs_text(s, s.of_pair(point, x, y, &ChipDifference::differ_format)));
}

bool scaled_to_the_end(const Chip& chip) {
  return chip.a.largest == format(chip.a.format).max_finite() &&
         chip.b.largest == format(chip.b.format).max_finite();
}

/// A chip of FNUZ codes with its own scales and with OCP's, beside a chip of OCP codes.
void add_range_findings(const VendorsStudy& s, const VendorsPoint& point,
                        std::vector<std::string>& findings) {
  const auto part = [&](std::size_t c) { return percent(s.of_chip(point, c, kFormat.of)); };
  for (std::size_t own = 0; own + 1 < s.chips.size(); ++own) {
    if (!scaled_to_the_end(s.chips[own]) || scaled_to_the_end(s.chips[own + 1])) continue;
    for (std::size_t ocp = 0; ocp < s.chips.size(); ++ocp) {
      if (fnuz_counterpart(s.chips[own].a.format) != s.chips[ocp].a.format ||
          fnuz_counterpart(s.chips[own].b.format) != s.chips[ocp].b.format)
        continue;
      const std::vector<double> other =
          s.of_pair(point, own + 1, ocp, &ChipDifference::differ_format);
      const bool equal = spread_of(other).max == 0.0;
      findings.push_back(fmt::format(
          "{}: {}. {} loses {} if the amax becomes {} and {} if it becomes {}; {} loses {} at {}.",
          place_text(point),
          equal ? "the shorter range of FNUZ costs nothing, only its grid lies elsewhere"
                : fmt::format("exact sums differ in {} of the outputs", outputs_text(s, other)),
          format_text(s.chips[own]), part(own), s.chips[own].a.largest, part(own + 1),
          s.chips[own + 1].a.largest, format_text(s.chips[ocp]), part(ocp),
          s.chips[ocp].a.largest));
      break;
    }
  }
}

}  // namespace

Results vendors(const RunContext& context) {
  const VendorsStudy study = run_vendors_study(context);
  Results results;
  results.tables = {error_table(study), pair_table(study), error_repeats(study),
                    pair_repeats(study)};
  for (const std::string& distribution : study.distributions) {
    results.plots.push_back(
        plot_against_k(study, distribution, kTotal, "Error against the FP64 product"));
    results.plots.push_back(
        plot_against_k(study, distribution, kAccumulator, "Part of the accumulator"));
    results.heat_maps.push_back(pair_map(study, distribution));
    const VendorsPoint& point = study.longest(distribution);
    results.findings.push_back(split_finding(study, point));
    for (const bool same_codes : {true, false})
      if (const auto finding = pair_finding(study, point, same_codes))
        results.findings.push_back(*finding);
    add_range_findings(study, point, results.findings);
  }
  results.findings.push_back(
      fmt::format("Errors are relative L2 errors ({}; {}).", setup_text(study), kIntervalMeaning));
  return results;
}

}  // namespace fp8lab::experiments
