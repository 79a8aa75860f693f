#pragma once
// The rows of FP8-LM's Table 6 by name: what the GEMMs read and what the
// optimizer stores.

#include <string>

#include "train/variants.hpp"
#include "training/optim/adamw.hpp"

namespace fp8lab::experiments {

struct OptimizerRow {
  std::string name;
  Variant variant;  ///< arithmetic of the blocks' linear layers
  AdamWOptions states;
  bool scaled = true;  ///< states that are not FP32 have the scales of their preset
};

/// `NAME`: a preset of `optim` under BF16 GEMMs, but `fp32` under FP32 ones; `bf16` is
/// FP32 AdamW under BF16 GEMMs. `NAME-unscaled`: the same formats without any
/// scale.
/// Throws `Error` that lists the names.
OptimizerRow find_optimizer_row(const std::string& name);

}  // namespace fp8lab::experiments
