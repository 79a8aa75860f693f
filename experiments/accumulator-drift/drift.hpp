#pragma once
// What an accumulator loses: products under a model against the exact sums of
// the same codes, so that nothing but the accumulation is measured; and the
// error of a whole pipeline, one stage at a time.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "accumulator-drift/operands.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/metrics/comparison.hpp"

namespace fp8lab::experiments {

/// D [m,n] in code units under `model`. Products and casts here run on `backend`.
std::vector<double> accumulate(const QuantizedOperands& operands, const AccumulatorModel& model,
                               std::int64_t promotion_interval, int threads,
                               const Backend& backend = {});

/// The error of the accumulation alone, over all outputs.
Comparison accumulation_error(const QuantizedOperands& operands, const AccumulatorModel& model,
                              std::int64_t promotion_interval, int threads,
                              const Backend& backend = {});
/// The same on BF16 operands, whose products have 16 significant bits.
Comparison accumulation_error(const Bf16Operands& operands, const AccumulatorModel& model,
                              std::int64_t promotion_interval, int threads,
                              const Backend& backend = {});

/// The running sums of the first row and column after every `step` products, in
/// units of the operands. Throws `Error` unless `step` and `promotion_interval`
/// are positive multiples of the model's terms and k is at least one step.
struct RunningSums {
  std::vector<double> k;
  std::vector<double> exact;
  std::vector<double> unpromoted;
  std::vector<double> promoted;
};
RunningSums running_sums(const QuantizedOperands& operands, const AccumulatorModel& model,
                         std::int64_t promotion_interval, std::int64_t step);

/// The stages between BF16 operands and an output, each on or swapped for exact.
struct Stages {
  bool input_quantization = true;
  bool product_rounding = true;
  bool accumulation = true;
  bool output_rounding = true;
};

/// A way to compute a product with FP8 inputs.
struct Pipeline {
  std::string_view name;
  std::string_view accumulator;  ///< a registered model
  std::int64_t promotion_interval = 0;
  bool seed_cast = false;   ///< the listing's cast, without scales; else E4M3 with amax scales
  bool bf16_output = true;  ///< else the output is not rounded
};

/// The relative L2 error over all outputs against the exact product of the BF16 operands.
double pipeline_error(const Bf16Operands& operands, const Pipeline& pipeline, const Stages& on,
                      int threads, const Backend& backend = {});

}  // namespace fp8lab::experiments
