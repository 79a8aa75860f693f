#pragma once
// Plots as values; plot_json.hpp writes the specification that all pictures are drawn from.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fp8lab {

// In all texts of plots `^` followed by a number or by a capital T raises it: 10^-3, K^1.5, x w^T.

/// The colour of a series: one of the palette, or a shade of an ordered quantity.
struct SeriesColour {
  std::size_t place = 0;   ///< in the palette; or among the shades, the first darkest
  std::size_t shades = 0;  ///< how many the ordered quantity has; 0: a colour of the palette
  friend bool operator==(const SeriesColour&, const SeriesColour&) = default;
};

struct Series {
  enum class Style { lines, points, lines_points, steps, dashed };
  std::string label;
  std::vector<double> x;
  std::vector<double> y;  ///< as long as x; NaN leaves a gap
  Style style = Style::lines_points;
  /// A band around the curve, least and most at each x: both empty, or both as long as x. A value
  /// that is not finite leaves a gap in the band; edges at 0 and below lie on the lower end of a
  /// log axis.
  std::vector<double> low{};
  std::vector<double> high{};
  /// The index of another series of the plot, whose colour this one has: a variant, which its
  /// dashes or marks tell apart.
  std::optional<std::size_t> like{};
  /// Set where the colour is that of the same thing in other plots (look.hpp).
  std::optional<SeriesColour> colour{};
};

/// Another scale of the same axis, written at the opposite side: values in units of `unit`.
struct SecondScale {
  std::string label;
  double unit = 1.0;  ///< the axis's value at which the second scale has 1; positive
};

struct Axis {
  std::string label;  ///< with its unit
  bool log = false;   ///< base 10; values <= 0 are left out, and the plot says how many
  int log_base = 10;  ///< 10 or 2
  std::optional<SecondScale> second{};  ///< of x axes; y axes have none
};

struct Plot {
  std::string name;   ///< file name without ending
  std::string title;  ///< the claim or the question, with the setup
  Axis x;
  Axis y;
  std::vector<Series> series;
};

/// A grid of values, row by row from the bottom.
struct HeatMap {
  std::string name;
  std::string title;
  std::string x_label;
  std::string y_label;
  std::string value_label;  ///< with its unit
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<double> values;  ///< rows.size() * columns.size()
  bool log = false;
};

}  // namespace fp8lab
