#pragma once
// How systems name and shape a quantized weight and its scales in a file, and which recipes they
// can say.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/model/layer_rule.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// What of a weight [rows, k] shares a scale. A group is a part of a row.
enum class WeightTiles : std::uint8_t { tensor, row, block, group };
std::string_view to_string(WeightTiles tiles);

/// What a weight's scales are.
enum class ScaleKind : std::uint8_t {
  plain,      ///< FP32, or BF16
  e8m0,       ///< powers of two, one byte each (MXFP8, MXFP6, MXFP4)
  two_level,  ///< E4M3 under one FP32 scale of the tensor (NVFP4)
};

/// How whoever loads the files casts a layer's input.
enum class InputScheme : std::uint8_t {
  token,       ///< a scale for each row of it, at run time
  group,       ///< a scale for each group of `WeightScheme::input_group` elements of a row
  tensor,      ///< one scale, at run time
  calibrated,  ///< one scale, from the file; of NVFP4 the upper level, while groups have their own
  two_level,   ///< both levels of NVFP4, at run time
  stays,       ///< not at all
};

std::string_view to_string(InputScheme input);

enum class LayoutFamily : std::uint8_t { compressed_tensors, modelopt, fp8, torchao, gpt_oss };

/// Elements of groups that a layout has.
struct GroupElements {
  FormatId format = FormatId::e2m1;
  ScaleKind scales = ScaleKind::e8m0;
};

/// All scales multiply back: value = code * scale. Codes are E4M3 but in groups.
///
/// layout               codes            scale             its shape
/// compressed-tensors   weight           weight_scale      [1], [rows, 1] or [ceil(rows/n), k/m]
/// modelopt             weight           weight_scale      [] or [rows]
/// hf-fp8               weight           weight_scale_inv  [] or [ceil(rows/n), ceil(k/m)]
/// deepseek             weight           weight_scale_inv  [ceil(rows/n), ceil(k/m)]
/// torchao              _weight_qdata    _weight_scale     [1, 1] or [rows, 1]
///
/// A calibrated input scale is a number beside it: `input_scale` ([1] in compressed-tensors, [] in
/// modelopt), `activation_scale` ([]) in hf-fp8. torchao and deepseek have none.
///
/// Groups of MX (32 elements) and NVFP4 (16) have scales [rows, k / group], as U8, or E4M3 in
/// NVFP4; FP4 and FP6 codes are packed bytes (U8):
///
/// compressed-tensors   weight_packed    weight_scale, weight_global_scale [1], input_global_scale
///                      (its global scales are those that multiply *into* E2M1); MXFP8: weight
/// modelopt             weight           weight_scale, weight_scale_2 [], input_scale []
/// torchao              _weight_qdata    _weight_scale (E8M0 or E4M3, in cuBLAS's order, padded),
///                                       _weight_per_tensor_scale []
/// gpt-oss              NAME_blocks [experts, rows, k / 32, 16], NAME_scales [experts, rows, k /
/// 32]
struct Layout {
  std::string_view name;
  LayoutFamily family = LayoutFamily::fp8;
  std::string_view codes;        ///< what stands behind the module's name and a dot
  std::string_view scale;        ///< the same
  std::string_view input_scale;  ///< the same; empty where it has none
  std::array<bool, 3> takes{};   ///< by `WeightTiles`, but for groups
  std::span<const GroupElements> groups;
  std::string_view source;  ///< version and file that it was read from
};

std::span<const Layout> layouts();
/// Throws `Error` that lists the names.
const Layout& find_layout(std::string_view name);

/// What a recipe means in files.
struct WeightScheme {
  FormatId format = FormatId::e4m3fn;
  ScaleKind scales = ScaleKind::plain;
  WeightTiles tiles = WeightTiles::row;
  std::int64_t row_block = 0;  ///< of `WeightTiles::block` and `group`
  std::int64_t k_block = 0;
  InputScheme input = InputScheme::token;
  std::int64_t input_group = 0;
  FormatId input_format = FormatId::e4m3fn;
  ElementType scale_type =
      ElementType::f32;  ///< BF16 where the recipe's scales are, and the layout has them
  ElementType input_scale_type = ElementType::f32;
  bool power_of_two = false;
  std::string torchao_scaling = "RCEIL";  ///< how torchao is to scale MX inputs
};

/// Throws `Error` where the layout cannot say what the preset does: a format or tiles that it has
/// no scales for, a weight's scale from the past, inputs that it cannot describe, or calibration
/// that is missing or not heeded. NVFP4 in compressed-tensors and modelopt: with calibration inputs
/// have a scale from the file, without it they stay (NVFP4A16, W4A16_NVFP4).
WeightScheme make_scheme(const Layout& layout, const Preset& preset, bool calibrated);

/// Names behind a module's name and a dot; empty where a scheme has no such tensor.
struct WeightNames {
  std::string_view codes;
  std::string_view scale;
  std::string_view tensor_scale;  ///< the upper one of two levels
  std::string_view input_scale;
};
WeightNames weight_names(const Layout& layout, const WeightScheme& scheme);

/// The scales of a weight [rows, k], as a layout has them.
std::vector<std::int64_t> scale_shape(const Layout& layout, const WeightScheme& scheme,
                                      std::int64_t rows, std::int64_t k);

/// Whether a tensor becomes FP8: what the rule says, but for tensors that are no matrices of
/// floats and for those whose loader would not find, or misread, what is written.
LayerDecision decide(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                     const TensorSpec& tensor);

/// What a rule says of a tensor whose type is known too: integers, booleans and FP8 stay.
LayerDecision decide(const LayerRule& rule, const TensorSpec& tensor);

/// What `quantize` takes of a file that is no model's: floats of two and more dimensions that are
/// neither the scales of other tensors nor a convolution's weight.
LayerDecision decide_by_shape(const TensorSpec& tensor);

/// The module of a `.weight`; empty for other names.
std::string_view module_of(std::string_view tensor);

}  // namespace fp8lab
