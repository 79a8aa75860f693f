// torchao's tensors, as transformers saves them.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/quantize_model.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<GroupElements, 3> kTorchaoGroups{{{FormatId::e4m3fn, ScaleKind::e8m0},
                                                       {FormatId::e2m1, ScaleKind::e8m0},
                                                       {FormatId::e2m1, ScaleKind::two_level}}};

constexpr std::array<Layout, 1> kTorchaoLayouts{
    {{.name = "torchao",
      .method = "torchao",
      .codes = "_weight_qdata",
      .scale = "_weight_scale",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {true, true, false},
      .groups = kTorchaoGroups,
      .source = "torchao 0.18.0, prototype/safetensors/safetensors_support.py and "
                "prototype/mx_formats/inference_workflow.py; transformers 5.23.0, "
                "integrations/torchao.py",
      .scalar_dimensions = 2,
      .row_dimensions = 2,
      .e8m0_type = ElementType::e8m0fnu,
      .tensor_scale = "_weight_per_tensor_scale",
      .for_tensor_cores = true,
      .scales_two_level_inputs = true}}};

constexpr std::array<StoredNames, 1> kTorchaoNames{{
    {.codes = "._weight_qdata",
     .scale = "._weight_scale",
     .tensor_scale = "._weight_per_tensor_scale",
     .written = ".weight",
     .for_tensor_cores = true},
}};

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

/// Objects of torch in the JSON of torchao.
Json torch_type(std::string_view name) { return {{"_type", "torch.dtype"}, {"_data", name}}; }

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

std::string_view torch_name(ElementType type) {
  if (type == ElementType::bf16) return "bfloat16";
  return type == ElementType::f16 ? "float16" : "float32";
}

std::string tensor_class(std::string_view name, const Json& data, const Json& parts) {
  return Json{{"_type", name}, {"_data", data}, {"_tensor_data_names", parts}}.dump();
}

std::string float8_weight(const WeightScheme& scheme, const TensorSpec& weight) {
  const bool by_row = scheme.tiles == WeightTiles::row;
  const Json granularity{{"_type", by_row ? "PerRow" : "PerTensor"},
                         {"_data", by_row ? Json{{"dim", -1}} : Json::object()}};
  const Json product{
      {"_type", "Float8MMConfig"},
      {"_data", {{"emulate", false}, {"use_fast_accum", true}, {"pad_inner_dim", false}}}};
  const Json input{{"_type", "QuantizeTensorToFloat8Kwargs"},
                   {"_data",
                    {{"float8_dtype", torch_type("float8_e4m3fn")},
                     {"granularity", granularity},
                     {"mm_config", product},
                     {"hp_value_lb", nullptr},
                     {"hp_value_ub", nullptr},
                     {"kernel_preference", kernel_preference()}}}};
  const Json data{{"block_size", Json::array({by_row ? 1 : weight.shape[0], weight.shape[1]})},
                  {"mm_config", product},
                  {"act_quant_kwargs", input},
                  {"kernel_preference", kernel_preference()},
                  {"dtype", torch_type(torch_name(weight.type))}};
  return tensor_class("Float8Tensor", data, Json::array({"qdata", "scale"}));
}

std::string mx_weight(const WeightScheme& scheme, const TensorSpec& weight) {
  const Json element =
      torch_type(scheme.format == FormatId::e2m1 ? "float4_e2m1fn_x2" : "float8_e4m3fn");
  const Json input{
      {"_type", "QuantizeTensorToMXKwargs"},
      {"_data",
       {{"elem_dtype", element},
        {"block_size", scheme.k_block},
        {"scaling_mode", {{"_type", "ScaleCalculationMode"}, {"_data", scheme.torchao_scaling}}},
        {"kernel_preference", kernel_preference()},
        {"is_swizzled_scales", true}}}};
  const Json data{{"elem_dtype", element},
                  {"block_size", scheme.k_block},
                  {"orig_dtype", torch_type(torch_name(weight.type))},
                  {"kernel_preference", kernel_preference()},
                  {"act_quant_kwargs", input},
                  {"is_swizzled_scales", true}};
  return tensor_class("MXTensor", data, Json::array({"qdata", "scale"}));
}

