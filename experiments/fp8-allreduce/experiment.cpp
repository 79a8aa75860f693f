#include "fp8lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <string>

#include "common/names.hpp"
#include "fp8-allreduce/parts.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

Setup read_setup(const RunContext& context) {
  const Parameters& p = context.parameters;
  Setup s;
  s.context = context;
  s.fabric = context.fabric == nullptr ? &in_process_fabric() : context.fabric;
  if (!s.fabric->concurrent()) s.context.threads = 1;
  s.shape = {positive(p, "elements"), p.real("decades"), p.real("noise_to_signal")};
  s.ranks = rank_counts(p, "ranks");
  for (const std::string& name : p.texts("topologies")) s.topologies.push_back(find_topology(name));
  for (const std::string& name : p.texts("wires")) s.wires.push_back(find_wire_format(name));
  for (const std::string& name : p.texts("schemes")) s.schemes.push_back(find_reduce_scaling(name));
  return s;
}

}  // namespace

std::vector<int> rank_counts(const Parameters& p, std::string_view key) {
  std::vector<int> counts;
  for (const std::int64_t ranks : p.integers(key)) {
    require(ranks >= 1 && ranks <= 4096, key, "integers from 1 to 4096", fmt::format("{}", ranks));
    counts.push_back(static_cast<int>(ranks));
  }
  require(!counts.empty(), key, "at least one", "none");
  return counts;
}

Results fp8_allreduce(const RunContext& context) {
  const Setup s = read_setup(context);
  Results results;
  add_reductions(s, results);
  add_gathers(s, results);
  add_desync(s, results);
  return results;
}

}  // namespace fp8lab::experiments
