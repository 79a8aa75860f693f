// compressed-tensors: what llm-compressor writes and vLLM reads.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<GroupElements, 4> kCompressedGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                          {FormatId::e2m3, ScaleKind::e8m0},
                                                          {FormatId::e2m1, ScaleKind::e8m0},
                                                          {FormatId::e2m1, ScaleKind::two_level}}};

constexpr std::array<Layout, 1> kCompressedLayouts{
    {{.name = "compressed-tensors",
      .method = "compressed-tensors",
      .codes = "weight",
      .scale = "weight_scale",
      .input_scale = "input_scale",
      .kept_key = "ignore",
      .takes = {true, true, true},
      .groups = kCompressedGroups,
      .source = "compressed-tensors 0.20.0, quantization/lifecycle/initialize.py and "
                "compressors/{naive_quantized,nvfp4,mxfp4,mxfp6,mxfp8}/base.py",
      .scalar_dimensions = 1,
      .row_dimensions = 2,
      .has_bf16_scales = true,
      .mixes_schemes = true,
      .packed_codes = "weight_packed",
      .tensor_scale = "weight_global_scale",
      .two_level_input_scale = "input_global_scale",
      .kv_scales = KvPlace::attention,
      .stores_multiplier = true,
      .joins_tensor_scales = true}}};

constexpr std::array<StoredNames, 2> kCompressedNames{{
    {".weight_packed", ".weight_scale", ".weight_global_scale", ".weight", true},
    {"_packed", "_scale", "_global_scale", "", true, true},
}};

/// What shares a scale, in the words of compressed-tensors.
std::optional<WeightTiles> tiles_of(std::string_view strategy) {
  if (strategy == "tensor") return WeightTiles::tensor;
  if (strategy == "channel") return WeightTiles::row;
  if (strategy == "block") return WeightTiles::block;
  if (strategy == "group") return WeightTiles::group;
  return std::nullopt;
}

/// The names of compressed-tensors for one-byte scales, in its settings of old and new versions.
bool says_mx(const Json& weights, std::int64_t size, const std::string& format) {
  return size == 32 &&
         (text_of(weights, "scale_dtype") == "torch.uint8" || format.starts_with("mx"));
}

/// Weights of a group of compressed-tensors: 8-bit floats, MX or NVFP4.
WeightForm read_weights(const Json& weights, const std::string& where, const std::string& format) {
  const std::int64_t bits = unsigned_of(weights, "num_bits");
  const std::int64_t size = unsigned_of(weights, "group_size");
  const std::string strategy = text_of(weights, "strategy");
  const bool is_mx = says_mx(weights, size, format);
  const bool is_float = text_of(weights, "type") == "float";
  if (is_float && bits == 4 && size == 16 && strategy == "tensor_group")
    return group_form(FormatId::e2m1, ScaleKind::two_level);
  if (is_float && is_mx && bits == 4) return group_form(FormatId::e2m1, ScaleKind::e8m0);
  if (is_float && is_mx && bits == 6) return group_form(FormatId::e2m3, ScaleKind::e8m0);
  if (is_float && is_mx && bits == 8) return group_form(FormatId::e4m3fn, ScaleKind::e8m0);
  require(is_float && bits == 8, where, "8-bit floats, MXFP4, MXFP6, MXFP8 or NVFP4",
          brief(weights));
  WeightForm form;
  form.tiles = tiles_of(strategy);
  if (form.tiles == WeightTiles::group && size > 0) form.row_block = 1;
  if (form.tiles == WeightTiles::group && size > 0) form.k_block = size;
  if (weights.contains("block_structure"))
    read_block(weights["block_structure"], where + ": block_structure", form);
  return form;
}

/// Classes of modules have capitals and no dots; modules are named after them in lower case.
bool is_class_name(const std::string& target) {
  return !target.empty() && target.find('.') == std::string::npos && target[0] >= 'A' &&
         target[0] <= 'Z';
}

FormGroup read_group(const std::string& name, const Json& group, const std::string& where,
                     const std::string& format) {
  FormGroup one{.name = name, .targets = {}, .form = {}};
  const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
  const std::string own = text_of(group, "format");
  read_form(one,
            [&] { return read_weights(weights, where + ": weights", own.empty() ? format : own); });
  one.format = own.empty() && format != "mixed-precision" ? format : own;
  const Json inputs = group.value("input_activations", Json());
  const bool is_dynamic =
      !inputs.is_object() || (inputs.contains("dynamic") && inputs["dynamic"] == true);
  const bool is_static = inputs.is_object() && inputs.contains("dynamic") && !is_dynamic;
  if (is_static || is_dynamic) one.static_inputs = is_static;
  if (!has_value(group, "targets")) one.is_default = true;
  for (NamePattern& target :
       read_patterns(group, "targets", PatternKind::compressed_tensors, where)) {
    if (!target.is_regex() && is_class_name(target.text()))
      one.is_default = true;
    else
      one.targets.push_back(std::move(target));
  }
  return one;
}

/// Members of a configuration under which weights are not code times scale.
void read_transforms(const Json& config, StoredQuantization& stored) {
  const auto tell = [&](std::string_view key, std::string_view expected, const Json& got) {
    stored.fault =
        fmt::format("{}: {}: expected {}, got {}", stored.where, key, expected, brief(got));
  };
  const Json transform = config.value("transform_config", Json());
  if (transform.is_object() && !transform.value("config_groups", Json::object()).empty())
    tell("transform_config", "weights that are not rotated",
         transform["config_groups"].begin().value());
  const Json sparsity = config.value("sparsity_config", Json());
  const std::string format = text_of(sparsity, "format");
  if (!format.empty() && format != "dense") tell("sparsity_config", "dense weights", sparsity);
}

void read_compressed(const Json& config, StoredQuantization& stored) {
  read_transforms(config, stored);
  read_ignored(config, {"ignore"}, PatternKind::compressed_tensors, stored);
  read_kv_scheme(config, "kv_cache_scheme", stored);
  if (!config.contains("config_groups") || !config["config_groups"].is_object()) return;
  for (const auto& [name, group] : config["config_groups"].items()) {
    const std::string where = fmt::format("{}: {}", stored.where, name);
    if (group.is_object() && !has_value(group, "weights"))
      continue;  // of attention, or of inputs alone
    stored.groups.push_back(read_group(name, group, where, text_of(config, "format")));
    if (!stored.has_forms) stored.form = stored.groups.back().form;
    stored.has_forms = true;
  }
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

constexpr std::array<QuantMethod, 1> kCompressedMethods{{{"compressed-tensors", read_compressed}}};

class CompressedTensors final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kCompressedLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kCompressedMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kCompressedNames; }

  [[nodiscard]] Json describe(const Layout& /*layout*/, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept) const override {
    return compressed_tensors(schemes, kept);
  }

  [[nodiscard]] std::string shape_fault(const Layout& layout, const WeightScheme& scheme,
                                        std::int64_t rows, std::int64_t k) const override {
    if (scheme.tiles == WeightTiles::block && k % scheme.k_block != 0)
      return fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
    return LayoutFamily::shape_fault(layout, scheme, rows, k);
  }
};

}  // namespace

const LayoutFamily& compressed_tensors_family() {
  static const CompressedTensors kFamily;
  return kFamily;
}

}  // namespace fp8lab
