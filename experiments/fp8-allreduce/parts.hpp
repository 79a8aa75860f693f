#pragma once
// The experiment in three parts, each with its tables, plots and findings.

#include <cstddef>
#include <tuple>
#include <vector>

#include "fp8-allreduce/reduce.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {

struct ReductionSettings {
  GradientShape shape;
  std::vector<int> ranks;
  std::vector<Topology> topologies;
  std::vector<WireFormat> wires;
  std::vector<ReduceScaling> schemes;
  std::size_t gather_elements = 0;
  std::vector<int> gather_ranks;
  double shard_octaves = 0.0;
  std::vector<int> desync_ranks;
  std::vector<double> desync_octaves;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    using Self = ReductionSettings;
    return std::tuple{group(&Self::shape),
                      field("ranks", &Self::ranks),
                      field("topologies", &Self::topologies, find_topology),
                      field("wires", &Self::wires, find_wire_format),
                      field("schemes", &Self::schemes, find_reduce_scaling),
                      field("gather_elements", &Self::gather_elements),
                      field("gather_ranks", &Self::gather_ranks),
                      field("shard_octaves", &Self::shard_octaves),
                      field("desync_ranks", &Self::desync_ranks),
                      field("desync_octaves", &Self::desync_octaves),
                      field("repeats", &Self::repeats)};
  }
};

struct Setup : ReductionSettings {
  Fabric* fabric = nullptr;
  RunContext context;  // of one repeat, with one thread where the fabric allows no more
};

/// Topologies, wires and scales against the number of ranks.
void add_reductions(const std::vector<Setup>& repeats, Results& results);
/// Weights cast before or after an all-gather.
void add_gathers(const std::vector<Setup>& repeats, Results& results);
/// Ranks that disagree about the scale.
void add_desync(const std::vector<Setup>& repeats, Results& results);

}  // namespace fp8lab::experiments
