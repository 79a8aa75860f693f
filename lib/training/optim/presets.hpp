#pragma once
// The storage formats of real systems: FP8-LM's Table 6, MS-AMP's stages, COAT.

#include <optional>
#include <span>
#include <string_view>

#include "training/optim/adamw.hpp"

namespace fp8lab {

struct OptimizerPreset {
  std::string_view name;
  AdamWOptions options;  ///< formats; all other fields have their defaults
  /// The copy that GEMMs read, if it is not the master weight. The optimizer does
  /// not store it.
  std::optional<StateFormat> weight;
  std::string_view used_by;
};

/// fp32            FP8-LM Table 6 #0 (and #1, whose GEMMs read BF16)
/// fp8-lm          #2a: master FP16, m E4M3, v FP16, each with one power-of-two scale per tensor
/// fp8-lm-bf16-master, -fp8-master, -fp8-v    #2b, #3, #4
/// fp8-lm-unscaled, fp8-lm-fp8-v-unscaled     #2a and #4 without scales
/// ms-amp-o1, -o2, -o3   the stages of MS-AMP's documentation
/// coat, coat-unexpanded m and v in E4M3, groups of 128 elements, with and without expansion
///
/// FP8 gradients are E4M3 with a tensor scale (MS-AMP). The rows of Table 6 follow
/// the description in the paper's text.
std::span<const OptimizerPreset> optimizer_presets();

/// The preset called `name`. Throws `Error` that lists the names.
const OptimizerPreset& find_optimizer_preset(std::string_view name);

}  // namespace fp8lab
