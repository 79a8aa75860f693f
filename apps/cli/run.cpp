#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/experiment.hpp"

namespace fp8lab::cli {
namespace {

struct Options {
  std::vector<std::string> names;
  std::vector<std::string> assignments;
  std::string out = "out";
  std::uint64_t seed = 1;
  int threads = omp_get_max_threads();
  bool quick = false;
};

int run(const Options& options) {
  for (const std::string& name : options.names) {
    const Experiment& experiment = find_experiment(name);
    RunContext context;
    context.parameters = Parameters::from_toml(experiment.default_toml, options.quick);
    for (const std::string& assignment : options.assignments) context.parameters.set(assignment);
    context.seed = options.seed;
    context.threads = options.threads;
    const Results results = experiment.run(context);
    const auto folder = std::filesystem::path(options.out) / name;
    std::filesystem::create_directories(folder);
    fmt::print("{}: {}\n\n", name, read_question(experiment.default_toml));
    for (const Table& table : results.tables) {
      fmt::print("{}\n", table.text(40));
      std::ofstream(folder / (table.name() + ".csv")) << table.csv();
    }
    for (const std::string& finding : results.findings) fmt::print("- {}\n", finding);
  }
  return kPass;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Run experiments");
  command->add_option("NAME", options->names, "experiments")->required();
  command->add_flag("--quick", options->quick, "the small form, seconds");
  command->add_option("--seed", options->seed, "seed of all random numbers")->capture_default_str();
  command->add_option("--set", options->assignments, "key=value");
  command->add_option("--out", options->out, "folder of the results")->capture_default_str();
  command->add_option("--threads", options->threads, "threads; results do not depend on it")
      ->capture_default_str();
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
