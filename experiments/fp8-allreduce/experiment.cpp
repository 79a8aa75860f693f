#include "fp8lab/experiment/experiment.hpp"

#include <cmath>
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

/// The repeats of a stage, which goes through all of them, with its share of the run's progress.
std::vector<Setup> stage(const RunContext& context, const ReductionSettings& settings, double from,
                         double to) {
  RunContext part = context;
  if (context.on_progress)
    part.on_progress = [report = context.on_progress, from, to](double fraction) {
      report(std::lerp(from, to, fraction));
    };
  return measure_repeats(part, settings.repeats,
                         [&](const RunContext& one) { return make_setup(one, settings); });
}

}  // namespace

Results fp8_allreduce(const RunContext& context) {
  const auto settings = read_parameters<ReductionSettings>(context.parameters);
  Results results;
  add_reductions(stage(context, settings, 0.0, 0.8), results);
  add_gathers(stage(context, settings, 0.8, 0.9), results);
  add_desync(stage(context, settings, 0.9, 1.0), results);
  return results;
}

}  // namespace fp8lab::experiments
