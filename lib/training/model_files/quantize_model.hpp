#pragma once
// A model's folder to FP8, FP6 or FP4, in the layout of who serves it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "training/model_files/layout.hpp"
#include "training/model_files/model_directory.hpp"
#include "training/model_files/rewrite.hpp"

namespace fp8lab {

struct QuantizeModelOptions {
  std::string preset;  ///< the recipes of weights and inputs
  std::string layout;
  std::string rule;                                ///< which weights: `layer_rules()`
  std::vector<std::filesystem::path> calibration;  ///< samples of inputs: calibration.hpp
  std::vector<std::string> ignore = {};            ///< modules that stay: module_choice.hpp
  std::vector<std::string> only = {};              ///< if any: no other modules are converted
  std::vector<std::string> recipe_for = {};        ///< PATTERN=RECIPE: modules with another recipe
  std::string kv_cache = "none";                   ///< scales of the KV cache: kv_cache.hpp
};

/// A tensor that stays as it is.
struct KeptTensor {
  TensorSpec tensor;
  std::string reason;
};

struct QuantizedModel {
  WeightScheme scheme;
  std::vector<ModuleScheme> others;  ///< schemes of the modules of `recipe_for`
  std::vector<TensorSpec> converted;
  std::vector<KeptTensor> kept;
  std::vector<std::string> unused_samples;  ///< modules with samples that stay as they are
  std::vector<std::string> nan_weights;     ///< weights that have a NaN code, with how many
  std::vector<std::string> kv_scales;       ///< tensors of scales of the KV cache
  RewriteSummary files;
};

/// Writes `source` to the folder `target`: what the rule takes as codes and scales, all else
/// (norms, embeddings, biases, integers, FP8) as it is, config.json with `quantization_config`, and
/// the files beside them. Memory: some 50 MB, whatever the largest weight is (gpt-oss: two experts
/// more). The bits are those of `quantize(recipe, weight)`, whatever the number of threads. NVFP4
/// weights that serving systems fuse (siblings.hpp) share the amax of the tensor.
///
/// Throws `Error` for a recipe that the layout cannot say, elements that the recipe's system would
/// compute in another type, a rule that takes nothing, a model without config.json or that is
/// quantized already, two outputs of one name, and what `calibrate_inputs` and `rewrite_model`
/// throw.
QuantizedModel quantize_model(const ModelDirectory& source, const QuantizeModelOptions& options,
                              const std::filesystem::path& target,
                              const std::function<void(const RewriteProgress&)>& progress = {});

}  // namespace fp8lab
