#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

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
    for (const std::size_t tile : {0, 16})
      points.push_back(
          {"128 x N(0, 0.5^2), outlier 250", small, s.published_repeats, tile, policy, {}});
    for (const std::size_t tile : {0, 128})
      points.push_back({"64 x 1024 x N(0, 0.3^2) in BF16, outlier 200",
                        large,
                        s.published_repeats,
                        tile,
                        policy,
                        {}});
  }
  return points;
}

std::vector<Column> spread_columns(const std::string& name, const std::string& unit,
                                   const std::string& what) {
  return {{name + "_mean", unit, what + ", mean over repeats"},
          {name + "_min", unit, what + ", smallest"},
          {name + "_max", unit, what + ", largest"}};
}

Table make_table(const std::string& name, const std::string& title) {
  std::vector<Column> columns{{"setup", "", "which tensor"},
                              {"elements", "1", "elements of the tensor"},
                              {"outlier", "1", "magnitude of the one outlier"},
                              {"scales", "", "what shares a scale"},
                              {"tile", "elements", "elements that share a scale"},
                              {"subnormals", "", "kept or flushed"},
                              {"repeats", "1", "tensors drawn"}};
  const auto add = [&](const std::string& column, const std::string& unit,
                       const std::string& what) {
    for (Column& c : spread_columns(column, unit, what)) columns.push_back(std::move(c));
  };
  add("bulk_relative_l2", "1", "error of all but the outlier");
  add("whole_relative_l2", "1", "error of the whole tensor");
  add("crushed_share", "1", "share of the bulk that became zero");
  add("crushed", "elements", "bulk elements that became zero");
  add("damaged", "elements", "bulk elements beyond the format's normal error bound");
  return {name, title, std::move(columns)};
}

Table points_table(const std::string& name, const std::string& title,
                   const std::vector<Point>& points) {
  Table table = make_table(name, title);
  for (const Point& p : points) {
    const std::size_t tile = p.tile == 0 ? p.tensor.elements : p.tile;
    std::vector<Cell> row{p.setup.empty() ? fmt::format("N(0, {:g}^2)", p.tensor.sigma) : p.setup,
                          static_cast<std::int64_t>(p.tensor.elements),
                          p.tensor.outlier,
                          sharing(p.tile),
                          static_cast<std::int64_t>(tile),
                          subnormal_name(p.policy->policy),
                          static_cast<std::int64_t>(p.repeats)};
    for (const Spread* s : {&p.spread.bulk_relative_l2, &p.spread.whole_relative_l2,
                            &p.spread.crushed_share, &p.spread.crushed, &p.spread.damaged}) {
      row.emplace_back(s->mean);
      row.emplace_back(s->min);
      row.emplace_back(s->max);
    }
    table.add_row(std::move(row));
  }
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
            fmt::format("{} ({}, {} x N(0, {:g}^2), mean of {})", what, short_name(*s.format),
                        s.tensor.elements, s.tensor.sigma, s.repeats),
            {"magnitude of the one outlier (1)", true},
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
            fmt::format("The error of the whole tensor hides what happens to the bulk ({}, "
                        "{} x N(0, {:g}^2))",
                        short_name(*s.format), s.tensor.elements, s.tensor.sigma),
            {"magnitude of the one outlier (1)", true},
            {"relative L2 error (%)", true},
            {}};
  const CastProfile* policy = s.policies.front();
  plot.series.push_back(
      line(points, 0, policy, &OutlierSpread::bulk_relative_l2, "all but the outlier, per tensor"));
  plot.series.push_back(
      line(points, 0, policy, &OutlierSpread::whole_relative_l2, "whole tensor, per tensor"));
  return plot;
}

