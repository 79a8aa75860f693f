// Scales of inputs and of the KV cache, and upper levels of weights that servers join.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "fp8lab/core/counted.hpp"
#include "training/model_files/check_parts.hpp"
#include "training/model_files/siblings.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kMostValues = 1 << 16;

/// Keys and values have an amax of at most some hundreds: amax / 448 is below 1.
constexpr float kLargestKv = 16.0F;
constexpr float kLeastKvMultiplier = 2688.0F / (448.0F * kLargestKv);
/// Inputs of layers have an amax of some tens in the median of a model.
constexpr double kLargestInput = 1e4;
/// Joined weights have one input, so their scales are the same but for the calibration.
constexpr double kUnlikeJoined = 16.0;
/// The same layer of other blocks has inputs of similar size; only the last projection of a block
/// has massive ones.
constexpr double kUnlikeInput = 256.0;
constexpr double kUnlikeMassive = 65536.0;

bool has_massive_inputs(std::string_view module) {
  for (const std::string_view leaf : {"down_proj", "w2", "fc2", "dense_4h_to_h", "out_proj"})
    if (module.ends_with(leaf)) return true;
  return false;
}

std::vector<float> values_of(const ModelDirectory& source, const StoredTensor& tensor) {
  const std::unique_ptr<SafetensorsFile> file = source.open(tensor.shard);
  return to_float(file->find(tensor.spec.name));
}

bool holds_numbers(const TensorSpec& spec) {
  return is_float_of_32_bits_or_fewer(spec.type) &&
         element_count(spec.shape, spec.name) <= kMostValues;
}

std::string kind_of(SideScale side) {
  return side == SideScale::input      ? "input scale"
         : side == SideScale::kv_cache ? "KV scale"
                                       : "attention scale";
}

class SideCheck {
 public:
  SideCheck(const ModelDirectory& source, const StoredModel& model, std::vector<Finding>& findings)
      : source_(source), model_(model), findings_(findings) {}

  void run() {
    for (const SideTensor& side : model_.sides) check_side(side);
    check_missing_inputs();
    check_extra_inputs();
    check_sizes_of_inputs();
    check_kv();
    check_joined();
  }

 private:
  void tell(std::string kind, const std::string& name, std::string text) {
    findings_.push_back({std::move(kind), name, std::move(text)});
  }

  void check_side(const SideTensor& side) {
    if (side.side == SideScale::marker) return;
    const TensorSpec& spec = side.tensor.spec;
    if (!holds_numbers(spec)) {
      tell(kind_of(side.side), spec.name,
           fmt::format("expected floats, got {} {}", to_string(spec.type), shape_text(spec.shape)));
      return;
    }
    if (spec.name.ends_with("zero_point")) return;
    const std::vector<float> values = values_of(source_, side.tensor);
    const bool is_bias = spec.name.ends_with("_bias");
    for (const float value : values)
      if (!std::isfinite(value) || (value <= 0.0F && !is_bias)) {
        tell(kind_of(side.side), spec.name,
             fmt::format("expected a finite {}, got {}", is_bias ? "offset" : "scale above 0",
                         value));
        break;
      }
    if (side.side == SideScale::kv_cache && !is_bias) check_kv_values(spec, values);
    if (side.side != SideScale::input) return;
    const std::string& owner = side.module;
    if (!owner.empty()) inputs_[owner] = values.empty() ? 0.0F : values[0];
    if (!owner.empty() && !side.has_weight && !is_faulty(owner))
      tell("scale without codes", spec.name,
           fmt::format("expected codes of {}, whose inputs it scales, got none", owner));
  }

  /// One number, or one for each head of keys and values; sizes that an amax can give.
  void check_kv_values(const TensorSpec& spec, const std::vector<float>& values) {
    const std::int64_t heads = number_in_config(source_, {"num_key_value_heads"});
    const auto count = std::ssize(values);
    if (count != 1 && heads > 0 && count % heads != 0)
      tell("KV scale", spec.name,
           fmt::format("expected one scale, or one for each of {}, got {}", counted(heads, "head"),
                       shape_text(spec.shape)));
    // Of NVFP4, 2688 / amax multiplies keys and values; other scales divide them.
    const bool multiplies = spec.name.ends_with("_global_scale");
    const auto wrong = std::find_if(values.begin(), values.end(), [&](float value) {
      return std::isfinite(value) &&
             (multiplies ? value > 0.0F && value < kLeastKvMultiplier : value > kLargestKv);
    });
    if (wrong != values.end())
      tell("KV scale", spec.name,
           fmt::format("expected a scale of {} {}, got {}: a reciprocal",
                       multiplies ? "at least" : "up to",
                       multiplies ? kLeastKvMultiplier : kLargestKv, *wrong));
  }

