#pragma once
// An experiment, the inputs of a run, and its results.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "lab/experiment/parameters.hpp"
#include "lab/experiment/table.hpp"
#include "lab/plots/plot.hpp"

namespace fp8lab {

class Fabric;

/// The summary of a run that shows a failure mode. Reports begin with it.
struct Headline {
  /// A curve of the plot: how its label begins, and its name in a small picture.
  struct Curve {
    std::string label;
    std::string name;
  };
  std::string title;            ///< the failure in a few words
  std::string sentence;         ///< the measurement in one sentence, with figures
  std::string plot;             ///< name of the run's plot that shows it
  std::string advice;           ///< the advice, one sentence
  std::string measure;          ///< the quantity of the two figures below
  std::string failing;          ///< the figure without a remedy, with its unit
  std::string mitigation;       ///< the remedy, in a few words
  std::string mitigated;        ///< the figure with the remedy, with its unit
  std::vector<Curve> curves{};  ///< of a small picture: without the remedy and with it; empty: all
};

/// All results of a run.
struct Results {
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<HeatMap> heat_maps;
  std::vector<std::string> findings;  ///< sentences with measured figures and their setup
  std::optional<Headline> headline = std::nullopt;  ///< of experiments that show a failure mode
};

/// The inputs of one run. Results are a function of `parameters` and `seed`
/// only. They do not depend on `threads`, on time, or on a `backend` with the emulator's bits.
struct RunContext {
  Parameters parameters;
  std::uint64_t seed = 0;
  int threads = 1;
  std::function<void(double fraction)> on_progress;  ///< may be empty; call from one thread
  Fabric* fabric = nullptr;  ///< fabric of collectives; null: every rank in this process
  Backend backend{};         ///< computes products of matrix units and casts of tensors

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

}  // namespace fp8lab
