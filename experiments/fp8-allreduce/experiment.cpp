#include "fp8lab/experiment/experiment.hpp"

#include "fp8-allreduce/parts.hpp"

namespace fp8lab::experiments {
namespace {

Setup read_setup(const RunContext& context) {
  Setup s;
  static_cast<ReductionSettings&>(s) = read_parameters<ReductionSettings>(context.parameters);
  s.context = context;
  s.fabric = context.fabric == nullptr ? &in_process_fabric() : context.fabric;
  if (!s.fabric->concurrent()) s.context.threads = 1;
  return s;
}

}  // namespace

Results fp8_allreduce(const RunContext& context) {
  const Setup s = read_setup(context);
  Results results;
  add_reductions(s, results);
  add_gathers(s, results);
  add_desync(s, results);
  return results;
}

}  // namespace fp8lab::experiments
