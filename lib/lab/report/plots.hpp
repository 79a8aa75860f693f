#pragma once
// What to draw of a sweep, chosen from its tables alone.

#include <string>
#include <vector>

#include "lab/plots/plot.hpp"
#include "lab/report/input.hpp"

namespace fp8lab {

struct ChosenPlots {
  std::vector<Plot> plots;
  std::vector<HeatMap> heat_maps;
  /// Where the first measure is least and most, naming only axes that it depends on beyond the
  /// spread of its draws (dependence.hpp); its range alone where there are too few repeats to know.
  std::vector<std::string> findings;
};

/// Chooses for one table of a sweep. Of its measures (numeric columns after those that tell a
/// point's rows apart) up to two, errors first. A plot has the numeric axis of most values as x
/// (log where that is geometric), a line for each value of another axis and for each row of a
/// point, the mean over repeats; axes and rows that are too many for one picture are held at one
/// value (the middle number, or the first label), which the title names. With two axes there is a
/// heat map too; with one axis of labels there is only that. A failures table gives nothing.
ChosenPlots choose_plots(const StoredTable& table);

/// Adds to a sweep what `choose_plots` says, and its findings.
void add_sweep_plots(StoredRun& sweep);

}  // namespace fp8lab
