#include "data-parallel/workers.hpp"

#include <algorithm>

namespace fp8lab::experiments {

ParallelRun train_parallel(Fabric& fabric, const StudySettings& settings, const Variant& variant,
                           const train::ParallelOptions& options, std::uint64_t seed) {
  train::ParallelTrainer trainer(fabric, trainer_options(settings, variant, {}, seed),
                                 training_data(settings, seed), options);
  ParallelRun run;
  const std::int64_t every = std::max<std::int64_t>(
      1, settings.schedule.steps / std::max<std::int64_t>(1, settings.samples));
  for (std::int64_t step = 0; step < settings.schedule.steps; ++step)
    run.losses.push_back(trainer.step(pass_context(settings), step % every == every - 1).loss);
  const train::GradientReducer& reducer = trainer.reducer();
  run.underflow_percent = reducer.underflow_percent();
  run.saturated_percent = reducer.saturated_percent();
  run.sqnr_db = reducer.sqnr_db();
  run.smallest_mu = reducer.smallest_mu();
  run.bytes_per_step =
      static_cast<double>(reducer.bytes_sent()) / static_cast<double>(run.losses.size());
  run.parameters = trainer.parameter_count();
  run.state_bytes = trainer.memory().largest;
  return run;
}

}  // namespace fp8lab::experiments
