#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "common/names.hpp"
#include "common/series.hpp"
#include "lab/experiment/row_table.hpp"
#include "outlier/findings.hpp"
#include "outlier/points.hpp"
#include "outlier/product.hpp"

namespace fp8lab::experiments {
namespace {

using namespace outlier_sweep;

using PointColumn = RowColumn<Point>;

PointColumn figure(std::string name, std::string unit, std::string help,
                   Spread OutlierSpread::*spread, double Spread::*value) {
  return {std::move(name), std::move(unit), std::move(help),
          [=](const Point& p) { return p.spread.*spread.*value; }};
}

/// A column that names a point, then what every table says of it.
std::vector<PointColumn> with_figures(PointColumn first) {
  using S = OutlierSpread;
  return {std::move(first),
          {"scales", "", "what shares a scale", [](const Point& p) { return sharing(p.tile); }},
          {"tile", "elements", "elements that share a scale",
           [](const Point& p) { return p.tile == 0 ? p.tensor.elements : p.tile; }},
          {"subnormals", "", "kept or flushed",
           [](const Point& p) { return subnormal_name(p.policy->policy); }},
          figure("bulk_l2", "1", "relative L2 error of all but the outlier, mean over repeats",
                 &S::bulk_relative_l2, &Spread::mean),
          figure("bulk_l2_min", "1", "smallest", &S::bulk_relative_l2, &Spread::min),
          figure("bulk_l2_max", "1", "largest", &S::bulk_relative_l2, &Spread::max),
          figure("whole_l2", "1", "relative L2 error of the whole tensor, mean over repeats",
                 &S::whole_relative_l2, &Spread::mean),
          figure("crushed_share", "1", "share of the bulk that became zero, mean over repeats",
                 &S::crushed_share, &Spread::mean),
          figure("crushed", "elements", "bulk elements that became zero, mean over repeats",
                 &S::crushed, &Spread::mean),
          figure("crushed_min", "elements", "smallest", &S::crushed, &Spread::min),
          figure("crushed_max", "elements", "largest", &S::crushed, &Spread::max),
          figure("damaged", "elements", "bulk elements beyond the format's error bound, mean",
                 &S::damaged, &Spread::mean)};
}

Table sweep_table(const Setup& s, const std::vector<Point>& points) {
  return row_table<Point>("damage",
                          fmt::format("Damage against the outlier's magnitude ({}, {}, {} repeats)",
                                      short_name(*s.format), bulk_name(s), s.repeats),
                          with_figures({"outlier", "1", "magnitude of the one outlier",
                                        [](const Point& p) { return p.tensor.outlier; }}),
                          points);
}

Table containment_table(const Setup& s, const std::vector<Point>& points) {
  return row_table<Point>(
      "containment",
      fmt::format("Damage against tile and tensor ({}, outlier {:g}, sigma {:g}, {} repeats)",
                  short_name(*s.format), s.containment_outlier, s.tensor.sigma, s.repeats),
      with_figures({"elements", "1", "elements of the tensor",
                    [](const Point& p) { return p.tensor.elements; }}),
      points);
}

Table published_table(const Setup& s, const std::vector<Point>& points) {
  return row_table<Point>("published",
                          fmt::format("Two published examples with {} ({} repeats)",
                                      short_name(*s.format), s.published_repeats),
                          with_figures({"setup", "", "the tensor", &Point::setup}), points);
}

/// Every draw of the sweep.
Table draw_table(const std::vector<Point>& points) {
  Table table("damage_repeats", "Damage against the outlier's magnitude, draw by draw",
              {{"outlier", "1", "magnitude of the one outlier"},
               {"scales", "", "what shares a scale"},
               {"subnormals", "", "kept or flushed"},
               {"repeat", "1", "draw, from 0"},
               {"bulk_l2", "1", "relative L2 error of all but the outlier"},
               {"whole_l2", "1", "relative L2 error of the whole tensor"},
               {"crushed", "elements", "bulk elements that became zero"},
               {"damaged", "elements", "bulk elements beyond the format's error bound"}});
  for (const Point& p : points)
    for (std::size_t i = 0; i < p.spread.draws.size(); ++i) {
      const OutlierDamage& d = p.spread.draws[i];
      table.add_row({p.tensor.outlier, sharing(p.tile), subnormal_name(p.policy->policy),
                     static_cast<std::int64_t>(i), d.bulk_relative_l2, d.whole_relative_l2,
                     d.crushed, d.damaged});
    }
  return table;
}

/// A line of a plot: one figure over the points of a tile and policy, its mean in the band of all
/// repeats.
Series line(const std::vector<Point>& points, std::size_t tile, const CastProfile* policy,
            Spread OutlierSpread::*figure, const std::string& label) {
  const bool kept = policy->policy.subnormals == SubnormalPolicy::preserve;
  Series series{label, {}, {}, kept ? Series::Style::lines : Series::Style::dashed};
  for (const Point& p : points) {
    if (p.tile != tile || p.policy != policy) continue;
    const Spread& spread = p.spread.*figure;
    series.x.push_back(p.tensor.outlier);
    series.y.push_back(100.0 * spread.mean);
    series.low.push_back(100.0 * spread.min);
    series.high.push_back(100.0 * spread.max);
  }
  return series;
}

/// Of the sweep: as it is, and beside the other elements.
Axis magnitude_axis(const Setup& s) {
  return {"magnitude of the one outlier", true, 10,
          SecondScale{"in units of σ of the other elements", s.tensor.sigma}};
}

Plot magnitude_plot(const Setup& s, const std::vector<Point>& points, const std::string& name,
                    const std::string& what, Spread OutlierSpread::*figure) {
  Plot plot{name,
            fmt::format("{} ({}, {})", what, short_name(*s.format), bulk_name(s)),
            magnitude_axis(s),
            {"", true},
            {}};
  constexpr std::size_t kFlushedTile = 128;
  for (const std::size_t tile : s.tiles)
    for (const CastProfile* policy : s.policies) {
      // Two dashed lines are enough to show flushing; twelve lines would hide it.
      const bool first = policy == s.policies.front();
      if (tile != 0 && tile != kFlushedTile && !first) continue;
      std::string label = sharing(tile);
      if (!first) label += fmt::format(", subnormals {}", subnormal_name(policy->policy));
      plot.series.push_back(line(points, tile, policy, figure, label));
    }
  for (const CastProfile* policy : s.policies)
    if (policy != s.policies.front())
      share_colours(plot.series, fmt::format(", subnormals {}", subnormal_name(policy->policy)),
                    "");
  return plot;
}

Plot hidden_plot(const Setup& s, const std::vector<Point>& points) {
  Plot plot{"whole_error_hides_the_damage",
            fmt::format("The error of the whole tensor hides that of the bulk ({} per tensor, {})",
                        short_name(*s.format), bulk_name(s)),
            magnitude_axis(s),
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
      fmt::format("Damage depends on the tile, not on the tensor ({}, outlier {:g}, sigma {:g})",
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

}  // namespace

Results outlier(const RunContext& context) {
  const Setup setup = read_setup(context.parameters);
  std::vector<Point> sweep = magnitude_points(setup);
  std::vector<Point> containment = containment_points(setup);
  std::vector<Point> published = published_points(setup);
  measure(context, *setup.format, sweep, 0.0, 0.5);
  measure(context, *setup.format, containment, 0.5, 0.7);
  measure(context, *setup.format, published, 0.7, 0.9);
  const std::vector<ProductPoint> products = product_points(context, setup);

  Results results;
  results.tables = {sweep_table(setup, sweep), containment_table(setup, containment),
                    published_table(setup, published), draw_table(sweep)};

  Plot error = magnitude_plot(setup, sweep, "bulk_error_against_outlier",
                              "One outlier: the error of all other elements",
                              &OutlierSpread::bulk_relative_l2);
  error.y.label = "relative L2 error of all but the outlier (%)";
  Plot crushed = magnitude_plot(setup, sweep, "crushed_share_against_outlier",
                                "One outlier: how many other elements become zero",
                                &OutlierSpread::crushed_share);
  crushed.y.label = "share of the bulk that becomes zero (%)";
  results.plots = {error, crushed, containment_plot(setup, containment), hidden_plot(setup, sweep)};
  results.findings = findings(setup, sweep, containment, published);
  if (!products.empty()) {
    results.tables.push_back(product_draws(products));
    results.tables.push_back(product_table(setup, products));
    results.plots.push_back(product_plot(setup, products));
    results.findings.push_back(product_finding(setup, products));
  }
  results.headline = headline(setup, sweep);
  return results;
}

}  // namespace fp8lab::experiments
