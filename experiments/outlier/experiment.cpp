#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/quantize.hpp"
#include "fp8lab/core/error.hpp"
#include "outlier/outlier.hpp"

namespace fp8lab::experiments {
namespace {

struct Setup {
  const Format* format = nullptr;
  std::vector<const CastProfile*> policies;
  OutlierTensor tensor;
  std::size_t repeats = 0;
  std::vector<double> outliers;
  std::vector<std::size_t> tiles;  ///< 0, the whole tensor, comes first
  std::vector<std::size_t> containment_elements;
  double containment_outlier = 0.0;
  std::size_t published_repeats = 0;
};

std::vector<std::size_t> positive_list(const Parameters& p, std::string_view key) {
  std::vector<std::size_t> list;
  for (const std::int64_t v : p.integers(key)) {
    require(v >= 1, key, "integers >= 1", fmt::format("{}", v));
    list.push_back(static_cast<std::size_t>(v));
  }
  return list;
}

Setup read_setup(const Parameters& p) {
  Setup s;
  s.format = &find_format(p.text("format"));
  for (const std::string& name : p.texts("policies"))
    s.policies.push_back(&find_cast_profile(name));
  s.tensor.elements = positive(p, "elements");
  s.tensor.sigma = p.real("sigma");
  s.repeats = positive(p, "repeats");
  require(p.real("outlier_from") <= p.real("outlier_to"), "outlier_to",
          fmt::format("at least outlier_from = {:g}", p.real("outlier_from")),
          fmt::format("{:g}", p.real("outlier_to")));
  s.outliers =
      log_steps(p.real("outlier_from"), p.real("outlier_to"), p.real("outliers_per_decade"));
  s.tiles = positive_list(p, "tiles");
  s.tiles.insert(s.tiles.begin(), 0);
  s.containment_elements = positive_list(p, "containment_elements");
  s.containment_outlier = p.real("containment_outlier");
  s.published_repeats = positive(p, "published_repeats");
  return s;
}

std::string sharing(std::size_t tile) {
  return tile == 0 ? "per tensor" : fmt::format("per tile of {}", tile);
}

std::string bulk_name(const Setup& s) {
  return fmt::format("{} x N(0, {:g}^2)", s.tensor.elements, s.tensor.sigma);
}

/// One cell of a sweep: a tensor, a tile, a policy, and what came of it.
struct Point {
  std::string setup;  ///< for the published examples
  OutlierTensor tensor;
  std::size_t repeats = 0;
  std::size_t tile = 0;
  const CastProfile* policy = nullptr;
  OutlierSpread spread;
};

void measure(const RunContext& context, const Format& f, std::vector<Point>& points, double from,
             double to) {
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        Point& p = points[i];
        // One stream for all: every tile, policy and outlier sees the same bulk.
        p.spread =
            repeat_damage(context.random("bulk"), p.tensor, p.repeats, p.tile, f, p.policy->policy);
      },
      from, to);
}

std::vector<Point> magnitude_points(const Setup& s) {
  std::vector<Point> points;
  for (const std::size_t tile : s.tiles)
    for (const CastProfile* policy : s.policies)
      for (const double outlier : s.outliers) {
        OutlierTensor tensor = s.tensor;
        tensor.outlier = outlier;
        tensor.outlier_index = tensor.elements / 2;
        points.push_back({"", tensor, s.repeats, tile, policy, {}});
      }
  return points;
}

std::vector<Point> containment_points(const Setup& s) {
  std::vector<Point> points;
  for (const std::size_t elements : s.containment_elements)
    for (const CastProfile* policy : s.policies)
      for (const std::size_t tile : s.tiles) {
        if (tile > elements) continue;
        const OutlierTensor tensor{elements, s.tensor.sigma, s.containment_outlier, elements / 2,
                                   false};
        points.push_back({"", tensor, s.repeats, tile, policy, {}});
      }
  return points;
}

std::vector<Point> published_points(const Setup& s) {
  const OutlierTensor small{128, 0.5, 250.0, 63, false};
  const OutlierTensor large{64 * 1024, 0.3, 200.0, 511, true};
  std::vector<Point> points;
  for (const CastProfile* policy : s.policies) {
    for (const std::size_t tile : {std::size_t{0}, std::size_t{16}})
      points.push_back(
          {"128 x N(0, 0.5^2), outlier 250", small, s.published_repeats, tile, policy, {}});
    for (const std::size_t tile : {std::size_t{0}, std::size_t{128}})
      points.push_back({"64 x 1024 x N(0, 0.3^2) in BF16, outlier 200",
                        large,
                        s.published_repeats,
                        tile,
                        policy,
                        {}});
  }
  return points;
}

