#include "fp8lab/model_files/quantization_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/json_text.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";
constexpr int kIndent = 2;

Json parse_object(const std::string& text, const std::string& where) {
  Json config = parse_json<Json>(text, where);
  require(config.is_object(), where, "a JSON object", config.type_name());
  return config;
}

/// Where the settings of a model's language part are, in files of multimodal models too.
const Json* find_setting(const Json& config, const char* key) {
  if (config.contains(key) && !config[key].is_null()) return &config[key];
  if (config.contains("text_config") && config["text_config"].is_object() &&
      config["text_config"].contains(key))
    return &config["text_config"][key];
  return nullptr;
}

/// Their linear layers are transformers' Conv1D, whose weights are [in, out]: a scale a row would
/// be one a column.
void require_rows_are_outputs(const Json& config, const std::string& where) {
  const Json* type = find_setting(config, "model_type");
  if (type == nullptr || !type->is_string()) return;
  const auto name = type->get<std::string>();
  for (const char* turned : {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"})
    require(name != turned, where + ": model_type", "a model whose matrices lie as [out, in]",
            fmt::format("'{}' (transformers' Conv1D)", name));
}

Json input_args(const WeightScheme& scheme) {
  Json args{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}};
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
    case InputScheme::tensor:
    case InputScheme::calibrated:
      args["strategy"] = "tensor";
      break;
  }
  return args;
}

