#include "training/model_files/quantization_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "training/model_files/exact_json.hpp"
#include "training/model_files/language_config.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";
constexpr int kIndent = 2;

Json parse_object(const std::string& text, const std::string& where) {
  Json config = parse_exact_json(text, where);
  require(config.is_object(), where, "a JSON object", config.type_name());
  return config;
}

/// A setting of the language model; null for none.
const Json* find_setting(const Json& config, const char* key) {
  for (const Json* part : language_parts(config))
    if (part->contains(key) && !(*part)[key].is_null()) return &(*part)[key];
  return nullptr;
}

/// Whether a config.json, or an object in it, describes quantized weights.
bool is_described(const Json& value) {
  if (!value.is_object()) return false;
  if (describes_mistral(value)) return true;
  if (value.contains(kKey) && !value[kKey].is_null()) return true;
  return std::any_of(value.begin(), value.end(), is_described);
}

void erase_descriptions(Json& value) {
  if (!value.is_object()) return;
  value.erase(kKey);
  value.erase("compression_config");
  if (describes_mistral(value)) value.erase("quantization");
  for (auto& [key, member] : value.items()) erase_descriptions(member);
}

/// Their linear layers are transformers' Conv1D, whose weights are [in, out]: a scale a row would
/// be one a column.
void require_rows_are_outputs(const Json& config, const std::string& where) {
  const Json* type = find_setting(config, "model_type");
  if (type == nullptr || !type->is_string()) return;
  const auto name = type->get<std::string>();
  for (const char* turned : {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"})
    require(name != turned, where + ": model_type",
            "a model whose matrices are stored as [out, in]",
            fmt::format("'{}' (transformers' Conv1D)", name));
}

}  // namespace

void require_quantizable(const std::string& text, const std::string& where) {
  const Json config = parse_object(text, where);
  require(!is_described(config), where,
          "a model that is not quantized (`fp8lab dequantize` converts it back)", kKey);
  require_rows_are_outputs(config, where);
}

std::string with_quantization(const std::string& text, const std::string& where,
                              const Layout& layout, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept) {
  require_quantizable(text, where);
  Json config = parse_object(text, where);
  config[std::string(layout.family->config_key())] = layout.family->describe(layout, schemes, kept);
  config.update(layout.family->beside(layout, schemes));
  return exact_json(config, kIndent) + "\n";
}

std::string own_config(const Layout& layout, const ModelSchemes& schemes,
                       const std::vector<std::string>& kept) {
  return exact_json(layout.family->own_config(schemes, kept), kIndent) + "\n";
}

std::string without_quantization(const std::string& text, const std::string& where) {
  Json config = parse_object(text, where);
  erase_descriptions(config);
  config.erase("expert_dtype");  // DeepSeek-V4's
  return exact_json(config, kIndent) + "\n";
}

std::optional<std::int64_t> model_number(const std::string& text, const std::string& where,
                                         const char* key) {
  const Json config = parse_object(text, where);
  const Json* value = find_setting(config, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<std::int64_t>();
}

std::string head_of_model(const std::string& text, const std::string& where) {
  // transformers 5.23.0, `_tied_weights_keys` of each model.
  static const std::map<std::string, std::string> kHeads{{"bert", "cls.predictions.decoder"},
                                                         {"roberta", "lm_head.decoder"},
                                                         {"xlm-roberta", "lm_head.decoder"},
                                                         {"camembert", "lm_head.decoder"},
                                                         {"modernbert", "decoder"},
                                                         {"distilbert", "vocab_projector"},
                                                         {"albert", "predictions.decoder"},
                                                         {"electra", "generator_lm_head"},
                                                         {"deberta-v2", "cls.predictions.decoder"},
                                                         {"mpnet", "lm_head.decoder"},
                                                         {"whisper", "proj_out"}};
  const Json config = parse_object(text, where);
  const Json* type = find_setting(config, "model_type");
  if (type == nullptr || !type->is_string()) return "lm_head";
  const auto found = kHeads.find(type->get<std::string>());
  return found == kHeads.end() ? "lm_head" : found->second;
}

std::optional<ElementType> model_type(const std::string& text, const std::string& where) {
  const Json config = parse_object(text, where);
  for (const char* key : {"dtype", "torch_dtype"}) {
    const Json* value = find_setting(config, key);
    if (value == nullptr || !value->is_string()) continue;
    const auto name = value->get<std::string>();
    if (name == "bfloat16") return ElementType::bf16;
    if (name == "float16") return ElementType::f16;
    if (name == "float32") return ElementType::f32;
  }
  return std::nullopt;
}

}  // namespace fp8lab
