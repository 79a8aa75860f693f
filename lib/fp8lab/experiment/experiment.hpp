#pragma once
// What an experiment is, and what it is given when it runs.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/experiment/table.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/plots/plot.hpp"

namespace fp8lab {

class Fabric;

/// A run that shows one way to fail, at a glance: what a report begins with.
struct Headline {
  std::string title;       ///< the failure in a few words
  std::string sentence;    ///< what was measured, one sentence with its figures
  std::string plot;        ///< name of the run's plot that shows it
  std::string advice;      ///< what to do about it, one sentence
  std::string measure;     ///< what the two figures below are of
  std::string failing;     ///< the figure without a remedy, with its unit
  std::string mitigation;  ///< the remedy, in a few words
  std::string mitigated;   ///< the figure with it, with its unit
};

/// Everything that a run leaves behind.
struct Results {
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<HeatMap> heat_maps;
  std::vector<std::string> findings;  ///< sentences with measured figures and their setup
  std::optional<Headline> headline = std::nullopt;  ///< of experiments that show a failure mode
};

/// The inputs of one run. Results are a function of `parameters` and `seed`
/// only: not of `threads`, not of time, and not of `backend` where that agrees with the emulator.
struct RunContext {
  Parameters parameters;
  std::uint64_t seed = 0;
  int threads = 1;
  std::function<void(double fraction)> on_progress;  ///< may be empty; call from one thread
  Fabric* fabric = nullptr;  ///< what collectives run over; null: every rank in this process
  Backend backend{};         ///< what products of matrix units and casts of whole tensors run on

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
