#pragma once
// The tensors of a quantized model's folder, sorted: weights with their scales, scales of inputs
// and of the KV cache, and what does not fit together.

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/model_directory.hpp"
#include "training/model_files/stored_quantization.hpp"
#include "training/model_files/stored_weight.hpp"

namespace fp8lab {

/// What the scales of a module that are not its weight's belong to.
enum class SideScale : std::uint8_t { input, output, kv_cache, attention, marker, none };

/// By the ending of its name (`input_scale`, `k_scale` ...); `none` for other names.
SideScale side_scale(std::string_view name);
std::string_view to_string(SideScale side);

struct SideTensor {
  StoredTensor tensor = {};
  SideScale side = SideScale::none;
  std::string module = {};  ///< the name before the ending; of `NAME_input_scale`: NAME
  bool has_weight = false;  ///< whether the module has a quantized weight
};

/// Something that makes a tensor unreadable.
struct StoredFault {
  std::string kind = {};  ///< "missing scale", "scale without codes", "shape", "unknown tensor"
  std::string tensor = {};
  std::string text = {};  ///< `expected ..., got ...`
};

struct StoredModel {
  StoredQuantization stored = {};
  std::vector<StoredWeight> weights = {};  ///< in the order of shards
  std::vector<SideTensor> sides = {};
  std::vector<TensorSpec> kept_codes =
      {};  ///< FP8 tensors of modules that the configuration ignores
  std::vector<StoredFault> faults = {};
  std::set<std::string> scales = {};  ///< names of the scales of `weights`
};

/// What config.json and hf_quant_config.json of a folder say. Throws `Error` if neither describes a
/// quantization, naming FP8 tensors if there are any. Of weights that stand alone it has no family
/// and no method: names and types say what they are.
StoredQuantization read_stored_quantization(const ModelDirectory& source);

/// Sorts all tensors. What cannot be read is a fault; nothing is thrown for it.
StoredModel read_stored_model(const ModelDirectory& source, StoredQuantization stored);

}  // namespace fp8lab
