#pragma once
// The parameters of the accumulator-drift experiment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "accumulator-drift/operands.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {

struct DriftSettings {
  std::vector<std::int64_t> k;
  std::vector<Distribution> distributions;
  std::string own_a;  ///< a source of `Distribution::own`, or empty
  std::string own_b;
  double correlation = 0.0;
  std::vector<std::string> accumulators;
  std::vector<std::string> promoted;
  std::vector<std::int64_t> promotion_intervals;
  std::vector<std::int64_t> promotion_k;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t fit_k_min = 0;
  std::int64_t fit_k_max = 0;
  std::int64_t fit_repeats = 0;
  std::vector<std::int64_t> bf16_k;
  std::int64_t bf16_fit_k_min = 0;
  std::vector<std::string> bf16_accumulators;
  std::int64_t running_sum_k = 0;
  std::int64_t running_sum_step = 0;
  std::vector<std::int64_t> split_k;
  std::int64_t published_rows = 0;

  static constexpr auto fields() {
    using Self = DriftSettings;
    return std::tuple{field("k", &Self::k),
                      field("distributions", &Self::distributions, find_distribution),
                      field("own_a", &Self::own_a),
                      field("own_b", &Self::own_b),
                      field("correlation", &Self::correlation),
                      field("accumulators", &Self::accumulators),
                      field("promoted_accumulators", &Self::promoted),
                      field("promotion_intervals", &Self::promotion_intervals),
                      field("promotion_k", &Self::promotion_k),
                      field("rows", &Self::rows),
                      field("columns", &Self::columns),
                      field("fit_k_min", &Self::fit_k_min),
                      field("fit_k_max", &Self::fit_k_max),
                      field("fit_repeats", &Self::fit_repeats),
                      field("bf16_k", &Self::bf16_k),
                      field("bf16_fit_k_min", &Self::bf16_fit_k_min),
                      field("bf16_accumulators", &Self::bf16_accumulators),
                      field("running_sum_k", &Self::running_sum_k),
                      field("running_sum_step", &Self::running_sum_step),
                      field("split_k", &Self::split_k),
                      field("published_rows", &Self::published_rows)};
  }
  [[nodiscard]] std::int64_t outputs() const { return rows * columns; }
};

}  // namespace fp8lab::experiments