/// What every table says of a point, after the columns that name it.
std::vector<Column> with_figures(std::vector<Column> columns) {
  const std::vector<Column> figures{
      {"scales", "", "what shares a scale"},
      {"tile", "elements", "elements that share a scale"},
      {"subnormals", "", "kept or flushed"},
      {"bulk_l2", "1", "relative L2 error of all but the outlier, mean over repeats"},
      {"bulk_l2_min", "1", "smallest"},
      {"bulk_l2_max", "1", "largest"},
      {"whole_l2", "1", "relative L2 error of the whole tensor, mean over repeats"},
      {"crushed_share", "1", "share of the bulk that became zero, mean over repeats"},
      {"crushed", "elements", "bulk elements that became zero, mean over repeats"},
      {"crushed_min", "elements", "smallest"},
      {"crushed_max", "elements", "largest"},
      {"damaged", "elements", "bulk elements beyond the format's error bound, mean"}};
  columns.insert(columns.end(), figures.begin(), figures.end());
  return columns;
}

void add_point(Table& table, std::vector<Cell> row, const Point& p) {
  const OutlierSpread& s = p.spread;
  const std::size_t tile = p.tile == 0 ? p.tensor.elements : p.tile;
  row.insert(row.end(),
             {sharing(p.tile), static_cast<std::int64_t>(tile), subnormal_name(p.policy->policy),
              s.bulk_relative_l2.mean, s.bulk_relative_l2.min, s.bulk_relative_l2.max,
              s.whole_relative_l2.mean, s.crushed_share.mean, s.crushed.mean, s.crushed.min,
              s.crushed.max, s.damaged.mean});
  table.add_row(std::move(row));
}

Table sweep_table(const Setup& s, const std::vector<Point>& points) {
  Table table("damage",
              fmt::format("Damage against the outlier's magnitude ({}, {}, {} repeats)",
                          short_name(*s.format), bulk_name(s), s.repeats),
              with_figures({{"outlier", "1", "magnitude of the one outlier"}}));
  for (const Point& p : points) add_point(table, {p.tensor.outlier}, p);
  return table;
}

Table containment_table(const Setup& s, const std::vector<Point>& points) {
  Table table(
      "containment",
      fmt::format("Damage against tile and tensor ({}, outlier {:g}, sigma {:g}, {} repeats)",
                  short_name(*s.format), s.containment_outlier, s.tensor.sigma, s.repeats),
      with_figures({{"elements", "1", "elements of the tensor"}}));
  for (const Point& p : points) add_point(table, {static_cast<std::int64_t>(p.tensor.elements)}, p);
  return table;
}

Table published_table(const Setup& s, const std::vector<Point>& points) {
  Table table("published",
              fmt::format("Two published examples in real {} ({} repeats)", short_name(*s.format),
                          s.published_repeats),
              with_figures({{"setup", "", "the tensor"}}));
  for (const Point& p : points) add_point(table, {p.setup}, p);
  return table;
}

/// A line of a plot: the mean of one figure over the points of a tile and policy.
Series line(const std::vector<Point>& points, std::size_t tile, const CastProfile* policy,
            Spread OutlierSpread::*figure, const std::string& label) {
  const bool kept = policy->policy.subnormals == SubnormalPolicy::preserve;
  Series series{label, {}, {}, kept ? Series::Style::lines : Series::Style::dashed};
  for (const Point& p : points) {
    if (p.tile != tile || p.policy != policy) continue;
    const double percent = 100.0 * (p.spread.*figure).mean;
    series.x.push_back(p.tensor.outlier);
    series.y.push_back(percent > 0.0 ? percent : std::numeric_limits<double>::quiet_NaN());
  }
  return series;
}

Plot magnitude_plot(const Setup& s, const std::vector<Point>& points, const std::string& name,
                    const std::string& what, Spread OutlierSpread::*figure) {
  Plot plot{name,
            fmt::format("{} ({}, {})", what, short_name(*s.format), bulk_name(s)),
            {"magnitude of the one outlier", true},
            {"", true},
            {}};
  for (const std::size_t tile : s.tiles)
    for (const CastProfile* policy : s.policies) {
      // One dashed line is enough to show flushing; twelve lines would hide it.
      if (tile != 0 && policy != s.policies.front()) continue;
      std::string label = sharing(tile);
      if (tile == 0) label += fmt::format(", subnormals {}", subnormal_name(policy->policy));
      plot.series.push_back(line(points, tile, policy, figure, label));
    }
  return plot;
}

