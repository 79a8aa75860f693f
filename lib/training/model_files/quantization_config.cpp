#include "training/model_files/quantization_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "training/model_files/exact_json.hpp"
#include "training/model_files/language_config.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";
constexpr int kIndent = 2;
constexpr const char* kMixed = "MIXED_PRECISION";  ///< ModelOpt's

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
  if (value.contains(kKey) && !value[kKey].is_null()) return true;
  return std::any_of(value.begin(), value.end(), is_described);
}

void erase_descriptions(Json& value) {
  if (!value.is_object()) return;
  value.erase(kKey);
  value.erase("compression_config");
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

/// What all numbers of a group are, in the words of compressed-tensors.
Json number_args(FormatId id) {
  const int bits = format(id).code_bits();
  return {{"num_bits", bits}, {"type", "float"}, {"symmetric", true}};
}

void add_group_args(const WeightScheme& scheme, Json& args) {
  const bool two_level = scheme.scales == ScaleKind::two_level;
  const char* type = two_level ? "torch.float8_e4m3fn" : "torch.uint8";
  args["strategy"] = two_level ? "tensor_group" : "group";
  args["group_size"] = scheme.k_block;
  args["scale_dtype"] = type;
  args["zp_dtype"] = type;
}

/// Of a scheme of groups.
Json group_input_args(const WeightScheme& scheme) {
  if (scheme.input == InputScheme::stays) return nullptr;
  Json args = number_args(scheme.input_format);
  // "local": groups have scales of their own under the tensor's from the file.
  if (scheme.input == InputScheme::calibrated)
    args["dynamic"] = "local";
  else
    args["dynamic"] = true;
  add_group_args(scheme, args);
  return args;
}

Json input_args(const WeightScheme& scheme) {
  if (scheme.tiles == WeightTiles::group) return group_input_args(scheme);
  Json args = number_args(FormatId::e4m3fn);
  args["dynamic"] = scheme.input != InputScheme::calibrated;
  args["group_size"] = nullptr;
  switch (scheme.input) {
    case InputScheme::token:
      args["strategy"] = "token";
      break;
    case InputScheme::group:
      args["strategy"] = "group";
      args["group_size"] = scheme.input_group;
      break;
    default:
      args["strategy"] = "tensor";
      break;
  }
  return args;
}

Json weight_args(const WeightScheme& scheme) {
  Json args = number_args(scheme.format);
  args["dynamic"] = false;
  args["group_size"] = nullptr;
  switch (scheme.tiles) {
    case WeightTiles::tensor:
      args["strategy"] = "tensor";
      break;
    case WeightTiles::row:
      args["strategy"] = "channel";
      break;
    case WeightTiles::block:
      args["strategy"] = "block";
      args["block_structure"] = Json::array({scheme.row_block, scheme.k_block});
      break;
    case WeightTiles::group:
      add_group_args(scheme, args);
      break;
  }
  return args;
}

const char* compressed_format(const WeightScheme& scheme) {
  if (scheme.scales == ScaleKind::plain) return "float-quantized";
  if (scheme.scales == ScaleKind::two_level) return "nvfp4-pack-quantized";
  if (scheme.format == FormatId::e4m3fn) return "mxfp8-quantized";
  return scheme.format == FormatId::e2m1 ? "mxfp4-pack-quantized" : "mxfp6-pack-quantized";
}

Json compressed_group(const WeightScheme& scheme, const std::string& target, bool names_format) {
  Json group{{"targets", Json::array({target})},
             {"weights", weight_args(scheme)},
             {"input_activations", input_args(scheme)},
             {"output_activations", nullptr}};
  if (names_format || scheme.scales != ScaleKind::plain)
    group["format"] = compressed_format(scheme);
  return group;
}

/// The scheme of the KV cache, in the words of compressed-tensors.
Json kv_cache_args(KvScales scales) {
  if (scales == KvScales::none) return nullptr;
  Json args = number_args(FormatId::e4m3fn);
  args["dynamic"] = false;
  args["strategy"] = scales == KvScales::head ? "attn_head" : "tensor";
  return args;
}

Json compressed_tensors(const ModelSchemes& schemes, const std::vector<std::string>& kept) {
  const bool is_mixed = !schemes.others.empty();
  Json groups{{"group_0", compressed_group(schemes.scheme, "Linear", is_mixed)}};
  for (std::size_t i = 0; i < schemes.others.size(); ++i)
    groups[fmt::format("group_{}", i + 1)] =
        compressed_group(schemes.others[i].scheme, schemes.others[i].pattern, true);
  return {{"quant_method", "compressed-tensors"},
          {"format", is_mixed ? "mixed-precision" : compressed_format(schemes.scheme)},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", kv_cache_args(schemes.kv_cache)},
          {"global_compression_ratio", nullptr},
          {"config_groups", groups},
          {"ignore", kept}};
}

const char* modelopt_algorithm(const WeightScheme& scheme) {
  // ModelOpt 0.47 writes its own name for MXFP4, in lower case.
  if (scheme.scales == ScaleKind::e8m0) return scheme.format == FormatId::e2m1 ? "mxfp4" : "MXFP8";
  if (scheme.scales == ScaleKind::two_level)
    return scheme.input == InputScheme::stays ? "W4A16_NVFP4" : "NVFP4";
  if (scheme.tiles == WeightTiles::block) return "FP8_PB_WO";
  return scheme.tiles == WeightTiles::tensor ? "FP8" : "FP8_PER_CHANNEL_PER_TOKEN";
}

/// The algorithm of each layer.
Json modelopt_layers(const ModelSchemes& schemes) {
  Json layers = Json::object();
  const auto add = [&](const WeightScheme& scheme, const std::vector<std::string>& modules) {
    for (const std::string& module : modules) {
      layers[module] = {{"quant_algo", modelopt_algorithm(scheme)}};
      if (scheme.tiles == WeightTiles::group) layers[module]["group_size"] = scheme.k_block;
    }
  };
  add(schemes.scheme, schemes.modules);
  for (const ModuleScheme& other : schemes.others) add(other.scheme, other.modules);
  return layers;
}

Json modelopt_producer() { return {{"name", "modelopt"}, {"version", "0.47.0"}}; }

/// ModelOpt's, beside its own words in hf_quant_config.json.
void add_modelopt_cache(const ModelSchemes& schemes, Json& config) {
  if (schemes.kv_cache == KvScales::none) return;
  config["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
}

Json modelopt_weights(const ModelSchemes& schemes, const std::vector<std::string>& kept) {
  const WeightScheme& scheme = schemes.scheme;
  Json result = Json::object();
  if (!schemes.others.empty())
    return {{"ignore", kept},
            {"quant_algo", kMixed},
            {"quantized_layers", modelopt_layers(schemes)},
            {"producer", modelopt_producer()},
            {"quant_method", "modelopt"}};
  // ModelOpt describes groups of its per-tensor forms alone.
  if (scheme.tiles == WeightTiles::tensor || scheme.scales == ScaleKind::two_level) {
    Json args{
        {"dynamic", false}, {"num_bits", format(scheme.format).code_bits()}, {"type", "float"}};
    if (scheme.tiles == WeightTiles::group) args["group_size"] = scheme.k_block;
    Json& group = result["config_groups"]["group_0"];
    group = Json::object();
    if (scheme.input != InputScheme::stays) group["input_activations"] = args;
    group["weights"] = args;
    group["targets"] = Json::array({"Linear"});
  }
  result["ignore"] = kept;
  result["quant_algo"] = modelopt_algorithm(scheme);
  result["producer"] = modelopt_producer();
  result["quant_method"] = "modelopt";
  return result;
}

Json modelopt(const ModelSchemes& schemes, const std::vector<std::string>& kept) {
  Json result = modelopt_weights(schemes, kept);
  add_modelopt_cache(schemes, result);
  return result;
}

/// fbgemm's kernel cuts inputs above this number, by its own default.
constexpr double kFbgemmBound = 1200.0;

Json fbgemm(const Layout& layout, const std::vector<std::string>& kept) {
  return {{"quant_method", layout.method},
          {"activation_scale_ub", kFbgemmBound},
          {std::string(layout.kept_key), kept}};
}

Json fp8(const Layout& layout, const WeightScheme& scheme, const std::vector<std::string>& kept) {
  if (layout.takes[static_cast<std::size_t>(WeightTiles::row)]) return fbgemm(layout, kept);
  const bool is_static = scheme.input == InputScheme::calibrated;
  Json result{{"quant_method", layout.method},
              {"fmt", "e4m3"},
              {"activation_scheme", is_static ? "static" : "dynamic"}};
  const bool experts_alone = layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group;
  if (experts_alone)
    result["weight_block_size"] = Json::array({128, 128});
  else if (scheme.tiles == WeightTiles::block || scheme.tiles == WeightTiles::group)
    result["weight_block_size"] = Json::array({scheme.row_block, scheme.k_block});
  else if (layout.scalar_dimensions == 0)
    result["weight_block_size"] = nullptr;
  // To transformers this would say that the scales are bytes, which only DeepSeek's files mean
  // otherwise.
  if ((layout.name == "deepseek" && scheme.power_of_two) || layout.blocks_are_e8m0)
    result["scale_fmt"] = "ue8m0";
  if (!kept.empty()) result[std::string(layout.kept_key)] = kept;
  return result;
}

Json torch_type(const char* name) { return {{"_type", "torch.dtype"}, {"_data", name}}; }

Json kernel_preference() { return {{"_type", "KernelPreference"}, {"_data", "AUTO"}}; }

Json torchao_type(const WeightScheme& scheme, const std::string& scaling_mode) {
  if (scheme.scales == ScaleKind::two_level)
    return {
        {"_type", "NVFP4DynamicActivationNVFP4WeightConfig"},
        {"_version", 1},
        {"_data",
         {{"use_triton_kernel", true}, {"use_dynamic_per_tensor_scale", true}, {"step", nullptr}}}};
  if (scheme.scales == ScaleKind::e8m0) {
    const Json element =
        torch_type(scheme.format == FormatId::e2m1 ? "float4_e2m1fn_x2" : "float8_e4m3fn");
    return {{"_type", "MXDynamicActivationMXWeightConfig"},
            {"_version", 1},
            {"_data",
             {{"block_size", scheme.k_block},
              {"activation_dtype", element},
              {"weight_dtype", element},
              {"kernel_preference", kernel_preference()},
              {"scaling_mode", {{"_type", "ScaleCalculationMode"}, {"_data", scaling_mode}}}}}};
  }
  const bool by_row = scheme.tiles == WeightTiles::row;
  const Json granularity{{"_type", by_row ? "PerRow" : "PerTensor"},
                         {"_version", 1},
                         {"_data", by_row ? Json{{"dim", -1}} : Json::object()}};
  const Json dtype = torch_type("float8_e4m3fn");
  const Json product{
      {"_type", "Float8MMConfig"},
      {"_version", 1},
      {"_data", {{"emulate", false}, {"use_fast_accum", true}, {"pad_inner_dim", false}}}};
  const Json data{{"activation_dtype", dtype},
                  {"weight_dtype", dtype},
                  {"granularity", Json::array({granularity, granularity})},
                  {"mm_config", product},
                  {"activation_value_lb", nullptr},
                  {"activation_value_ub", nullptr},
                  {"kernel_preference", kernel_preference()},
                  {"set_inductor_config", true}};
  return {{"_type", "Float8DynamicActivationFloat8WeightConfig"}, {"_version", 2}, {"_data", data}};
}

Json torchao(const WeightScheme& scheme, const std::vector<std::string>& kept) {
  return {{"quant_method", "torchao"},
          {"quant_type", {{"default", torchao_type(scheme, scheme.torchao_scaling)}}},
          {"modules_to_not_convert", kept},
          {"include_input_output_embeddings", false},
          {"untie_embedding_weights", false}};
}

bool has_groups(const WeightScheme& scheme) { return scheme.tiles == WeightTiles::group; }

bool has_groups_among(const std::vector<ModuleScheme>& others) {
  return std::any_of(others.begin(), others.end(),
                     [](const ModuleScheme& other) { return has_groups(other.scheme); });
}

Json describe(const Layout& layout, const ModelSchemes& schemes,
              const std::vector<std::string>& kept) {
  const WeightScheme& scheme = schemes.scheme;
  switch (layout.family) {
    case LayoutFamily::compressed_tensors:
      return compressed_tensors(schemes, kept);
    case LayoutFamily::modelopt:
      return modelopt(schemes, kept);
    case LayoutFamily::fp8:
      return fp8(layout, scheme, kept);
    case LayoutFamily::gpt_oss:
      return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", kept}};
    case LayoutFamily::torchao:
      break;
  }
  return torchao(scheme, kept);
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
  config[kKey] = describe(layout, schemes, kept);
  if (layout.blocks_are_e8m0 && (has_groups(schemes.scheme) || has_groups_among(schemes.others)))
    config["expert_dtype"] = "fp4";
  return exact_json(config, kIndent) + "\n";
}

std::string modelopt_config(const ModelSchemes& schemes, const std::vector<std::string>& kept) {
  const WeightScheme& scheme = schemes.scheme;
  const Json cache = schemes.kv_cache == KvScales::none ? Json() : Json("FP8");
  if (!schemes.others.empty()) {
    const Json mixed{{"quant_algo", kMixed},
                     {"kv_cache_quant_algo", cache},
                     {"exclude_modules", kept},
                     {"quantized_layers", modelopt_layers(schemes)}};
    return exact_json({{"producer", modelopt_producer()}, {"quantization", mixed}}, kIndent) + "\n";
  }
  Json quantization{{"quant_algo", modelopt_algorithm(scheme)}, {"kv_cache_quant_algo", cache}};
  const bool is_mxfp4 = scheme.scales == ScaleKind::e8m0 && scheme.format == FormatId::e2m1;
  if (scheme.tiles == WeightTiles::group && !is_mxfp4) quantization["group_size"] = scheme.k_block;
  quantization["exclude_modules"] = kept;
  const Json config{{"producer", modelopt_producer()}, {"quantization", quantization}};
  return exact_json(config, kIndent) + "\n";
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