Plot containment_plot(const Setup& s, const std::vector<Point>& points) {
  Plot plot{"damage_against_tile",
            fmt::format("Damage scales with the tile, not the tensor ({}, one outlier of {:g}, "
                        "bulk N(0, {:g}^2), mean of {})",
                        short_name(*s.format), s.containment_outlier, s.tensor.sigma, s.repeats),
            {"elements that share a scale; the last point is the whole tensor", true, 2},
            {"elements beyond the format's error bound", true, 2},
            {}};
  for (const std::size_t elements : s.containment_elements) {
    Series series{
        fmt::format("tensor of {} elements", elements), {}, {}, Series::Style::lines_points};
    for (const Point& p : points) {
      if (p.tensor.elements != elements || p.policy != s.policies.front() || p.tile == 0) continue;
      series.x.push_back(static_cast<double>(p.tile));
      series.y.push_back(p.spread.damaged.mean);
    }
    for (const Point& p : points) {
      if (p.tensor.elements != elements || p.policy != s.policies.front() || p.tile != 0) continue;
      series.x.push_back(static_cast<double>(elements));
      series.y.push_back(p.spread.damaged.mean);
    }
    plot.series.push_back(series);
  }
  return plot;
}

std::string percent_of(const Spread& s) {
  return fmt::format("{:.3g} % ({:.3g} to {:.3g})", 100.0 * s.mean, 100.0 * s.min, 100.0 * s.max);
}

void add_findings(const Setup& s, const std::vector<Point>& sweep,
                  const std::vector<Point>& containment, const std::vector<Point>& published,
                  Results& results) {
  for (const Point& p : sweep) {
    const double decade = std::log10(p.tensor.outlier);
    const bool shown = p.tile == 0 || (p.tile == 128 && p.policy == s.policies.front());
    if (!shown || decade < 2.0 || std::abs(decade - std::round(decade)) > 1e-9) continue;
    results.findings.push_back(fmt::format(
        "Outlier {:g}, {}, subnormals {}: the bulk loses {} relative L2, {} of it becomes zero "
        "({}, {} x N(0, {:g}^2), {} repeats, mean and range).",
        p.tensor.outlier, sharing(p.tile), subnormal_name(p.policy->policy),
        percent_of(p.spread.bulk_relative_l2), percent_of(p.spread.crushed_share),
        short_name(*s.format), p.tensor.elements, p.tensor.sigma, p.repeats));
  }
  for (const Point& p : containment) {
    if (p.policy != s.policies.front() || (p.tile != 0 && p.tile != 128)) continue;
    results.findings.push_back(fmt::format(
        "An outlier of {:g} in {} elements, {}: {:.1f} elements beyond the error bound of {} "
        "(mean of {} repeats).",
        p.tensor.outlier, p.tensor.elements, sharing(p.tile), p.spread.damaged.mean,
        short_name(*s.format), p.repeats));
  }
  for (const Point& p : published)
    results.findings.push_back(fmt::format(
        "{}, {}, subnormals {}: {:.3g} elements crushed ({:g} to {:g}), error of the whole tensor "
        "{}, of the bulk {} ({}, {} repeats).",
        p.setup, sharing(p.tile), subnormal_name(p.policy->policy), p.spread.crushed.mean,
        p.spread.crushed.min, p.spread.crushed.max, percent_of(p.spread.whole_relative_l2),
        percent_of(p.spread.bulk_relative_l2), short_name(*s.format), p.repeats));
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
  results.tables.push_back(
      points_table("damage", "Error of the bulk against the outlier's magnitude", sweep));
  results.tables.push_back(
      points_table("containment", "Damage against tile and tensor size", containment));
  results.tables.push_back(
      points_table("published", "The two published examples, in real E4M3", published));

  Plot error =
      magnitude_plot(setup, sweep, "bulk_error_against_outlier",
                     "One outlier: error of all other elements", &OutlierSpread::bulk_relative_l2);
  error.y.label = "relative L2 error of all but the outlier (%)";
  Plot crushed = magnitude_plot(setup, sweep, "crushed_share_against_outlier",
                                "One outlier: share of the others that becomes zero",
                                &OutlierSpread::crushed_share);
  crushed.y.label = "share of the bulk that becomes zero (%)";
  results.plots = {error, crushed, containment_plot(setup, containment), hidden_plot(setup, sweep)};
  add_findings(setup, sweep, containment, published, results);
  return results;
}

}  // namespace fp8lab::experiments
