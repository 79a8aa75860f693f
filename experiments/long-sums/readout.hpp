#pragma once
// A linear readout of many positive features, trained under a recipe: the longest sums that a small
// run can have.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::experiments {

/// What the readout learns: a value with a standard deviation of 1 around `offset`, or, with
/// `classes` above 0, which of so many linear functions of the inputs is largest.
struct ReadoutTask {
  std::int64_t features = 0;  ///< K of every output
  std::int64_t classes = 0;
  double offset = 0.0;

  [[nodiscard]] std::int64_t outputs() const { return classes > 0 ? classes : 1; }
};

struct ReadoutSettings {
  std::int64_t inputs = 0;
  double bias = 0.0;
  std::int64_t batch = 0;
  train::Schedule schedule;  ///< its peak times the features
};

/// The loss of each step, before its update: squared error, or nats. The same features, targets and
/// first weights for every recipe.
std::vector<double> train_readout(const ReadoutSettings& settings, const ReadoutTask& task,
                                  const train::LinearRecipe& recipe, std::uint64_t seed,
                                  const Backend& backend);

}  // namespace fp8lab::experiments