  /// Whether the codes of a module are a fault already.
  [[nodiscard]] bool is_faulty(const std::string& module) const {
    return std::any_of(model_.faults.begin(), model_.faults.end(),
                       [&](const StoredFault& fault) { return fault.tensor.starts_with(module); });
  }

  /// Whether the configuration says that the inputs of a module have scales in the files.
  [[nodiscard]] std::optional<bool> has_static_inputs(std::string_view module) const {
    const FormGroup* group = model_.stored.group_of(module);
    if (group != nullptr) return group->static_inputs;
    if (model_.stored.static_inputs) return true;
    if (model_.stored.has_dynamic_inputs) return false;
    return std::nullopt;
  }

  void check_missing_inputs() {
    bool says = false;
    for (const StoredWeight& weight : model_.weights) {
      const std::optional<bool> is_static = has_static_inputs(weight.module);
      says = says || is_static.has_value();
      if (is_static.value_or(false) && !inputs_.contains(weight.module))
        tell("input scale", weight.module,
             fmt::format("expected a scale of its inputs, since {} says that they are static, got "
                         "none",
                         model_.stored.where));
    }
    if (!says) check_uneven_inputs();
  }

  void check_extra_inputs() {
    for (const StoredWeight& weight : model_.weights)
      if (inputs_.contains(weight.module) && !has_static_inputs(weight.module).value_or(true))
        tell("input scale", weight.module,
             fmt::format("expected no scale of its inputs, which {} computes at run time, got one",
                         model_.stored.where));
  }

  /// The amax of inputs that a scale stands for; 0 where it is not a number above 0.
  [[nodiscard]] double input_amax(const StoredWeight& weight) const {
    const auto found = inputs_.find(weight.module);
    if (found == inputs_.end() || !std::isfinite(found->second) || found->second <= 0.0F)
      return 0.0;
    const double scale = found->second;
    if (weight.form.scales != ScaleKind::two_level) return 448.0 * scale;
    return weight.names->divides ? 2688.0 / scale : 2688.0 * scale;
  }

  /// Reciprocals, by the sizes of inputs that scales stand for.
  void check_sizes_of_inputs() {
    std::map<std::string, std::vector<double>> leaves;
    std::map<std::string, std::vector<double>> joined;
    std::vector<double> all;
    for (const StoredWeight& weight : model_.weights) {
      const double amax = input_amax(weight);
      if (amax == 0.0) continue;
      all.push_back(amax);
      leaves[leaf_of(weight)].push_back(amax);
      joined[joined_module(weight.module)].push_back(amax);
    }
    if (all.empty()) return;
    const double middle = median(all);
    if (middle > kLargestInput)
      tell(
          "input scale", "",
          fmt::format("expected scales that stand for inputs of up to some hundreds, got {:.3g} in "
                      "the median of {}: reciprocals",
                      middle, counted(all.size(), "module")));
    for (const StoredWeight& weight : model_.weights) {
      const double amax = input_amax(weight);
      if (amax == 0.0 || middle > kLargestInput) continue;
      const double limit = has_massive_inputs(weight.module) ? kUnlikeMassive : kUnlikeInput;
      const std::vector<double>& leaf = leaves[leaf_of(weight)];
      const std::string whole = joined_module(weight.module);
      if (leaf.size() > 2)
        tell_unlike(weight, amax, median(leaf), limit, "in the same layer of other blocks");
      else if (!whole.empty() && joined[whole].size() > 1)
        tell_unlike(weight, amax, median(joined[whole]), kUnlikeJoined,
                    "in the layers that have the same input");
    }
  }

  void tell_unlike(const StoredWeight& weight, double amax, double middle, double limit,
                   std::string_view where) {
    if (amax <= limit * middle && middle <= limit * amax) return;
    tell("input scale", weight.module,
         fmt::format("expected a scale of inputs of about {:.3g}, as {}, got one of {:.3g}", middle,
                     where, amax));
  }

  static std::string leaf_of(const StoredWeight& weight) {
    return fmt::format("{} {}", describe(weight.form),
                       weight.module.substr(weight.module.rfind('.') + 1));
  }

