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

/// What of a weight [rows, k] shares a scale.
enum class WeightTiles : std::uint8_t { tensor, row, block };
std::string_view to_string(WeightTiles tiles);

/// How whoever loads the files casts a layer's input.
enum class InputScheme : std::uint8_t {
  token,       ///< a scale for each row of it, at run time
  group,       ///< a scale for each group of `WeightScheme::input_group` elements of a row
  tensor,      ///< one scale, at run time
  calibrated,  ///< one scale, from the file
};

enum class LayoutFamily : std::uint8_t { compressed_tensors, modelopt, fp8, torchao };

/// All scales multiply back: value = code * scale. Codes are E4M3.
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
struct Layout {
  std::string_view name;
  LayoutFamily family = LayoutFamily::fp8;
  std::string_view codes;        ///< what stands behind the module's name and a dot
  std::string_view scale;        ///< the same
  std::string_view input_scale;  ///< the same; empty where it has none
  std::array<bool, 3> takes{};   ///< by `WeightTiles`
  std::string_view source;       ///< version and file that it was read from
};

std::span<const Layout> layouts();
/// Throws `Error` that lists the names.
const Layout& find_layout(std::string_view name);

/// What a recipe means in files.
struct WeightScheme {
  WeightTiles tiles = WeightTiles::row;
  std::int64_t row_block = 0;  ///< of `WeightTiles::block`
  std::int64_t k_block = 0;
  InputScheme input = InputScheme::token;
  std::int64_t input_group = 0;
  ElementType scale_type =
      ElementType::f32;  ///< BF16 where the recipe's scales are, and the layout has them
  bool power_of_two = false;
};

/// Throws `Error` where the layout cannot say what the preset does: another format than E4M3, tiles
/// that it has no scales for, a weight's scale from the past, inputs that it cannot describe, or
/// calibration that is missing or not heeded.
WeightScheme make_scheme(const Layout& layout, const Preset& preset, bool calibrated);

/// The scale of a weight [rows, k], as a layout has it.
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
