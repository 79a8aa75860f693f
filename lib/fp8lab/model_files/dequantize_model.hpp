#pragma once
// A quantized model's folder back to floats.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/model_files/model_directory.hpp"
#include "fp8lab/model_files/rewrite.hpp"

namespace fp8lab {

struct DequantizeModelOptions {
  std::string layout;               ///< empty: what config.json says
  std::optional<ElementType> type;  ///< of the weights; unset: the model's (config.json's dtype)
};

struct DequantizedModel {
  std::vector<TensorSpec> converted;  ///< as they are written
  std::vector<std::string>
      without_scale;  ///< FP8 tensors that stay, since no scale belongs to them
  RewriteSummary files;
};

/// Writes `source`, which is in one of `layouts()`, to the folder `target`: weights as code * scale
/// (a binary32 product to nearest even, rounded once more to `type`; two levels of scales are
/// multiplied, or divided where the upper one is a multiplier, in binary32 first), without scales
/// and `quantization_config`, everything else as it is. A scale may be in another shard than its
/// codes.
///
/// Throws `Error` for a model that is not quantized, or by another method; a type that neither
/// options nor config.json name; scales of a shape that fits no tiles; and what `rewrite_model`
/// throws.
DequantizedModel dequantize_model(const ModelDirectory& source,
                                  const DequantizeModelOptions& options,
                                  const std::filesystem::path& target,
                                  const std::function<void(const RewriteProgress&)>& progress = {});

}  // namespace fp8lab
