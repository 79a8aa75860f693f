#pragma once
// What an experiment is, and what it is given when it runs.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/experiment/table.hpp"
#include "fp8lab/plots/plot.hpp"

namespace fp8lab {

class Fabric;

/// Everything that a run leaves behind.
struct Results {
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<HeatMap> heat_maps;
  std::vector<std::string> findings;  ///< sentences with measured figures and their setup
};

/// The inputs of one run. Results are a function of `parameters` and `seed`
/// only: not of `threads`, and not of time.
struct RunContext {
  Parameters parameters;
  std::uint64_t seed = 0;
  int threads = 1;
  std::function<void(double fraction)> on_progress;  ///< may be empty; call from one thread
  Fabric* fabric = nullptr;  ///< what collectives run over; null: every rank in this process

  [[nodiscard]] RandomStream random(std::string_view stream) const { return {seed, stream}; }
  void progress(double fraction) const {
    if (on_progress) on_progress(fraction);
  }
};

/// One folder of `experiments/`.
struct Experiment {
  std::string_view name;          ///< the folder, kebab-case
  std::string_view default_toml;  ///< its text; holds `question = "..."` first
  Results (*run)(const RunContext& context);
};

/// All experiments, in the order in which a newcomer should read them.
const std::vector<Experiment>& all_experiments();
const Experiment& find_experiment(std::string_view name);

}  // namespace fp8lab
