#pragma once
// A quantized model's folder back to floats.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/model_files/model_directory.hpp"
#include "training/model_files/rewrite.hpp"
#include "training/model_files/stored_weight.hpp"

namespace fp8lab {

struct DequantizeModelOptions {
  std::string layout;               ///< empty: what config.json says
  std::optional<ElementType> type;  ///< of the weights; unset: the model's (config.json's dtype)
};

/// A tensor of the source that the floats do not need.
struct DroppedTensor {
  std::string name;
  std::string of;  ///< "input", "output", "KV cache" or "attention"
};

struct DequantizedModel {
  std::vector<TensorSpec> converted;     ///< as they are written
  std::vector<std::string> kept_codes;   ///< FP8 tensors that stay: the configuration ignores them
  std::vector<DroppedTensor> dropped;    ///< scales of inputs, outputs and of the KV cache
  std::vector<std::string> kept_scales;  ///< input scales of modules without codes: they stay
  std::vector<NonFiniteWeight> non_finite;
  RewriteSummary files;
};

/// Writes `source`, in any layout of `stored_names()`, to the folder `target`: weights as code *
/// scale (a binary32 product to nearest even, rounded once more to `type`; two levels of scales are
/// multiplied, or divided where the upper one is a multiplier, in binary32 first), without scales
/// and `quantization_config`, everything else as it is. A scale may be in another shard than its
/// codes. The whole model is converted or nothing is written.
///
/// Throws `Error` for a model that is not quantized, or by another method; a type that neither
/// options nor config.json name; codes without scales and scales without codes, unless the
/// configuration ignores their module; scales of a shape that fits no tiles; tensors of a quantized
/// module that change its values and are not read (`pre_quant_scale`); and what `rewrite_model`
/// throws.
DequantizedModel dequantize_model(const ModelDirectory& source,
                                  const DequantizeModelOptions& options,
                                  const std::filesystem::path& target,
                                  const std::function<void(const RewriteProgress&)>& progress = {});

}  // namespace fp8lab
