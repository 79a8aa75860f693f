#pragma once
// Runs an experiment in its quick form with some of its parameters changed.

#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/registry.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab {

inline Results run_quick(std::string_view name, int threads,
                         const std::vector<std::string>& assignments = {},
                         const Backend& backend = {}) {
  const Experiment& experiment = find_experiment(name);
  RunContext context;
  context.parameters = Parameters::from_toml(experiment.default_toml, true);
  for (const std::string& assignment : assignments) context.parameters.set(assignment);
  context.seed = 7;
  context.threads = threads;
  context.backend = backend;
  return experiment.run(context);
}

/// The CSV of all tables, each under its name; equal text is equal bits.
inline std::string all_csv(const Results& results) {
  std::string text;
  for (const Table& table : results.tables) text += "# " + table.name() + "\n" + table.csv();
  return text;
}

/// The table called `name`; throws std::out_of_range if there is none.
inline const Table& table_named(const Results& results, std::string_view name) {
  for (const Table& table : results.tables)
    if (table.name() == name) return table;
  throw std::out_of_range("no table " + std::string(name));
}

}  // namespace fp8lab
