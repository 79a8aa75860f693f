#include "training/model_files/weight_outputs.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "training/model_files/blocked_scales.hpp"

namespace fp8lab {
namespace {

std::string in_module(std::string_view module, std::string_view name) {
  return fmt::format("{}.{}", module, name);
}

bool is_packed_format(FormatId format) { return format != FormatId::e4m3fn; }

/// The type that files name, and the shape in its elements.
TensorSpec codes_spec(const Layout& layout, std::string name, FormatId format,
                      std::vector<std::int64_t> shape) {
  if (!is_packed_format(format)) return {std::move(name), ElementType::e4m3fn, std::move(shape)};
  const ElementType type = packed(element_type_of(format));
  std::vector<std::int64_t> bytes = shape_in_bytes(type, shape, name);
  return {std::move(name), layout.packed_type, std::move(bytes)};
}

WeightOutputs expert_outputs(const Layout& layout, const WeightScheme& scheme,
                             const TensorSpec& weight) {
  const std::int64_t groups = weight.shape[1] / scheme.k_block;
  return {codes_spec(layout, weight.name + std::string(layout.codes), scheme.format,
                     {weight.shape[0], weight.shape[2], groups, scheme.k_block}),
          {weight.name + std::string(layout.scale),
           scheme.scale_type,
           {weight.shape[0], weight.shape[2], groups}},
          std::nullopt,
          std::nullopt};
}

/// Of experts [experts, n, k] in blocks.
WeightOutputs fused_outputs(const Layout& layout, const WeightScheme& scheme,
                            const TensorSpec& weight) {
  std::vector<std::int64_t> shape = scale_shape(layout, scheme, weight.shape[1], weight.shape[2]);
  shape.insert(shape.begin(), weight.shape[0]);
  return {{weight.name, ElementType::e4m3fn, weight.shape},
          {weight.name + "_scale_inv", scheme.scale_type, shape},
          std::nullopt,
          std::nullopt};
}

/// Powers of two as E8M0. NaN is 255.
std::vector<std::uint8_t> exponents_of(std::span<const float> scales, const std::string& name) {
  std::vector<std::uint8_t> codes;
  for (const float scale : scales) {
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    require(std::isnan(scale) || (bits & 0x807fffffU) == 0, name, "powers of two",
            fmt::format("{}", scale));
    codes.push_back(static_cast<std::uint8_t>(bits >> 23U));
  }
  return codes;
}

}  // namespace

std::vector<TensorSpec> WeightOutputs::list() const {
  std::vector<TensorSpec> specs{codes, scale};
  if (tensor_scale) specs.push_back(*tensor_scale);
  if (input_scale) specs.push_back(*input_scale);
  return specs;
}

WeightOutputs outputs_of(const Layout& layout, const WeightScheme& scheme,
                         const TensorSpec& weight) {
  if (layout.fuses_experts) return expert_outputs(layout, scheme, weight);
  if (weight.shape.size() == 3) return fused_outputs(layout, scheme, weight);
  const std::string_view module = module_of(weight.name);
  const WeightNames names = weight_names(layout, scheme);
  const std::vector<std::int64_t> number(layout.scalar_dimensions == 1 ? 1 : 0, 1);
  WeightOutputs outputs{
      codes_spec(layout, in_module(module, names.codes), scheme.format, weight.shape),
      {in_module(module, names.scale), scheme.scale_type,
       scale_shape(layout, scheme, weight.shape[0], weight.shape[1])},
      std::nullopt,
      std::nullopt};
  if (!names.tensor_scale.empty())
    outputs.tensor_scale = {in_module(module, names.tensor_scale), ElementType::f32, number};
  if (scheme.input == InputScheme::calibrated)
    outputs.input_scale = {in_module(module, names.input_scale), scheme.input_scale_type, number};
  return outputs;
}

void write_number(float value, const TensorSpec& spec, SafetensorsWriter& out) {
  const std::span<const float> values(&value, 1);
  if (spec.type == ElementType::f32) return out.write(spec.name, 0, std::as_bytes(values));
  std::uint16_t code = 0;
  encode(values, std::span(&code, 1), {.format = *format_of(spec.type), .policy = kMlDtypes});
  out.write(spec.name, 0, std::as_bytes(std::span(&code, 1)));
}

void write_scales(const Layout& layout, const WeightScheme& scheme, const TensorSpec& weight,
                  const QuantizedWeight& quantized, const WeightOutputs& outputs,
                  SafetensorsWriter& out) {
  const TensorSpec& spec = outputs.scale;
  if (outputs.tensor_scale) {
    const TensorScale& tensor = quantized.tensor;
    write_number(layout.stores_multiplier ? tensor.scale : tensor.inverse_scale,
                 *outputs.tensor_scale, out);
  }
  if (scheme.scales != ScaleKind::plain) {
    const std::span<const std::uint8_t> codes(quantized.scale_codes);
    if (!layout.for_tensor_cores) return out.write(spec.name, 0, std::as_bytes(codes));
    const std::vector<std::uint8_t> blocked =
        to_blocked(codes, weight.shape[0], weight.shape[1] / scheme.k_block);
    return out.write(spec.name, 0, std::as_bytes(std::span(blocked)));
  }
  const std::span<const float> scales(quantized.inverse_scales);
  if (spec.type == ElementType::e8m0fnu) {
    const std::vector<std::uint8_t> exponents = exponents_of(scales, spec.name);
    return out.write(spec.name, 0, std::as_bytes(std::span(exponents)));
  }
  if (spec.type == ElementType::f32) return out.write(spec.name, 0, std::as_bytes(scales));
  std::vector<std::uint16_t> codes(scales.size());
  encode(scales, std::span(codes), {.format = *format_of(spec.type), .policy = kMlDtypes});
  out.write(spec.name, 0, std::as_bytes(std::span(codes)));
}

void write_codes(const WeightScheme& scheme, const TensorSpec& output, std::uint64_t first,
                 std::span<const std::uint8_t> codes, SafetensorsWriter& out) {
  if (!is_packed_format(scheme.format)) return out.write(output.name, first, std::as_bytes(codes));
  const ElementType type = element_type_of(scheme.format);
  const std::vector<std::byte> bytes =
      pack_codes({type, {static_cast<std::int64_t>(codes.size())}, std::as_bytes(codes)});
  out.write(output.name, first * element_bits(packed(type)) / 8, bytes);
}

}  // namespace fp8lab
