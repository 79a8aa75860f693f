#pragma once
// The cost model as tables, for the experiment and for `fp8lab cost`.

#include <span>
#include <string_view>
#include <vector>

#include "lab/experiment/table.hpp"
#include "training/model/cost.hpp"

namespace fp8lab::experiments {

/// One model under several schemes; costs[i] belongs to schemes[i].
struct ModelCosts {
  TrainingSetup setup;
  std::vector<TrainingScheme> schemes;
  std::vector<TrainingCost> costs;

  /// The cost under the scheme called `name`. Throws `Error`.
  [[nodiscard]] const TrainingCost& of(std::string_view name) const;
};

ModelCosts model_costs(const TrainingSetup& setup, std::span<const TrainingScheme> schemes);

Table parameter_table(std::span<const TrainingScheme> schemes);
Table memory_table(std::span<const ModelCosts> models);
Table traffic_table(std::span<const ModelCosts> models);
Table zero_table(std::span<const ModelCosts> models);
Table activation_table(std::span<const ModelCosts> models);
Table block_table(std::span<const ModelShape> shapes);

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

}  // namespace fp8lab::experiments