  static double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  /// Without a word in the configuration, modules of one form have input scales, or none has.
  void check_uneven_inputs() {
    std::map<std::string, std::vector<const StoredWeight*>> forms;
    for (const StoredWeight& weight : model_.weights)
      forms[describe(weight.form)].push_back(&weight);
    for (const auto& [form, weights] : forms) {
      const auto count = std::count_if(weights.begin(), weights.end(), [&](const auto* weight) {
        return inputs_.contains(weight->module);
      });
      if (count * 2 <= std::ssize(weights)) continue;
      for (const StoredWeight* weight : weights)
        if (!inputs_.contains(weight->module))
          tell("input scale", weight->module,
               "expected a scale of its inputs, which most other weights have, got none");
    }
  }

  /// "model.layers.3." and "k", "v" or "kv" of a KV scale.
  void check_kv() {
    std::map<std::string, std::set<std::string>> layers;
    for (const SideTensor& side : model_.sides) {
      const std::string& name = side.tensor.spec.name;
      if (side.side != SideScale::kv_cache || name.ends_with("_bias")) continue;
      if (!model_.stored.quantizes_kv && model_.stored.has_forms)
        tell("KV scale", name,
             fmt::format("expected a scheme for the KV cache in {}, got none: servers ignore the "
                         "scale",
                         model_.stored.where));
      const std::size_t attention = name.find("attn");
      const std::string layer =
          name.substr(0, attention == std::string::npos ? name.rfind('.') : attention + 4);
      const std::string leaf = name.substr(name.rfind('.') + 1);
      const bool is_value = leaf.starts_with("v") || name.find("v_proj") != std::string::npos;
      layers[layer].insert(leaf.starts_with("kv") ? "kv" : is_value ? "v" : "k");
    }
    for (const auto& [layer, parts] : layers)
      for (const char* part : {"k", "v"})
        if (!parts.contains(part) && !parts.contains("kv"))
          tell("KV scale", layer,
               fmt::format("expected a {}_scale beside the other, got none", part));
    check_missing_kv(layers);
  }

  void check_missing_kv(const std::map<std::string, std::set<std::string>>& layers) {
    std::set<std::string> attentions;
    for (const WeightShard& shard : source_.shards())
      for (const TensorSpec& tensor : shard.tensors) {
        const std::size_t at = tensor.name.find("attn.k_proj.");
        if (at != std::string::npos) attentions.insert(tensor.name.substr(0, at + 4));
      }
    const bool is_static = model_.stored.kv_is_static;
    if (!is_static && layers.empty()) return;
    for (const std::string& attention : attentions)
      if (!layers.contains(attention))
        tell("KV scale", attention,
             is_static
                 ? "expected k_scale and v_scale, since the scheme of the KV cache is static, "
                   "got none"
                 : "expected k_scale and v_scale, which other layers have, got none");
  }

  /// Servers keep one upper level for q, k and v, and for gate and up.
  void check_joined() {
    std::map<std::string, std::map<std::string, float>> weights;
    std::map<std::string, std::map<std::string, float>> inputs;
    for (const StoredWeight& weight : model_.weights) {
      const std::string whole = joined_module(weight.module);
      if (whole.empty() || weight.form.scales != ScaleKind::two_level || !weight.tensor_scale ||
          weight.names->codes == "._weight_qdata")  // torchao joins none
        continue;
      const std::vector<float> upper = values_of(source_, *weight.tensor_scale);
      weights[whole][weight.tensor_scale->spec.name] = upper.empty() ? 0.0F : upper[0];
      const auto input = inputs_.find(weight.module);
      if (input != inputs_.end()) inputs[whole][weight.module + "'s input"] = input->second;
    }
    for (const auto* all : {&weights, &inputs})
      for (const auto& [whole, scales] : *all) {
        const auto& [first, value] = *scales.begin();
        for (const auto& [name, scale] : scales)
          if (scale != value)
            tell("joined", name,
                 fmt::format("expected {}, the scale of {}, since servers join these weights "
                             "under one, got {}",
                             value, first, scale));
      }
  }

  const ModelDirectory& source_;
  const StoredModel& model_;
  std::vector<Finding>& findings_;
  std::map<std::string, float> inputs_;  ///< scales by the module whose inputs they are
};

}  // namespace

void check_sides(const ModelDirectory& source, const StoredModel& model,
                 std::vector<Finding>& findings) {
  SideCheck(source, model, findings).run();
}

}  // namespace fp8lab
