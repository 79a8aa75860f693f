#pragma once
// How systems name and shape a quantized weight and its scales in a file, and which recipes each
// layout can describe.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/linear/layer_rule.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// Which elements of a weight [rows, k] share a scale: all, a row, a block of rows and columns, or
/// a group, which is a part of a row.
enum class WeightTiles : std::uint8_t { tensor, row, block, group };
std::string_view to_string(WeightTiles tiles);

/// How a weight's scales are stored.
enum class ScaleKind : std::uint8_t {
  plain,      ///< FP32, or BF16
  e8m0,       ///< powers of two, one byte each (MXFP8, MXFP6, MXFP4)
  two_level,  ///< E4M3 under one FP32 scale of the tensor (NVFP4)
};

/// How the system that loads the files casts a layer's input.
enum class InputScheme : std::uint8_t {
  token,       ///< one scale for each row of the input, computed at run time
  group,       ///< one for each group of `WeightScheme::input_group` elements of a row
  tensor,      ///< one scale for the whole input, computed at run time
  calibrated,  ///< one scale from the file; in NVFP4 the upper level, groups get theirs at run time
  two_level,   ///< both levels of NVFP4, computed at run time
  stays,       ///< the input is not cast
};

std::string_view to_string(InputScheme input);

/// Where the scales of K and V for the cache stand, if a layout has them.
enum class KvPlace : std::uint8_t {
  none,
  attention,   ///< ATTENTION.k_scale, of the tensor [1] or of heads [heads, 1, 1]
  projection,  ///< ATTENTION.k_proj.k_scale, of the tensor alone
};

/// What the layouts of a system share (layouts/family.hpp).
class LayoutFamily;

/// A kind of groups that a layout can store: the format of the codes and of their scales.
struct GroupElements {
  FormatId format = FormatId::e2m1;
  ScaleKind scales = ScaleKind::e8m0;
};

/// A layout of files. Scale direction: value = code * scale. Codes are E4M3, except in groups,
/// which may have other formats. The names follow the module's name and a dot.
///
/// layout               codes            scale             its shape
/// compressed-tensors   weight           weight_scale      [1], [rows, 1] or [ceil(rows/n), k/m]
/// modelopt             weight           weight_scale      [], [rows] or [rows/n, 1, k/m, 1]
/// hf-fp8               weight           weight_scale_inv  [] or [ceil(rows/n), ceil(k/m)]
/// deepseek             weight           weight_scale_inv  [ceil(rows/n), ceil(k/m)]
/// deepseek-v4          weight           scale             the same, E8M0
/// autofp8              weight           weight_scale      [1]
/// fbgemm               weight           weight_scale      [rows, 1]
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
/// mxfp8                weight           weight_scale_inv
/// deepseek-v4          weight (I8)      scale (E8M0): experts alone
/// gpt-oss              NAME_blocks [experts, rows, k / 32, 16], NAME_scales [experts, rows, k /
/// 32]
struct Layout {
  std::string_view name;
  std::string_view method;       ///< `quant_method` in config.json
  std::string_view codes;        ///< the name that follows the module's name and a dot
  std::string_view scale;        ///< the same for the scale
  std::string_view input_scale;  ///< the same for the input's scale; empty if there is none
  std::string_view kept_key;     ///< the list of modules that stay, in config.json
  std::array<bool, 3> takes{};   ///< indexed by `WeightTiles` (tensor, row, block)
  std::span<const GroupElements> groups;      ///< the groups that it can store; empty for none
  std::string_view source;                    ///< version and file in which this was read
  int scalar_dimensions = 0;                  ///< of a tensor's scale, each 1
  int row_dimensions = 1;                     ///< of the scales of rows: [rows] or [rows, 1]
  bool spreads_blocks = false;                ///< scales of blocks are [rows, 1, columns, 1]
  ElementType e8m0_type = ElementType::u8;    ///< of one-byte scales of groups
  ElementType packed_type = ElementType::u8;  ///< of packed codes
  bool blocks_are_e8m0 = false;               ///< scales of blocks are powers of two, in one byte
  bool has_bf16_scales = false;               ///< scales of BF16 systems are stored as BF16
  bool mixes_schemes = false;                 ///< config.json can give modules schemes of their own
  std::string_view packed_codes = {};  ///< the name of FP4 and FP6 codes; empty where it is `codes`
  std::string_view tensor_scale = {};  ///< that of the upper of two levels
  std::string_view two_level_input_scale = {};  ///< under two levels; empty: `input_scale`
  KvPlace kv_scales = KvPlace::none;
  bool stores_multiplier = false;        ///< upper scales multiply into E2M1, not back
  bool joins_tensor_scales = false;      ///< weights that servers join share their upper scale
  bool for_tensor_cores = false;         ///< scales of groups lie as tensor cores read them
  bool keeps_inputs = false;             ///< inputs of groups are not cast
  bool scales_two_level_inputs = false;  ///< both levels of inputs are computed at run time
  bool fuses_experts = false;            ///< it has experts [experts, k, rows] and nothing else
  const LayoutFamily* family = nullptr;  ///< set by `layouts`
};

