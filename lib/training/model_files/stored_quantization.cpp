#include "training/model_files/stored_quantization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 2> kKeys{"quantization_config", "compression_config"};
constexpr int kDeepest = 4;  ///< of nested configurations

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

bool has_value(const Json& value, const char* key) {
  return value.is_object() && value.contains(key) && !value[key].is_null();
}

/// "128x128", as older files of compressed-tensors have it, as a list; other values as they are.
Json block_list(const Json& value) {
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  const std::size_t x = text.find('x');
  const bool fits = x != std::string::npos && x > 0 && x < 7 && text.size() - x - 1 < 7 &&
                    text.size() > x + 1 && text.find_first_not_of("0123456789") == x &&
                    text.find_first_not_of("0123456789", x + 1) == std::string::npos;
  return fits ? Json{std::stoull(text.substr(0, x)), std::stoull(text.substr(x + 1))} : value;
}

/// A list of two sizes, if that is what `said` is.
void read_block(const Json& said, const std::string& where, WeightForm& form) {
  if (said.is_null()) return;
  const Json value = block_list(said);
  const bool fits = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned() && value[0] > 0 && value[1] > 0;
  require(fits, where, "[rows, columns] of a block", brief(value));
  form.row_block = value[0].get<std::int64_t>();
  form.k_block = value[1].get<std::int64_t>();
}

WeightForm group_form(FormatId format, ScaleKind scales) {
  return {format, scales, 1, scales == ScaleKind::two_level ? 16 : 32, WeightTiles::group};
}

/// The patterns of a list of names. Throws `Error` for anything else than a list of texts.
std::vector<NamePattern> read_patterns(const Json& config, const char* key, PatternKind kind,
                                       const std::string& where) {
  std::vector<NamePattern> patterns;
  if (!has_value(config, key)) return patterns;
  const std::string argument = fmt::format("{}: {}", where, key);
  require(config[key].is_array(), argument, "a list of modules", brief(config[key]));
  for (const Json& name : config[key]) {
    require(name.is_string(), argument, "names of modules", brief(name));
    if (!name.get_ref<const std::string&>().empty())
      patterns.emplace_back(name.get<std::string>(), kind, argument);
  }
  return patterns;
}

void read_ignored(const Json& config, std::initializer_list<const char*> keys, PatternKind kind,
                  StoredQuantization& stored) {
  for (const char* key : keys)
    for (NamePattern& pattern : read_patterns(config, key, kind, stored.where))
      stored.ignored.push_back(std::move(pattern));
}

void read_kv_scheme(const Json& config, const char* key, StoredQuantization& stored) {
  if (!has_value(config, key)) return;
  stored.quantizes_kv = true;
  const Json& scheme = config[key];
  stored.kv_is_static = scheme == "static" || scheme == "FP8" || scheme == "NVFP4" ||
                        (scheme.is_object() && scheme.contains("dynamic") &&
                         scheme["dynamic"].is_boolean() && scheme["dynamic"] == false);
  stored.kv_scheme = config[key].is_string() ? config[key].get<std::string>() : brief(config[key]);
}

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
  const std::int64_t bits = number_of(weights, "num_bits");
  const std::int64_t size = number_of(weights, "group_size");
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

/// Reads the form of a group. One that cannot be read is a fault of the weights that have it.
template <class Read>
void read_form(FormGroup& group, const Read& read) {
  try {
    group.form = read();
  } catch (const Error& error) {
    group.fault = error.what();
  }
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
      const std::int64_t size = number_of(config, "group_size");
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

void read_torchao(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"modules_to_not_convert"}, PatternKind::transformers, stored);
  const Json type = config.value("quant_type", Json());
  const Json own = type.is_object() ? type.value("default", Json()) : Json();
  const std::string name = text_of(own, "_type");
  stored.has_forms = !name.empty();
  if (name == "NVFP4DynamicActivationNVFP4WeightConfig" || name == "NVFP4WeightOnlyConfig") {
    stored.form = group_form(FormatId::e2m1, ScaleKind::two_level);
    return;
  }
  if (name != "MXDynamicActivationMXWeightConfig") return;
  const Json data = own.value("_data", Json());
  const std::string element =
      data.is_object() ? text_of(data.value("weight_dtype", Json()), "_data") : std::string();
  require(element == "float8_e4m3fn" || element == "float4_e2m1fn_x2",
          stored.where + ": quant_type: weight_dtype", "float8_e4m3fn or float4_e2m1fn_x2",
          fmt::format("'{}'", element.substr(0, 40)));
  stored.form =
      group_form(element == "float8_e4m3fn" ? FormatId::e4m3fn : FormatId::e2m1, ScaleKind::e8m0);
}

