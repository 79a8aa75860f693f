// Scales of inputs and of the KV cache, and upper levels of weights that servers join.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "training/model_files/check_parts.hpp"
#include "training/model_files/siblings.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kMostValues = 1 << 16;

std::vector<float> values_of(const ModelDirectory& source, const StoredTensor& tensor) {
  const std::unique_ptr<SafetensorsFile> file = source.open(tensor.shard);
  return to_float(file->find(tensor.spec.name));
}

bool holds_numbers(const TensorSpec& spec) {
  const bool is_float = spec.type == ElementType::f32 || spec.type == ElementType::bf16 ||
                        spec.type == ElementType::f16;
  return is_float && element_count(spec.shape, spec.name) <= kMostValues;
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
    check_kv();
    check_joined();
  }

 private:
  void tell(std::string kind, const std::string& name, std::string text) {
    findings_.push_back({std::move(kind), name, std::move(text)});
  }

  void check_side(const SideTensor& side) {
    const TensorSpec& spec = side.tensor.spec;
    if (!holds_numbers(spec)) {
      tell(kind_of(side.side), spec.name,
           fmt::format("expected floats, got {} {}", to_string(spec.type), shape_text(spec.shape)));
      return;
    }
    if (spec.name.ends_with("zero_point")) return;
    const std::vector<float> values = values_of(source_, side.tensor);
    for (const float value : values)
      if (!std::isfinite(value) || value <= 0.0F) {
        tell(kind_of(side.side), spec.name,
             fmt::format("expected a finite scale above 0, got {}", value));
        break;
      }
    if (side.side != SideScale::input) return;
    const std::string& owner = side.module;
    if (!owner.empty()) inputs_[owner] = values.empty() ? 0.0F : values[0];
    if (!owner.empty() && !side.has_weight && !is_faulty(owner))
      tell("scale without codes", spec.name,
           fmt::format("expected codes of {}, whose inputs it scales, got none", owner));
  }

  /// Whether the codes of a module are a fault already.
  [[nodiscard]] bool is_faulty(const std::string& module) const {
    return std::any_of(model_.faults.begin(), model_.faults.end(),
                       [&](const StoredFault& fault) { return fault.tensor.starts_with(module); });
  }

  void check_missing_inputs() {
    if (!model_.stored.static_inputs || !model_.stored.groups.empty()) {
      check_uneven_inputs();
      return;
    }
    for (const StoredWeight& weight : model_.weights)
      if (!inputs_.contains(weight.module))
        tell("input scale", weight.module,
             fmt::format("expected a scale of its inputs, since {} says that they are static, got "
                         "none",
                         model_.stored.where));
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
      if (side.side != SideScale::kv_cache) continue;
      const std::string& name = side.tensor.spec.name;
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
    const bool is_static = model_.stored.kv_scheme.find("\"dynamic\":false") != std::string::npos;
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
