#pragma once
// What a kernel of attention did, measured from its output in FP64: the factor of its logits and of
// its outputs in each head, the columns that rows see, the weights of tiles, the heads of K and V,
// the order of V's rows. The exact values are turned into mistakes, whose bits decide.

#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/mistakes.hpp"

namespace fp8lab {

struct AttentionMeasurement {
  std::vector<std::string> lines;  ///< a sentence each
  /// The factor of the logits of each head, within a few percent; empty if none was found.
  std::vector<double> logit_factors;
};

/// `rows` are wrong rows of `got` [heads, m, d_v]; a few in each head are enough. Adds what
/// explains them within the error of P's cast to `mistakes`.
AttentionMeasurement measure_attention(const AttentionInputs& inputs,
                                       const AttentionOptions& options, std::span<const float> got,
                                       std::span<const AttentionRows> rows,
                                       AttentionMistakes& mistakes);

}  // namespace fp8lab