void read_fp8(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"modules_to_not_convert", "ignored_layers"}, PatternKind::transformers,
               stored);
  read_kv_scheme(config, "kv_cache_scheme", stored);
  stored.has_forms = true;
  stored.static_inputs = text_of(config, "activation_scheme") == "static";
  stored.has_dynamic_inputs = text_of(config, "activation_scheme") == "dynamic";
  stored.fp8_format = text_of(config, "fmt");
  stored.power_of_two = text_of(config, "scale_fmt") == "ue8m0";
  if (has_value(config, "weight_block_size")) {
    read_block(config["weight_block_size"], stored.where + ": weight_block_size", stored.form);
    stored.form.tiles = WeightTiles::block;
  }
  stored.says_no_blocks = !stored.form.tiles.has_value();
  const bool is_mx = stored.form.row_block == 1 && stored.form.k_block == 32;
  stored.u8_is_e8m0 = stored.power_of_two || is_mx;
}

void read_mxfp8(const Json& config, StoredQuantization& stored) {
  stored.form = group_form(FormatId::e4m3fn, ScaleKind::e8m0);
  read_fp8(config, stored);
  require(stored.form.row_block == 1 && stored.form.k_block == 32,
          stored.where + ": weight_block_size", "[1, 32], the groups of MXFP8",
          fmt::format("[{}, {}]", stored.form.row_block, stored.form.k_block));
  stored.u8_is_e8m0 = true;
}

void read_fbgemm(const Json& config, StoredQuantization& stored) {
  read_fp8(config, stored);
  stored.form.tiles = WeightTiles::row;
}

void read_gpt_oss(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"modules_to_not_convert"}, PatternKind::transformers, stored);
  stored.has_forms = true;
  stored.form = group_form(FormatId::e2m1, ScaleKind::e8m0);
}

/// A weight's specification in Quark's words.
WeightForm read_quark_weights(const Json& layer, const std::string& where) {
  const Json weight = layer.is_object() ? layer.value("weight", Json()) : Json();
  const std::string type = text_of(weight, "dtype");
  const std::string scheme = text_of(weight, "qscheme");
  if (type == "fp8_e4m3" && scheme == "per_tensor") return {.tiles = WeightTiles::tensor};
  if (type == "fp8_e4m3" && scheme == "per_channel") return {.tiles = WeightTiles::row};
  const bool is_mx = scheme == "per_group" && number_of(weight, "group_size") == 32 &&
                     text_of(weight, "scale_format") == "e8m0";
  if (is_mx && type == "fp4") return group_form(FormatId::e2m1, ScaleKind::e8m0);
  if (is_mx && type == "fp6_e2m3") return group_form(FormatId::e2m3, ScaleKind::e8m0);
  if (is_mx && type == "fp6_e3m2") return group_form(FormatId::e3m2, ScaleKind::e8m0);
  if (is_mx && type == "fp8_e4m3") return group_form(FormatId::e4m3fn, ScaleKind::e8m0);
  throw Error(where + ": weight",
              "fp8_e4m3 per tensor or channel, or fp4, fp6 or fp8_e4m3 in groups of 32 with e8m0 "
              "scales",
              brief(weight));
}

void read_quark(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"exclude"}, PatternKind::quark, stored);
  const Json cache = config.value("kv_cache_quant_config", Json());
  if (cache.is_object() && !cache.empty()) read_kv_scheme(config, "kv_cache_quant_config", stored);
  const Json exported = config.value("export", Json());
  if (exported.is_object() && !exported.value("kv_cache_group", Json::array()).empty())
    read_kv_scheme(exported, "kv_cache_group", stored);
  const Json layers = config.value("layer_quant_config", Json());
  if (layers.is_object())
    for (const auto& [name, layer] : layers.items()) {
      const std::string where = fmt::format("{}: layer_quant_config: {}", stored.where, name);
      FormGroup group{.name = name, .targets = {}, .form = {}};
      read_form(group, [&, &one = layer] { return read_quark_weights(one, where); });
      group.targets.emplace_back(name, PatternKind::quark, where);
      stored.groups.push_back(std::move(group));
    }
  const Json global = config.value("global_quant_config", Json());
  if (has_value(global, "weight"))
    stored.form = read_quark_weights(global, stored.where + ": global_quant_config");
  const Json inputs = global.is_object() ? global.value("input_tensors", Json()) : Json();
  stored.static_inputs =
      inputs.is_object() && inputs.contains("is_dynamic") && inputs["is_dynamic"] == false;
  stored.has_forms = true;
}

struct Method {
  std::string_view name;
  LayoutFamily family;
  void (*read)(const Json&, StoredQuantization&);
};

