#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/report/report.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> folders;
  std::string file;
  bool separate = false;
};

std::size_t reading_position(const fs::path& folder) {
  const auto& experiments = all_experiments();
  const auto found = std::find_if(experiments.begin(), experiments.end(), [&](const auto& e) {
    return e.name == folder.filename().string();
  });
  return static_cast<std::size_t>(found - experiments.begin());
}

/// A run's or a sweep's own folder, or every one in a folder of those, in reading order.
std::vector<StoredRun> runs_in(const fs::path& folder) {
  require(fs::is_directory(folder), "DIR", "a folder", "'" + folder.string() + "'");
  if (holds_results(folder)) return {read_run(folder)};
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (holds_results(entry.path())) folders.push_back(entry.path());
  require(!folders.empty(), "DIR",
          "a folder with results (result.json of a run, sweep.json of a finished sweep)",
          "'" + folder.string() + "'");
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    const auto x = reading_position(a);
    const auto y = reading_position(b);
    return x != y ? x < y : a < b;
  });
  std::vector<StoredRun> runs;
  for (const fs::path& found : folders) runs.push_back(read_run(found));
  return runs;
}

int run(const ReportArguments& options) {
  const fs::path file = options.file.empty() ? fs::path(options.folders.front()) / "report.html"
                                             : fs::path(options.file);
  if (!options.file.empty()) require_writable_file(file);
  std::vector<std::vector<StoredRun>> of_folders;
  std::vector<StoredRun> all;
  for (const std::string& folder : options.folders) {
    of_folders.push_back(runs_in(folder));
    all.insert(all.end(), of_folders.back().begin(), of_folders.back().end());
  }
  if (options.file.empty()) require_writable_file(file);
  const bool compares =
      of_folders.size() == 2 && !options.separate && comparable(of_folders[0], of_folders[1]);
  const std::string html =
      compares ? html_comparison(of_folders[0], of_folders[1]) : html_report(all);
  write_file(file, html);
  say("{}: {}{}, {} kB\n", file.string(), counted(all.size(), "run"),
      compares ? " side by side" : "", (html.size() + 999) / 1000);
  return kPass;
}

}  // namespace

void add_report(Command& app, Action& action) {
  auto options = std::make_shared<ReportArguments>();
  Command* command = app.add_subcommand("report", "Write results as one HTML page");
  command
      ->add_option("DIR", options->folders,
                   "folders that run or sweep wrote, or folders that contain them; two folders of "
                   "the same experiment are compared side by side")
      ->required();
  command->add_option("-o,--out", options->file, "the HTML file [report.html in the first DIR]");
  command->add_flag("--separate", options->separate,
                    "show two folders one after the other instead of side by side");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
