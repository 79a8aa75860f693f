#include "dynamic-range/spacing.hpp"

#include <algorithm>
#include <cmath>

#include "common/names.hpp"

namespace fp8lab::experiments {
namespace {

/// Relative distance to the next larger number, at both ends of every binade
/// and at every subnormal: straight lines join them on log axes.
Series spacing_of(const Format& f) {
  Series series{short_name(f), {}, {}, Series::Style::lines};
  const double spacing = f.min_subnormal();
  const auto add = [&](double magnitude, double gap) {
    series.x.push_back(magnitude);
    series.y.push_back(gap / magnitude);
  };
  for (double x = spacing; x < f.min_normal(); x += spacing) add(x, spacing);
  for (double binade = f.min_normal(); binade <= f.max_finite(); binade *= 2.0) {
    const double gap = std::ldexp(binade, -f.mantissa_bits);
    add(binade, gap);
    add(std::min(2.0 * binade - gap, f.max_finite()), gap);
  }
  return series;
}

}  // namespace

void add_spacing(const std::vector<std::string>& formats, Results& results) {
  constexpr double kLow = 1e-8;
  constexpr double kHigh = 1e6;
  Table table("spacing", "Distance to the next larger number, relative to the number",
              {{"format", "", "name"},
               {"magnitude", "1", "a representable number"},
               {"relative_spacing", "1", "distance to the next one, divided by the number"}});
  Plot plot{"relative_spacing",
            "How finely each format resolves a number (left slopes: subnormals)",
            {"magnitude of the number", true},
            {"distance to the next number / number", true},
            {}};
  for (const std::string& name : formats) {
    const Series all = spacing_of(find_format(name));
    Series shown{all.label, {}, {}, all.style};
    for (std::size_t i = 0; i < all.x.size(); ++i) {
      table.add_row({name, all.x[i], all.y[i]});
      if (all.x[i] < kLow || all.x[i] > kHigh) continue;
      shown.x.push_back(all.x[i]);
      shown.y.push_back(all.y[i]);
    }
    plot.series.push_back(shown);
  }
  results.tables.push_back(table);
  results.plots.push_back(plot);
}

}  // namespace fp8lab::experiments
