#pragma once
// Where a plot's axis begins and ends, and where its tics stand. gnuplot's own
// choice leaves log axes of few decades without labels and crowds those of many.

#include <span>
#include <string>
#include <vector>

#include "fp8lab/plots/plot.hpp"

namespace fp8lab {

struct Tic {
  double position = 0.0;
  std::string label;  ///< gnuplot's enhanced text (`10^{-3}`); empty for a minor tic
  bool minor = false;
};

struct AxisLayout {
  double low = 0.0;
  double high = 1.0;
  std::vector<Tic> tics;  ///< empty: gnuplot chooses (linear axes)
};

/// Whether an axis can show `value`: finite, and positive on a log axis.
bool can_show(const Axis& axis, double value);

/// The layout for an axis that shows `values`; those it cannot show are left
/// out. No value at all gives [0, 1], or [1, 10] on a log axis. A linear axis of
/// positive values begins at zero if the least is below `zero_share` of the largest.
AxisLayout lay_out(const Axis& axis, std::span<const double> values, double zero_share = 0.4);

}  // namespace fp8lab
