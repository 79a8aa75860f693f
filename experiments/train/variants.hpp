#pragma once
// The runs that `train` compares, by name.

#include <string>
#include <vector>

#include "training/train/model.hpp"

namespace fp8lab::experiments {

/// One way to train the same model on the same data.
struct Variant {
  std::string group;  ///< `reference`, `naive`, `mitigation`, `preset`
  std::string name;
  train::LinearRecipe recipe;
  double loss_scale = 1.0;
  bool outliers = false;  ///< feature channels are scaled up (`outlier_channels`, `outlier_log2`)
};

/// The variant called `name`; the ending `+outliers` sets the outliers up. Throws
/// `Error` that lists the names.
Variant find_variant(const std::string& name);

/// One setting of a ladder: the same failure from mild to severe.
struct LadderStep {
  std::string ladder;
  std::string what;  ///< what is being changed, with its unit
  double value = 0.0;
  Variant variant;
  train::OutlierChannels outliers;
};

/// `underflow`: casts without a scale, the gradient multiplied by 2^value.
/// `outliers`, `outliers-rowwise`, `outliers-mx`: channels 2^value times larger.
/// `accumulator`: per-tensor scales, no promotion, value fraction bits in every sum;
/// `accumulator-promoted`: the same, promoted every 32 terms. Throws `Error`.
std::vector<LadderStep> find_ladder(const std::string& name, const std::vector<double>& values,
                                    std::int64_t outlier_channels);

}  // namespace fp8lab::experiments
