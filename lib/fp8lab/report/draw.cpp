#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "fp8lab/io/files.hpp"
#include "fp8lab/io/partial.hpp"
#include "fp8lab/plots/draw.hpp"
#include "fp8lab/plots/plot_json.hpp"
#include "fp8lab/report/plots.hpp"

namespace fp8lab {

void add_sweep_plots(StoredRun& sweep) {
  const PartialFolder folder(std::filesystem::temp_directory_path(), "fp8lab-report");
  std::vector<std::string> names;
  const auto stage = [&](auto plot) {
    names.push_back(fmt::format("plot{}", names.size() + 1));
    plot.name = names.back();
    write_plot(plot, folder.path());
    sweep.plots.push_back({plot.name, plot.title, "", plot_json(plot)});
  };
  for (const StoredTable& table : sweep.tables) {
    ChosenPlots chosen = choose_plots(table);
    std::ranges::move(chosen.findings, std::back_inserter(sweep.findings));
    for (const Plot& plot : chosen.plots) stage(plot);
    for (const HeatMap& map : chosen.heat_maps) stage(map);
  }
  if (!run_gnuplot(folder.path(), names)) {
    sweep.plots_note = "gnuplot was not found, and a sweep's plots are drawn for its report";
    return;
  }
  for (StoredPlot& plot : sweep.plots) plot.svg = read_file(folder.path() / (plot.name + ".svg"));
}

}  // namespace fp8lab
