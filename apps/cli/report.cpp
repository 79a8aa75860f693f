#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/experiment.hpp"
#include "fp8lab/experiment/report.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> folders;
  std::string file;
};

std::size_t reading_position(const fs::path& folder) {
  const auto& experiments = all_experiments();
  const auto found = std::find_if(experiments.begin(), experiments.end(), [&](const auto& e) {
    return e.name == folder.filename().string();
  });
  return static_cast<std::size_t>(found - experiments.begin());
}

/// A run's own folder, or every run in a folder of runs, in reading order.
std::vector<fs::path> runs_in(const fs::path& folder) {
  require(fs::is_directory(folder), "DIR", "a folder", "'" + folder.string() + "'");
  if (fs::exists(folder / "result.json")) return {folder};
  std::vector<fs::path> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "result.json")) runs.push_back(entry.path());
  require(!runs.empty(), "DIR", "a folder with results (result.json)", "'" + folder.string() + "'");
  std::sort(runs.begin(), runs.end(), [](const fs::path& a, const fs::path& b) {
    const auto x = reading_position(a);
    const auto y = reading_position(b);
    return x != y ? x < y : a < b;
  });
  return runs;
}

int run(const Options& options) {
  std::vector<fs::path> runs;
  for (const std::string& folder : options.folders)
    for (const fs::path& found : runs_in(folder)) runs.push_back(found);
  const fs::path file = options.file.empty() ? fs::path(options.folders.front()) / "report.html"
                                             : fs::path(options.file);
  const std::string html = html_report(runs);
  write_file(file, html);
  fmt::print("{}: {} experiment{}, {} kB\n", file.string(), runs.size(),
             runs.size() == 1 ? "" : "s", (html.size() + 999) / 1000);
  return kPass;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("report", "Join results in one HTML file");
  command->add_option("DIR", options->folders, "folders that run wrote, or folders of those")
      ->required();
  command->add_option("-o,--out", options->file, "the HTML file [report.html in the first DIR]");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
