#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "lab/plots/plot_json.hpp"
#include "lab/report/plots.hpp"

namespace fp8lab {

void add_sweep_plots(StoredRun& sweep) {
  const auto add = [&](auto plot) {
    plot.name = fmt::format("plot{}", sweep.plots.size() + 1);
    sweep.plots.push_back({plot.name, plot.title, "", plot_json(plot)});
  };
  for (const StoredTable& table : sweep.tables) {
    ChosenPlots chosen = choose_plots(table);
    std::ranges::move(chosen.findings, std::back_inserter(sweep.findings));
    for (const Plot& plot : chosen.plots) add(plot);
    for (const HeatMap& map : chosen.heat_maps) add(map);
  }
}

}  // namespace fp8lab
