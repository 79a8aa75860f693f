#pragma once
// The experiment in three parts, each with its tables, plots and findings.

#include <string_view>
#include <vector>

#include "fp8-allreduce/reduce.hpp"
#include "fp8lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

struct Setup {
  Fabric* fabric = nullptr;
  RunContext context;  // with one thread where the fabric allows no more
  GradientShape shape;
  std::vector<int> ranks;
  std::vector<Topology> topologies;
  std::vector<WireFormat> wires;
  std::vector<ReduceScaling> schemes;
};

/// A list of rank counts. Throws `Error` for none, and for one outside of 1 to 4096.
std::vector<int> rank_counts(const Parameters& p, std::string_view key);

/// Topologies, wires and scales against the number of ranks.
void add_reductions(const Setup& s, Results& results);
/// Weights cast before or after an all-gather.
void add_gathers(const Setup& s, Results& results);
/// Ranks that disagree about the scale.
void add_desync(const Setup& s, Results& results);

}  // namespace fp8lab::experiments
