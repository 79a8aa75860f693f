#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/draw.hpp"
#include "fp8lab/experiment/report_plots.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8lab-report-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(name + ": cannot make it");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

void add_sweep_plots(StoredRun& sweep) {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  const auto stage = [&](auto plot) {
    names.push_back(fmt::format("plot{}", names.size() + 1));
    plot.name = names.back();
    write_plot(plot, folder.path());
    sweep.plots.push_back({plot.name, plot.title, ""});
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
