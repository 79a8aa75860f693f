// NVIDIA's ModelOpt, which describes its weights in two files.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMixed = "MIXED_PRECISION";

constexpr std::array<GroupElements, 3> kModeloptGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                        {FormatId::e2m1, ScaleKind::e8m0},
                                                        {FormatId::e2m1, ScaleKind::two_level}}};

constexpr std::array<Layout, 1> kModeloptLayouts{
    {{.name = "modelopt",
      .method = "modelopt",
      .codes = "weight",
      .scale = "weight_scale",
      .input_scale = "input_scale",
      .kept_key = "ignore",
      .takes = {true, true, true},
      .groups = kModeloptGroups,
      .source = "nvidia-modelopt 0.47.0, torch/export/quant_utils.py, unified_export_hf.py and "
                "convert_hf_config.py",
      .spreads_blocks = true,
      .mixes_schemes = true,
      .tensor_scale = "weight_scale_2",
      .kv_scales = KvPlace::projection,
      .joins_tensor_scales = true}}};

constexpr std::array<StoredNames, 4> kModeloptNames{{
    {".weight", ".weight_scale", ".weight_scale_2", ".weight"},
    {"", "_weight_scale", "_weight_scale_2", "", false, true},
    {"", "_scale", "_scale_2", "", false, true},
    {"", ".weight_scale", ".weight_scale_2", "", false, true},
}};

struct Algorithm {
  std::string_view name;
  WeightForm form;
};

/// ModelOpt's algorithms. MIXED_PRECISION has one for each layer.
const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> kAlgorithms{
      {"FP8", {.tiles = WeightTiles::tensor}},
      {"FP8_PER_CHANNEL_PER_TOKEN", {.tiles = WeightTiles::row}},
      {"FP8_PB_WO", {.tiles = WeightTiles::block}},
      {"FP8_PB_REAL", {.tiles = WeightTiles::block}},
      {"MXFP8", group_form(FormatId::e4m3fn, ScaleKind::e8m0)},
      {"mxfp4", group_form(FormatId::e2m1, ScaleKind::e8m0)},
      {"W4A8_MXFP4_FP8", group_form(FormatId::e2m1, ScaleKind::e8m0)},
      {"NVFP4", group_form(FormatId::e2m1, ScaleKind::two_level)},
      {"NVFP4_AWQ", group_form(FormatId::e2m1, ScaleKind::two_level)},
      {"W4A8_NVFP4_FP8", group_form(FormatId::e2m1, ScaleKind::two_level)},
      {"W4A16_NVFP4", group_form(FormatId::e2m1, ScaleKind::two_level)}};
  return kAlgorithms;
}

std::string algorithm_names() {
  std::string names;
  for (const Algorithm& algorithm : algorithms()) names += fmt::format("{}, ", algorithm.name);
  return names + "or MIXED_PRECISION";
}

WeightForm find_algorithm(const Json& config, const std::string& where) {
  const std::string name = text_of(config, "quant_algo");
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) {
      WeightForm form = algorithm.form;
      const std::int64_t size = unsigned_of(config, "group_size");
      // ModelOpt's preset of this algorithm has groups of 32; those of the others have 16.
      if (name == "W4A8_NVFP4_FP8" && size == 32) form.k_block = size;
      const bool fits = size == 0 || form.scales == ScaleKind::plain || size == form.k_block;
      require(fits, where + ": group_size", fmt::format("{} in {}", form.k_block, name), size);
      return form;
    }
  throw Error(where + ": quant_algo", algorithm_names(), fmt::format("'{}'", name.substr(0, 40)));
}

void read_layers(const Json& config, StoredQuantization& stored) {
  const std::string where = stored.where + ": quantized_layers";
  require(has_value(config, "quantized_layers") && config["quantized_layers"].is_object(), where,
          "an algorithm for each layer, which MIXED_PRECISION needs", "none");
  for (const auto& [name, layer] : config["quantized_layers"].items()) {
    FormGroup group{.name = name, .targets = {}, .form = {}};
    const std::string argument = fmt::format("{}: {}", where, name.substr(0, 80));
    read_form(group, [&, &one = layer] { return find_algorithm(one, argument); });
    group.targets.emplace_back(name, PatternKind::modelopt, argument);
    stored.groups.push_back(std::move(group));
  }
}

void read_modelopt(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"ignore", "exclude_modules"}, PatternKind::modelopt, stored);
  read_kv_scheme(config, "kv_cache_quant_algo", stored);
  if (!stored.quantizes_kv) read_kv_scheme(config, "kv_cache_scheme", stored);
  const std::string algorithm = text_of(config, "quant_algo");
  if (algorithm.empty()) return;
  stored.has_forms = true;
  stored.static_inputs = algorithm == "FP8" || algorithm == "NVFP4";
  if (algorithm == "MIXED_PRECISION") return read_layers(config, stored);
  stored.form = find_algorithm(config, stored.where);
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

/// hf_quant_config.json. Its producer is "modelopt", since readers refuse others.
Json own_file_of(const ModelSchemes& schemes, const std::vector<std::string>& kept) {
  const WeightScheme& scheme = schemes.scheme;
  const Json cache = schemes.kv_cache == KvScales::none ? Json() : Json("FP8");
  if (!schemes.others.empty()) {
    const Json mixed{{"quant_algo", kMixed},
                     {"kv_cache_quant_algo", cache},
                     {"exclude_modules", kept},
                     {"quantized_layers", modelopt_layers(schemes)}};
    return {{"producer", modelopt_producer()}, {"quantization", mixed}};
  }
  Json quantization{{"quant_algo", modelopt_algorithm(scheme)}, {"kv_cache_quant_algo", cache}};
  const bool is_mxfp4 = scheme.scales == ScaleKind::e8m0 && scheme.format == FormatId::e2m1;
  if (scheme.tiles == WeightTiles::group && !is_mxfp4) quantization["group_size"] = scheme.k_block;
  quantization["exclude_modules"] = kept;
  return {{"producer", modelopt_producer()}, {"quantization", quantization}};
}

constexpr std::array<QuantMethod, 3> kModeloptMethods{{{"modelopt", read_modelopt},
                                                       {"modelopt_fp4", read_modelopt},
                                                       {"modelopt_mixed", read_modelopt}}};

class Modelopt final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kModeloptLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kModeloptMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kModeloptNames; }
  [[nodiscard]] std::string_view own_file() const override { return "hf_quant_config.json"; }

  [[nodiscard]] Json describe(const Layout& /*layout*/, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept) const override {
    return modelopt(schemes, kept);
  }

  [[nodiscard]] Json own_config(const ModelSchemes& schemes,
                                const std::vector<std::string>& kept) const override {
    return own_file_of(schemes, kept);
  }

  void require_input(const WeightScheme& scheme, const std::string& argument) const override {
    if (scheme.input == InputScheme::stays) return;
    const bool by_tensor = scheme.tiles == WeightTiles::tensor;
    require(scheme.input == (by_tensor ? InputScheme::calibrated : InputScheme::token), argument,
            by_tensor ? "one calibrated scale (recipe modelopt)" : "one scale per row",
            "another scheme");
  }
};

}  // namespace

const LayoutFamily& modelopt_family() {
  static const Modelopt kFamily;
  return kFamily;
}

}  // namespace fp8lab