Plot hidden_plot(const Setup& s, const std::vector<Point>& points) {
  Plot plot{"whole_error_hides_the_damage",
            fmt::format("The whole tensor's error hides the bulk's ({} per tensor, {})",
                        short_name(*s.format), bulk_name(s)),
            {"magnitude of the one outlier", true},
            {"relative L2 error (%)", true},
            {}};
  const CastProfile* policy = s.policies.front();
  plot.series.push_back(
      line(points, 0, policy, &OutlierSpread::bulk_relative_l2, "all elements but the outlier"));
  plot.series.push_back(
      line(points, 0, policy, &OutlierSpread::whole_relative_l2, "the whole tensor"));
  return plot;
}

Plot containment_plot(const Setup& s, const std::vector<Point>& points) {
  Plot plot{
      "damage_against_tile",
      fmt::format("Damage scales with the tile, not the tensor ({}, outlier {:g}, sigma {:g})",
                  short_name(*s.format), s.containment_outlier, s.tensor.sigma),
      {"elements that share a scale (last point: the whole tensor)", true, 2},
      {"elements beyond the format's error bound", true, 2},
      {}};
  for (const std::size_t elements : s.containment_elements) {
    Series series{
        fmt::format("tensor of {} elements", elements), {}, {}, Series::Style::lines_points};
    for (const bool whole : {false, true})
      for (const Point& p : points) {
        const bool shown = p.tensor.elements == elements && p.policy == s.policies.front();
        if (!shown || (p.tile == 0) != whole) continue;
        series.x.push_back(static_cast<double>(whole ? elements : p.tile));
        series.y.push_back(p.spread.damaged.mean);
      }
    plot.series.push_back(series);
  }
  return plot;
}

std::string percent(const Spread& s) { return fmt::format("{:.3g} %", 100.0 * s.mean); }

std::string setup_of(const Setup& s) {
  return fmt::format("({}, {} x N(0, {:g}^2), mean of {} repeats)", short_name(*s.format),
                     s.tensor.elements, s.tensor.sigma, s.repeats);
}

const OutlierSpread& spread_at(const std::vector<Point>& sweep, double outlier, std::size_t tile,
                               const CastProfile* policy) {
  return std::find_if(sweep.begin(), sweep.end(),
                      [&](const Point& p) {
                        return p.tensor.outlier == outlier && p.tile == tile && p.policy == policy;
                      })
      ->spread;
}

/// What fails, by how much, and what the smallest tile leaves of it; and what hides it.
std::string damage_finding(const Setup& s, const std::vector<Point>& sweep) {
  const auto distance = [&](double outlier) {
    return std::abs(std::log(outlier / s.containment_outlier));
  };
  const double outlier =
      *std::min_element(s.outliers.begin(), s.outliers.end(),
                        [&](double a, double b) { return distance(a) < distance(b); });
  const CastProfile* policy = s.policies.front();
  const OutlierSpread& whole = spread_at(sweep, outlier, 0, policy);
  std::string text = fmt::format(
      "One outlier of {:g} under one scale per tensor: all other elements have {} relative L2 "
      "error and {} of them become zero, while the whole tensor's error reads {}",
      outlier, percent(whole.bulk_relative_l2), percent(whole.crushed_share),
      percent(whole.whole_relative_l2));
  if (s.tiles.size() > 1) {
    const std::size_t tile = *std::min_element(s.tiles.begin() + 1, s.tiles.end());
    const OutlierSpread& tiled = spread_at(sweep, outlier, tile, policy);
    text += fmt::format("; one scale {} leaves {} and {}", sharing(tile),
                        percent(tiled.bulk_relative_l2), percent(tiled.crushed_share));
  }
  return text + " " + setup_of(s) + ".";
}

