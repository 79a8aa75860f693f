#include "lab/experiment/experiment.hpp"

#include <vector>

#include "common/repeats.hpp"
#include "fp8-allreduce/parts.hpp"

namespace fp8lab::experiments {
namespace {

Setup make_setup(const RunContext& context, const ReductionSettings& settings) {
  Setup s;
  static_cast<ReductionSettings&>(s) = settings;
  s.context = context;
  s.fabric = context.fabric == nullptr ? &in_process_fabric() : context.fabric;
  if (!s.fabric->concurrent()) s.context.threads = 1;
  return s;
}

std::vector<Setup> make_repeats(const RunContext& context, const ReductionSettings& settings) {
  return measure_repeats(context, settings.repeats,
                         [&](const RunContext& one) { return make_setup(one, settings); });
}

}  // namespace

Results fp8_allreduce(const RunContext& context) {
  const auto settings = read_parameters<ReductionSettings>(context.parameters);
  Results results;
  // Each stage goes through all repeats.
  add_reductions(make_repeats(part_of(context, 0.0, 0.8), settings), results);
  add_gathers(make_repeats(part_of(context, 0.8, 0.9), settings), results);
  add_desync(make_repeats(part_of(context, 0.9, 1.0), settings), results);
  return results;
}

}  // namespace fp8lab::experiments