std::string nvfp4_weight(const WeightScheme& scheme, const TensorSpec& weight) {
  const Json input{{"_type", "QuantizeTensorToNVFP4Kwargs"},
                   {"_data",
                    {{"block_size", scheme.k_block},
                     {"is_swizzled_scales", true},
                     {"use_triton_kernel", true},
                     {"use_dynamic_per_tensor_scale", true}}}};
  const Json data{{"is_swizzled_scales", true},
                  {"use_triton_kernel", true},
                  {"act_quant_kwargs", input},
                  {"block_size", scheme.k_block},
                  {"orig_dtype", torch_type(torch_name(weight.type))}};
  return tensor_class("NVFP4Tensor", data, Json::array({"per_tensor_scale", "qdata", "scale"}));
}

/// torchao casts MX inputs by a mode of its `to_mx`; RCEIL, its own, for rules of other systems.
std::string scaling_mode(const Preset& preset) {
  switch (preset.activation.rule) {
    case ScaleRule::torchao_mx_floor:
    case ScaleRule::mx_floor:
      return "FLOOR";
    case ScaleRule::torchao_mx_ceil:
    case ScaleRule::mx_ceil:
      return "CEIL";
    case ScaleRule::torchao_mx_even:
    case ScaleRule::mx_even:
      return "EVEN";
    default:
      return "RCEIL";
  }
}

constexpr std::array<QuantMethod, 1> kTorchaoMethods{{{"torchao", read_torchao}}};

class Torchao final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kTorchaoLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kTorchaoMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kTorchaoNames; }

  [[nodiscard]] Json describe(const Layout& /*layout*/, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept) const override {
    return torchao(schemes.scheme, kept);
  }

  /// A class description for each tensor: torchao's reader merges those of all shards.
  [[nodiscard]] std::map<std::string, std::string> metadata(
      const QuantizedModel& model) const override {
    const WeightScheme& scheme = model.scheme;
    std::map<std::string, std::string> metadata;
    nlohmann::json names = nlohmann::json::array();
    for (const TensorSpec& weight : model.converted) {
      metadata[weight.name] = scheme.scales == ScaleKind::e8m0    ? mx_weight(scheme, weight)
                              : scheme.scales == ScaleKind::plain ? float8_weight(scheme, weight)
                                                                  : nvfp4_weight(scheme, weight);
      names.push_back(weight.name);
    }
    for (const KeptTensor& kept : model.kept) {
      metadata[kept.tensor.name] = R"({"_type": "Tensor"})";
      names.push_back(kept.tensor.name);
    }
    metadata["tensor_names"] = json_text(names);
    return metadata;
  }

  [[nodiscard]] bool is_own_metadata(const std::string& key,
                                     const std::string& value) const override {
    return key == "tensor_names" || value.starts_with("{\"_type\"");
  }

  void complete(const Preset& preset, WeightScheme& scheme) const override {
    scheme.torchao_scaling = scaling_mode(preset);
  }

  void require_input(const WeightScheme& scheme, const std::string& argument) const override {
    using enum InputScheme;
    if (scheme.input == stays) return;
    const bool by_tensor = scheme.tiles == WeightTiles::tensor;
    require(scheme.input == (by_tensor ? tensor : token), argument,
            by_tensor ? "one scale per tensor" : "one scale per row", "another scheme");
  }

  /// torchao refuses NVFP4 of other numbers of rows.
  [[nodiscard]] std::string shape_fault(const Layout& layout, const WeightScheme& scheme,
                                        std::int64_t rows, std::int64_t k) const override {
    std::string fault = LayoutFamily::shape_fault(layout, scheme, rows, k);
    if (fault.empty() && scheme.scales == ScaleKind::two_level && rows % scheme.k_block != 0)
      return fmt::format("{} rows are not a multiple of {}", rows, scheme.k_block);
    return fault;
  }

  /// transformers fuses experts into one parameter, which torchao's tensors cannot become.
  [[nodiscard]] LayerDecision decide(const LayerRule& rule, const Layout& layout,
                                     const WeightScheme& scheme,
                                     const TensorSpec& tensor) const override {
    LayerDecision decision = LayoutFamily::decide(rule, layout, scheme, tensor);
    if (decision.converts && is_of_experts(tensor))
      return {false, "an expert, which torchao's loaders take in floats"};
    return decision;
  }
};

}  // namespace

const LayoutFamily& torchao_family() {
  static const Torchao kFamily;
  return kFamily;
}

}  // namespace fp8lab