Json weight_args(const WeightScheme& scheme) {
  Json args{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", false}};
  args["group_size"] = nullptr;
  args["strategy"] = scheme.tiles == WeightTiles::tensor ? "tensor"
                     : scheme.tiles == WeightTiles::row  ? "channel"
                                                         : "block";
  if (scheme.tiles == WeightTiles::block)
    args["block_structure"] = Json::array({scheme.row_block, scheme.k_block});
  return args;
}

Json compressed_tensors(const WeightScheme& scheme, const std::vector<std::string>& kept) {
  const Json group{{"targets", Json::array({"Linear"})},
                   {"weights", weight_args(scheme)},
                   {"input_activations", input_args(scheme)},
                   {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr},
          {"config_groups", {{"group_0", group}}},
          {"ignore", kept}};
}

const char* modelopt_algorithm(const WeightScheme& scheme) {
  return scheme.tiles == WeightTiles::tensor ? "FP8" : "FP8_PER_CHANNEL_PER_TOKEN";
}

Json modelopt_producer() { return {{"name", "modelopt"}, {"version", "0.47.0"}}; }

Json modelopt(const WeightScheme& scheme, const std::vector<std::string>& kept) {
  Json result = Json::object();
  // ModelOpt describes groups of its per-tensor form alone.
  if (scheme.tiles == WeightTiles::tensor) {
    const Json args{{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
    result["config_groups"]["group_0"] = {
        {"input_activations", args}, {"weights", args}, {"targets", Json::array({"Linear"})}};
  }
  result["ignore"] = kept;
  result["quant_algo"] = modelopt_algorithm(scheme);
  result["producer"] = modelopt_producer();
  result["quant_method"] = "modelopt";
  return result;
}

Json fp8(const Layout& layout, const WeightScheme& scheme, const std::vector<std::string>& kept) {
  const bool is_static = scheme.input == InputScheme::calibrated;
  Json result{{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", is_static ? "static" : "dynamic"}};
  if (scheme.tiles == WeightTiles::block)
    result["weight_block_size"] = Json::array({scheme.row_block, scheme.k_block});
  else
    result["weight_block_size"] = nullptr;
  // To transformers this would say that the scales are bytes, which only DeepSeek's files mean
  // otherwise.
  if (layout.name == "deepseek" && scheme.power_of_two) result["scale_fmt"] = "ue8m0";
  if (!kept.empty()) result["modules_to_not_convert"] = kept;
  return result;
}

Json torchao(const WeightScheme& scheme, const std::vector<std::string>& kept) {
  const bool by_row = scheme.tiles == WeightTiles::row;
  const Json granularity{{"_type", by_row ? "PerRow" : "PerTensor"},
                         {"_version", 1},
                         {"_data", by_row ? Json{{"dim", -1}} : Json::object()}};
  const Json dtype{{"_type", "torch.dtype"}, {"_data", "float8_e4m3fn"}};
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
                  {"kernel_preference", {{"_type", "KernelPreference"}, {"_data", "AUTO"}}},
                  {"set_inductor_config", true}};
  return {{"quant_method", "torchao"},
          {"quant_type",
           {{"default",
             {{"_type", "Float8DynamicActivationFloat8WeightConfig"},
              {"_version", 2},
              {"_data", data}}}}},
          {"modules_to_not_convert", kept},
          {"include_input_output_embeddings", false},
          {"untie_embedding_weights", false}};
}

Json describe(const Layout& layout, const WeightScheme& scheme,
              const std::vector<std::string>& kept) {
  switch (layout.family) {
    case LayoutFamily::compressed_tensors:
      return compressed_tensors(scheme, kept);
    case LayoutFamily::modelopt:
      return modelopt(scheme, kept);
    case LayoutFamily::fp8:
      return fp8(layout, scheme, kept);
    case LayoutFamily::torchao:
      break;
  }
  return torchao(scheme, kept);
}

/// A list of two sizes, if that is what `value` is.
void read_block(const Json& value, const std::string& where, StoredQuantization& stored) {
  if (value.is_null()) return;
  const bool fits = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned() && value[0] > 0 && value[1] > 0;
  require(fits, where, "[rows, columns] of a block", value.dump().substr(0, 80));
  stored.row_block = value[0].get<std::int64_t>();
  stored.k_block = value[1].get<std::int64_t>();
}

/// Groups of compressed-tensors that are not 8-bit floats cannot be read here.
void read_groups(const Json& config, const std::string& where, StoredQuantization& stored) {
  if (!config.contains("config_groups") || !config["config_groups"].is_object()) return;
  for (const auto& [name, group] : config["config_groups"].items()) {
    const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
    const bool fits = weights.is_object() && weights.value("num_bits", 0) == 8 &&
                      weights.value("type", "") == "float";
    require(fits, fmt::format("{}: {}: weights", where, name), "8-bit floats",
            weights.dump().substr(0, 80));
    if (weights.contains("block_structure"))
      read_block(weights["block_structure"], where + ": block_structure", stored);
  }
}

}  // namespace

void require_quantizable(const std::string& text, const std::string& where) {
  const Json config = parse_object(text, where);
  require(!config.contains(kKey) || config[kKey].is_null(), where,
          "a model that is not quantized (`fp8lab dequantize` undoes it)", kKey);
  require_rows_are_outputs(config, where);
}

std::string with_quantization(const std::string& text, const std::string& where,
                              const Layout& layout, const WeightScheme& scheme,
                              const std::vector<std::string>& kept) {
  require_quantizable(text, where);
  Json config = parse_object(text, where);
  config[kKey] = describe(layout, scheme, kept);
  return config.dump(kIndent) + "\n";
}

std::string modelopt_config(const WeightScheme& scheme, const std::vector<std::string>& kept) {
  const Json config{{"producer", modelopt_producer()},
                    {"quantization",
                     {{"quant_algo", modelopt_algorithm(scheme)},
                      {"kv_cache_quant_algo", nullptr},
                      {"exclude_modules", kept}}}};
  return config.dump(kIndent) + "\n";
}

std::optional<StoredQuantization> read_quantization(const std::string& text,
                                                    const std::string& where) {
  const Json config = parse_object(text, where);
  if (!config.contains(kKey) || config[kKey].is_null()) return std::nullopt;
  const Json& stored = config[kKey];
  const std::string argument = where + ": " + kKey;
  require(
      stored.is_object() && stored.contains("quant_method") && stored["quant_method"].is_string(),
      argument, "an object with quant_method", stored.dump().substr(0, 80));
  const auto method = stored["quant_method"].get<std::string>();
  StoredQuantization result;
  if (method == "compressed-tensors")
    result.family = LayoutFamily::compressed_tensors;
  else if (method == "modelopt")
    result.family = LayoutFamily::modelopt;
  else if (method == "torchao")
    result.family = LayoutFamily::torchao;
  else
    require(method == "fp8", argument + ": quant_method",
            "compressed-tensors, modelopt, fp8 or torchao",
            fmt::format("'{}'", method.substr(0, 40)));
  if (result.family == LayoutFamily::compressed_tensors) read_groups(stored, argument, result);
  if (stored.contains("weight_block_size"))
    read_block(stored["weight_block_size"], argument + ": weight_block_size", result);
  return result;
}

std::string without_quantization(const std::string& text, const std::string& where) {
  Json config = parse_object(text, where);
  config.erase(kKey);
  return config.dump(kIndent) + "\n";
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
