#pragma once
// What lies between counted and published memory, as stated assumptions.

#include <string>
#include <string_view>
#include <vector>

#include "cost/published.hpp"
#include "lab/experiment/table.hpp"
#include "training/model/cost.hpp"

namespace fp8lab::experiments {

/// A model of the paper under one scheme, GiB a GPU.
struct MemoryGap {
  std::string model;
  std::string scheme;       ///< bf16 or fp8-lm
  double counted = 0.0;     ///< weights, gradients, states, activations
  double transposed = 0.0;  ///< *assumed*: an FP8 copy of each transposed block weight, which dgrad
                            ///< reads along its own k; fp8-lm alone
  double overhead = 0.0;    ///< *fitted*: allocator, logits, buffers of NCCL, workspaces
  double published = 0.0;

  [[nodiscard]] double total() const { return counted + transposed + overhead; }
};

/// All models of Table 5, bf16 before fp8-lm. The overhead is one constant: the mean of what is
/// missing in the three BF16 rows. FP8-LM's rows are then predictions.
std::vector<MemoryGap> memory_gaps();

/// The rows of `model`; of all models where it is empty.
Table memory_gap_table(std::string_view model = {});

/// ` (published: 29.0 %; with the assumptions of memory_published: 30.1 %)`; empty for a model that
/// the paper does not have.
std::string published_saving_text(const TrainingSetup& setup);

}  // namespace fp8lab::experiments
