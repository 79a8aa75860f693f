// What a quantized model's config.json says.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/model_files/quantization_config.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";

std::string brief(const Json& value) { return json_text(value).substr(0, 80); }

/// The text of a member, empty where it has none.
std::string text_of(const Json& value, const char* key) {
  if (!value.is_object() || !value.contains(key) || !value[key].is_string()) return {};
  return value[key].get<std::string>();
}

std::int64_t number_of(const Json& value, const char* key) {
  if (!value.is_object() || !value.contains(key) || !value[key].is_number_unsigned()) return 0;
  return value[key].get<std::int64_t>();
}

/// A list of two sizes, if that is what `value` is.
void read_block(const Json& value, const std::string& where, StoredQuantization& stored) {
  if (value.is_null()) return;
  const bool fits = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned() && value[0] > 0 && value[1] > 0;
  require(fits, where, "[rows, columns] of a block", brief(value));
  stored.row_block = value[0].get<std::int64_t>();
  stored.k_block = value[1].get<std::int64_t>();
}

void set_groups(FormatId format, ScaleKind scales, StoredQuantization& stored) {
  stored.format = format;
  stored.scales = scales;
  stored.row_block = 1;
  stored.k_block = scales == ScaleKind::two_level ? 16 : 32;
}

/// Weights of a group of compressed-tensors: 8-bit floats, MX or NVFP4.
void read_weights(const Json& weights, const std::string& where, StoredQuantization& stored) {
  const std::int64_t bits = number_of(weights, "num_bits");
  const std::int64_t size = number_of(weights, "group_size");
  const bool is_mx = size == 32 && text_of(weights, "scale_dtype") == "torch.uint8";
  const bool is_float = text_of(weights, "type") == "float";
  if (is_float && bits == 4 && size == 16 && text_of(weights, "strategy") == "tensor_group")
    return set_groups(FormatId::e2m1, ScaleKind::two_level, stored);
  if (is_float && is_mx && bits == 4) return set_groups(FormatId::e2m1, ScaleKind::e8m0, stored);
  if (is_float && is_mx && bits == 6) return set_groups(FormatId::e2m3, ScaleKind::e8m0, stored);
  if (is_float && is_mx && bits == 8) return set_groups(FormatId::e4m3fn, ScaleKind::e8m0, stored);
  require(is_float && bits == 8, where, "8-bit floats, MXFP4, MXFP6, MXFP8 or NVFP4",
          brief(weights));
  stored.format = FormatId::e4m3fn;
  stored.scales = ScaleKind::plain;
  if (weights.contains("block_structure"))
    read_block(weights["block_structure"], where + ": block_structure", stored);
}

void read_compressed(const Json& config, const std::string& where, StoredQuantization& stored) {
  if (!config.contains("config_groups") || !config["config_groups"].is_object()) return;
  std::string first;
  for (const auto& [name, group] : config["config_groups"].items()) {
    const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
    StoredQuantization one = stored;
    const std::string argument = fmt::format("{}: {}: weights", where, name);
    read_weights(weights, argument, one);
    require(first.empty() || (one.format == stored.format && one.scales == stored.scales), argument,
            "the numbers of " + first, "others");
    stored = one;
    first = name;
  }
}

void read_modelopt(const Json& config, const std::string& where, StoredQuantization& stored) {
  const std::string algorithm = text_of(config, "quant_algo");
  if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4")
    return set_groups(FormatId::e2m1, ScaleKind::two_level, stored);
  if (algorithm == "MXFP8") return set_groups(FormatId::e4m3fn, ScaleKind::e8m0, stored);
  if (algorithm == "mxfp4" || algorithm == "W4A8_MXFP4_FP8")
    return set_groups(FormatId::e2m1, ScaleKind::e8m0, stored);
  require(algorithm.empty() || algorithm.starts_with("FP8"), where + ": quant_algo",
          "FP8, FP8_PER_CHANNEL_PER_TOKEN, MXFP8, mxfp4, W4A8_MXFP4_FP8, NVFP4 or W4A16_NVFP4",
          fmt::format("'{}'", algorithm.substr(0, 40)));
}

void read_torchao(const Json& config, const std::string& where, StoredQuantization& stored) {
  const Json type = config.value("quant_type", Json());
  const Json own = type.is_object() ? type.value("default", Json()) : Json();
  const std::string name = text_of(own, "_type");
  if (name == "NVFP4DynamicActivationNVFP4WeightConfig" || name == "NVFP4WeightOnlyConfig")
    return set_groups(FormatId::e2m1, ScaleKind::two_level, stored);
  if (name != "MXDynamicActivationMXWeightConfig") return;
  const Json data = own.value("_data", Json());
  const std::string element =
      data.is_object() ? text_of(data.value("weight_dtype", Json()), "_data") : std::string();
  require(element == "float8_e4m3fn" || element == "float4_e2m1fn_x2",
          where + ": quant_type: weight_dtype", "float8_e4m3fn or float4_e2m1fn_x2",
          fmt::format("'{}'", element.substr(0, 40)));
  set_groups(element == "float8_e4m3fn" ? FormatId::e4m3fn : FormatId::e2m1, ScaleKind::e8m0,
             stored);
}

void read_fp8(const Json& config, const std::string& where, StoredQuantization& stored) {
  if (config.contains("weight_block_size"))
    read_block(config["weight_block_size"], where + ": weight_block_size", stored);
}

void read_gpt_oss(const Json& /*config*/, const std::string& /*where*/,
                  StoredQuantization& stored) {
  set_groups(FormatId::e2m1, ScaleKind::e8m0, stored);
}

struct Method {
  std::string_view name;
  LayoutFamily family;
  void (*read)(const Json&, const std::string&, StoredQuantization&);
};

constexpr std::array<Method, 5> kMethods{
    {{"compressed-tensors", LayoutFamily::compressed_tensors, read_compressed},
     {"modelopt", LayoutFamily::modelopt, read_modelopt},
     {"fp8", LayoutFamily::fp8, read_fp8},
     {"torchao", LayoutFamily::torchao, read_torchao},
     {"mxfp4", LayoutFamily::gpt_oss, read_gpt_oss}}};

}  // namespace

std::optional<StoredQuantization> read_quantization(const std::string& text,
                                                    const std::string& where) {
  const Json config = parse_json<Json>(text, where);
  require(config.is_object(), where, "a JSON object", config.type_name());
  if (!config.contains(kKey) || config[kKey].is_null()) return std::nullopt;
  const Json& stored = config[kKey];
  const std::string argument = where + ": " + kKey;
  const std::string method = text_of(stored, "quant_method");
  require(!method.empty(), argument, "an object with quant_method", brief(stored));
  for (const Method& known : kMethods)
    if (known.name == method) {
      StoredQuantization result{.family = known.family};
      known.read(stored, argument, result);
      return result;
    }
  throw Error(argument + ": quant_method", "compressed-tensors, modelopt, fp8, torchao or mxfp4",
              fmt::format("'{}'", method.substr(0, 40)));
}

}  // namespace fp8lab