/// The sweep's means at the first, the middle and the last whole decade from 100 up.
std::string sweep_finding(const Setup& s, const std::vector<Point>& sweep, std::size_t tile,
                          const CastProfile* policy) {
  std::vector<const Point*> decades;
  for (const Point& p : sweep) {
    const double decade = std::log10(p.tensor.outlier);
    const bool whole = std::abs(decade - std::round(decade)) < 1e-9;
    if (p.tile == tile && p.policy == policy && whole && decade >= 2.0) decades.push_back(&p);
  }
  std::set<std::size_t> shown;
  if (!decades.empty()) shown = {0, decades.size() / 2, decades.size() - 1};
  std::string figures;
  for (const std::size_t i : shown)
    figures += fmt::format("{} {} at {:g} ({} zero)", figures.empty() ? "" : ",",
                           percent(decades[i]->spread.bulk_relative_l2), decades[i]->tensor.outlier,
                           percent(decades[i]->spread.crushed_share));
  return fmt::format("Relative L2 error of all elements but the outlier {}, subnormals {}:{} {}.",
                     sharing(tile), subnormal_name(policy->policy), figures, setup_of(s));
}

std::string containment_finding(const Setup& s, const std::vector<Point>& points) {
  std::string figures;
  for (const std::size_t tile : s.tiles) {
    std::vector<double> damaged;
    for (const Point& p : points)
      if (p.policy == s.policies.front() && p.tile == tile)
        damaged.push_back(p.spread.damaged.mean);
    if (damaged.empty()) continue;  // the tile is larger than every tensor
    const Spread range = spread_of(damaged);
    figures += fmt::format("{} {:.0f} to {:.0f} {}", figures.empty() ? "" : ",", range.min,
                           range.max, sharing(tile));
  }
  return fmt::format(
      "Elements that one outlier of {:g} puts beyond {}'s error bound, in tensors of {} to {}:{} "
      "(N(0, {:g}^2), mean of {} repeats).",
      s.containment_outlier, short_name(*s.format), s.containment_elements.front(),
      s.containment_elements.back(), figures, s.tensor.sigma, s.repeats);
}

/// Per tensor against per tile for one published example and policy.
std::string published_finding(const Setup& s, const Point& tensor, const Point& tiled) {
  return fmt::format(
      "{}, subnormals {}: whole-tensor error {} per tensor, {} {} (ratio {:.3g}); of the others "
      "{} and {} ({}, mean of {} repeats).",
      tensor.setup, subnormal_name(tensor.policy->policy), percent(tensor.spread.whole_relative_l2),
      percent(tiled.spread.whole_relative_l2), sharing(tiled.tile),
      tensor.spread.whole_relative_l2.mean / tiled.spread.whole_relative_l2.mean,
      percent(tensor.spread.bulk_relative_l2), percent(tiled.spread.bulk_relative_l2),
      short_name(*s.format), tensor.repeats);
}

void add_findings(const Setup& s, const std::vector<Point>& sweep,
                  const std::vector<Point>& containment, const std::vector<Point>& published,
                  Results& results) {
  results.findings.push_back(damage_finding(s, sweep));
  for (const CastProfile* policy : s.policies)
    results.findings.push_back(sweep_finding(s, sweep, 0, policy));
  if (s.tiles.size() > 1)
    results.findings.push_back(sweep_finding(s, sweep, s.tiles.back(), s.policies.front()));
  results.findings.push_back(containment_finding(s, containment));
  // Published points come in pairs, per tensor before per tile.
  for (std::size_t i = 0; i + 1 < published.size(); i += 2)
    results.findings.push_back(published_finding(s, published[i], published[i + 1]));
}

}  // namespace

Results outlier(const RunContext& context) {
  const Setup setup = read_setup(context.parameters);
  std::vector<Point> sweep = magnitude_points(setup);
  std::vector<Point> containment = containment_points(setup);
  std::vector<Point> published = published_points(setup);
  measure(context, *setup.format, sweep, 0.0, 0.5);
  measure(context, *setup.format, containment, 0.5, 0.7);
  measure(context, *setup.format, published, 0.7, 1.0);

  Results results;
  results.tables = {sweep_table(setup, sweep), containment_table(setup, containment),
                    published_table(setup, published)};

  Plot error =
      magnitude_plot(setup, sweep, "bulk_error_against_outlier",
                     "One outlier: the error of all others", &OutlierSpread::bulk_relative_l2);
  error.y.label = "relative L2 error of all but the outlier (%)";
  Plot crushed =
      magnitude_plot(setup, sweep, "crushed_share_against_outlier",
                     "One outlier: how many others become zero", &OutlierSpread::crushed_share);
  crushed.y.label = "share of the bulk that becomes zero (%)";
  results.plots = {error, crushed, containment_plot(setup, containment), hidden_plot(setup, sweep)};
  add_findings(setup, sweep, containment, published, results);
  return results;
}

}  // namespace fp8lab::experiments
