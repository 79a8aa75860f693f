#pragma once
// Scales of the KV cache in a model's files: K and V of each attention, from samples of them.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/layout.hpp"
#include "training/model_files/model_directory.hpp"

namespace fp8lab {

/// By its name: `none`, `tensor` or `head`. Throws `Error` for another one.
KvScales find_kv_scales(std::string_view name);

/// A tensor of scales, and the weight that it stands beside.
struct KvScale {
  TensorSpec spec = {};
  std::vector<float> values = {};
};

/// The scales of all attentions of a model, by the name of the weight (k_proj or v_proj): amax /
/// 448 of all samples, in binary32, as ModelOpt exports it (nvidia-modelopt 0.47.0,
/// torch/export/quant_utils.py, *read*). Value = code * scale. `heads`: of keys and values, where
/// each has a scale.
///
/// compressed-tensors: `ATTENTION.k_scale` [1] or [heads, 1, 1]; modelopt: `k_proj.k_scale` [].
///
/// Samples are `ATTENTION.k_proj.output` and `v_proj.output` (also with `.0`, `.1` ... behind),
/// floats [..., heads * head_dim] of .safetensors files.
///
/// Throws `Error` for a layout that has no scales of the cache, or not those of heads, a model
/// without k_proj and v_proj, a missing sample, and one that is not finite, all zeros or of columns
/// that heads do not divide.
std::map<std::string, KvScale> calibrate_kv_cache(const ModelDirectory& source,
                                                  const Layout& layout, KvScales scales,
                                                  std::int64_t heads,
                                                  const std::vector<std::filesystem::path>& files);

/// Whether a sample is one of keys or values rather than of inputs.
bool is_kv_sample(std::string_view name);

}  // namespace fp8lab
