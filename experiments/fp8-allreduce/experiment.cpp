#include "fp8lab/experiment/experiment.hpp"

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

}  // namespace

Results fp8_allreduce(const RunContext& context) {
  const auto settings = read_parameters<ReductionSettings>(context.parameters);
  const std::vector<Setup> repeats = measure_repeats(
      context, settings.repeats, [&](const RunContext& one) { return make_setup(one, settings); });
  Results results;
  add_reductions(repeats, results);
  add_gathers(repeats, results);
  add_desync(repeats, results);
  return results;
}

}  // namespace fp8lab::experiments
