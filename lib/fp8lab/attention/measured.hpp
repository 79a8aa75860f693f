#pragma once
// What a kernel of attention did, measured from its output in FP64: the factor of its logits and of
// its outputs in each head, the columns that rows see, the weights of tiles, the heads of K and V,
// the order of V's rows. The exact values are turned into mistakes, whose bits decide.

#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/mistakes.hpp"

namespace fp8lab {

/// `rows` are wrong rows of `got` [heads, m, d_v]; a few in each head are enough. Adds what explains
/// them within the error of P's cast to `mistakes`. Returns what was measured, a sentence each.
std::vector<std::string> measure_attention(const AttentionInputs& inputs,
                                           const AttentionOptions& options,
                                           std::span<const float> got,
                                           std::span<const AttentionRows> rows,
                                           AttentionMistakes& mistakes);

}  // namespace fp8lab
