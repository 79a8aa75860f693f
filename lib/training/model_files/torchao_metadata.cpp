#include "training/model_files/torchao_metadata.hpp"
#include "fp8lab/core/json_text.hpp"

#include <nlohmann/json.hpp>

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

std::string_view torch_name(ElementType type) {
  if (type == ElementType::bf16) return "bfloat16";
  return type == ElementType::f16 ? "float16" : "float32";
}

Json torch_type(std::string_view name) { return {{"_type", "torch.dtype"}, {"_data", name}}; }

Json any_kernel() { return {{"_type", "KernelPreference"}, {"_data", "AUTO"}}; }

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
                     {"kernel_preference", any_kernel()}}}};
  const Json data{{"block_size", Json::array({by_row ? 1 : weight.shape[0], weight.shape[1]})},
                  {"mm_config", product},
                  {"act_quant_kwargs", input},
                  {"kernel_preference", any_kernel()},
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
        {"kernel_preference", any_kernel()},
        {"is_swizzled_scales", true}}}};
  const Json data{{"elem_dtype", element},
                  {"block_size", scheme.k_block},
                  {"orig_dtype", torch_type(torch_name(weight.type))},
                  {"kernel_preference", any_kernel()},
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

}  // namespace

std::map<std::string, std::string> torchao_metadata(const WeightScheme& scheme,
                                                    const QuantizedModel& model) {
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

}  // namespace fp8lab