std::span<const Layout> layouts();
/// The layout called `name`.
/// Throws `Error` that lists the names.
const Layout& find_layout(std::string_view name);

/// What a recipe means in files: formats, tiles and types of a weight and of its input.
struct WeightScheme {
  FormatId format = FormatId::e4m3fn;
  ScaleKind scales = ScaleKind::plain;
  WeightTiles tiles = WeightTiles::row;
  std::int64_t row_block = 0;  ///< rows that share a scale, in a `block` or a `group`
  std::int64_t k_block = 0;    ///< elements of a row that share a scale, likewise
  InputScheme input = InputScheme::token;
  std::int64_t input_group = 0;  ///< elements; 0 unless `input` is `group`
  FormatId input_format = FormatId::e4m3fn;
  ElementType scale_type =
      ElementType::f32;  ///< BF16 where the recipe's scales are, and the layout has them
  ElementType input_scale_type = ElementType::f32;
  bool power_of_two = false;
  std::string torchao_scaling = {};  ///< how torchao is to scale MX inputs
};

/// Modules that are converted by a scheme of their own.
struct ModuleScheme {
  std::string pattern;  ///< a module's name, or `re:` and a regular expression
  std::string recipe;
  WeightScheme scheme;
  std::vector<std::string> modules = {};  ///< those that are converted
};

/// The scheme of `preset` in `layout`. `calibrated`: input scales are known and will be written.
/// NVFP4 in compressed-tensors and modelopt: with calibration, inputs get their scale from the
/// file; without it, they are not cast (NVFP4A16, W4A16_NVFP4).
///
/// Throws `Error` if the layout cannot describe the preset: it has no scales for the format or the
/// tiles, the weight's scale comes from earlier steps, it cannot describe the inputs, or
/// calibration is needed and missing, or given and without effect.
WeightScheme make_scheme(const Layout& layout, const Preset& preset, bool calibrated);

/// The same for a part of a model's modules: samples may be there for the others.
WeightScheme make_scheme_of_part(const Layout& layout, const Preset& preset, bool calibrated);

/// What shares a scale of the KV cache.
enum class KvScales : std::uint8_t { none, tensor, head };

/// The schemes of a whole model.
struct ModelSchemes {
  // NOLINTNEXTLINE(google-explicit-constructor): most models have one
  ModelSchemes(WeightScheme all, std::vector<ModuleScheme> more = {},
               std::vector<std::string> rest = {})
      : scheme(std::move(all)), others(std::move(more)), modules(std::move(rest)) {}

  WeightScheme scheme;  ///< of all modules that `others` do not name
  std::vector<ModuleScheme> others;
  std::vector<std::string> modules;    ///< those of `scheme`, where there are others
  KvScales kv_cache = KvScales::none;  ///< whether the KV cache is E4M3 under scales of the files
};

/// The names that follow a module's name and a dot; empty if the scheme has no such tensor.
struct WeightNames {
  std::string_view codes;
  std::string_view scale;
  std::string_view tensor_scale;  ///< the upper level of two
  std::string_view input_scale;
};
WeightNames weight_names(const Layout& layout, const WeightScheme& scheme);

/// The shape of the scales of a weight [rows, k] in a layout; empty for a scalar.
std::vector<std::int64_t> scale_shape(const Layout& layout, const WeightScheme& scheme,
                                      std::int64_t rows, std::int64_t k);

/// Whether a tensor is converted: as the rule says, except that tensors that are not matrices of
/// floats stay, and those that the system would not find or would misread if they were converted.
LayerDecision decide(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                     const TensorSpec& tensor);

/// Why elements of a type are not quantized; empty where they are.
std::string type_fault(ElementType type);

/// The rule's decision if the tensor's type is known too: integers, booleans and FP8 stay.
LayerDecision decide(const LayerRule& rule, const TensorSpec& tensor);

/// The decision for files that are not a model's: floats of two or more dimensions are converted,
/// unless they are the scales of other tensors or the weight of a convolution.
LayerDecision decide_by_shape(const TensorSpec& tensor);

/// The module's name: `tensor` without `.weight` at its end; empty for other names.
std::string_view module_of(std::string_view tensor);

}  // namespace fp8lab
