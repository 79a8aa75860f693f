#pragma once
// Weights that serving systems join into one matrix, which then needs a common tensor scale:
// q_proj, k_proj and v_proj; gate_proj and up_proj; w1 and w3; of one parent module. Read in
// nvidia-modelopt 0.47.0, torch/export/unified_export_hf.py (modules of one input), and
// llmcompressor 0.14.0.1, modifiers/utils/helpers.py.

#include <map>
#include <string>

#include "training/model_files/model_directory.hpp"
#include "training/model_files/quantize_model.hpp"

namespace fp8lab {

/// Whether weights that are joined share a scale: NVFP4 but in torchao, whose loader joins nothing.
/// ModelOpt's export of FP8 with a scale a tensor keeps each weight's own (*compared*).
bool shares_tensor_scale(const Layout& layout, const WeightScheme& scheme);

/// The parent module and the joined name, `model.layers.0.self_attn.qkv`; empty for other modules.
std::string joined_module(std::string_view module);

/// The common amax of each converted module that is joined with another converted one. It reads
/// these weights. Modules with NaN or Inf in a joined weight are left out.
std::map<std::string, float> shared_amaxes(const ModelDirectory& source, const Recipe& recipe,
                                           const QuantizedModel& model);

/// Sets the input scale of joined modules to that of the module with the largest inputs: the
/// smallest multiplier, or the largest inverse scale.
void join_input_scales(std::map<std::string, float>& scales, bool are_multipliers);

}  // namespace fp8lab