constexpr std::array<Method, 10> kMethods{
    {{"compressed-tensors", LayoutFamily::compressed_tensors, read_compressed},
     {"modelopt", LayoutFamily::modelopt, read_modelopt},
     {"modelopt_fp4", LayoutFamily::modelopt, read_modelopt},
     {"modelopt_mixed", LayoutFamily::modelopt, read_modelopt},
     {"fp8", LayoutFamily::fp8, read_fp8},
     {"mxfp8", LayoutFamily::fp8, read_mxfp8},
     {"fbgemm_fp8", LayoutFamily::fp8, read_fbgemm},
     {"torchao", LayoutFamily::torchao, read_torchao},
     {"mxfp4", LayoutFamily::gpt_oss, read_gpt_oss},
     {"quark", LayoutFamily::compressed_tensors, read_quark}}};

std::string method_names() {
  std::string names;
  for (std::size_t i = 0; i < kMethods.size(); ++i)
    names += fmt::format("{}{}",
                         i == 0                     ? ""
                         : i + 1 == kMethods.size() ? " or "
                                                    : ", ",
                         kMethods[i].name);
  return names;
}

/// ModelOpt's older configurations name no method.
std::string method_of(const Json& config) {
  const std::string method = text_of(config, "quant_method");
  return method.empty() && has_value(config, "quant_algo") ? "modelopt" : method;
}

StoredQuantization read_method(const Json& config, const std::string& where) {
  const std::string method = method_of(config);
  require(!method.empty(), where, "an object with quant_method", brief(config));
  for (const Method& known : kMethods)
    if (known.name == method) {
      StoredQuantization result{.family = known.family, .method = method, .where = where};
      known.read(config, result);
      return result;
    }
  throw Error(where + ": quant_method", method_names(), fmt::format("'{}'", method.substr(0, 40)));
}

struct Found {
  std::string path;
  const Json* config = nullptr;
};

/// Descriptions in an object and those inside it, the outermost first.
void find_configs(const Json& value, const std::string& path, int depth, std::vector<Found>& out) {
  for (const char* key : kKeys)
    if (has_value(value, key) && value[key] != Json::object())
      out.push_back({path + key, &value[key]});
  if (depth == kDeepest) return;
  for (const auto& [key, member] : value.items())
    if (member.is_object() && key != kKeys[0] && key != kKeys[1])
      find_configs(member, fmt::format("{}{}: ", path, key), depth + 1, out);
}

/// DeepSeek-V4 says outside of `quantization_config` that its experts are FP4.
void read_expert_type(const Json& config, StoredQuantization& stored) {
  if (text_of(config, "expert_dtype") != "fp4" || stored.family != LayoutFamily::fp8) return;
  FormGroup experts{.name = "expert_dtype", .targets = {}, .form = {}};
  experts.form = group_form(FormatId::e2m1, ScaleKind::e8m0);
  experts.targets.emplace_back("*.experts.*", PatternKind::modelopt, "expert_dtype");
  stored.groups.push_back(std::move(experts));
}

}  // namespace

std::string describe(const WeightForm& form) {
  if (form.scales == ScaleKind::two_level) return "NVFP4";
  const bool is_mx = form.scales == ScaleKind::e8m0;
  const int bits = format(form.format).code_bits();
  if (bits == 8) return is_mx ? "MXFP8" : "FP8 with plain scales";
  return bits == 4 ? "MXFP4" : "MXFP6";
}

const FormGroup* StoredQuantization::group_of(std::string_view module) const {
  // Exact names and regular expressions come before classes, as in compressed-tensors.
  for (const FormGroup& group : groups)
    if (find_match(group.targets, module) != nullptr) return &group;
  for (const FormGroup& group : groups)
    if (group.is_default) return &group;
  return nullptr;
}

const WeightForm& StoredQuantization::form_of(std::string_view module) const {
  const FormGroup* group = group_of(module);
  return group == nullptr ? form : group->form;
}

bool StoredQuantization::ignores(std::string_view module) const {
  return find_match(ignored, module) != nullptr;
}

std::optional<StoredQuantization> read_quantization(const std::string& text,
                                                    const std::string& where) {
  const Json config = parse_json<Json>(text, where);
  require(config.is_object(), where, "a JSON object", config.type_name());
  std::vector<Found> found;
  find_configs(config, where + ": ", 0, found);
  if (found.empty()) return std::nullopt;
  for (const Found& other : found)
    require(*other.config == *found[0].config, other.path, "what " + found[0].path + " says",
            brief(*other.config));
  StoredQuantization stored = read_method(*found[0].config, found[0].path);
  read_expert_type(config, stored);
  return stored;
}

StoredQuantization read_modelopt_config(const std::string& text, const std::string& where) {
  const Json config = parse_json<Json>(text, where);
  require(
      config.is_object() && has_value(config, "quantization") && config["quantization"].is_object(),
      where, "an object with quantization", brief(config));
  StoredQuantization stored{
      .family = LayoutFamily::modelopt, .method = "modelopt", .where = where + ": quantization"};
  read_modelopt(config["quantization"], stored);
  return stored;
}

}  // namespace fp8lab
