// `quant_method: fp8` and its relatives: DeepSeek's folders, transformers' own, AutoFP8's, FBGEMM's
// and MXFP8.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<GroupElements, 1> kMxfp8Groups{{{FormatId::e4m3fn, ScaleKind::e8m0}}};
constexpr std::array<GroupElements, 1> kMxfp4Groups{{{FormatId::e2m1, ScaleKind::e8m0}}};

constexpr std::array<Layout, 6> kFp8Layouts{
    {{.name = "hf-fp8",
      .method = "fp8",
      .codes = "weight",
      .scale = "weight_scale_inv",
      .input_scale = "activation_scale",
      .kept_key = "modules_to_not_convert",
      .takes = {true, false, true},
      .groups = {},
      .source =
          "transformers 5.23.0, integrations/finegrained_fp8.py and utils/quantization_config.py"},
     {.name = "deepseek",
      .method = "fp8",
      .codes = "weight",
      .scale = "weight_scale_inv",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {false, false, true},
      .groups = {},
      .source = "DeepSeek-V3, README_WEIGHTS.md and config.json"},
     {.name = "deepseek-v4",
      .method = "fp8",
      .codes = "weight",
      .scale = "scale",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {false, false, true},
      .groups = kMxfp4Groups,
      .source = "DeepSeek-V4, config.json and inference/convert.py",
      .e8m0_type = ElementType::e8m0fnu,
      .packed_type = ElementType::i8,
      .blocks_are_e8m0 = true,
      .mixes_schemes = true,
      .keeps_inputs = true},
     {.name = "autofp8",
      .method = "fp8",
      .codes = "weight",
      .scale = "weight_scale",
      .input_scale = "input_scale",
      .kept_key = "ignored_layers",
      .takes = {true, false, false},
      .groups = {},
      .source = "vLLM, model_executor/layers/quantization/fp8.py (files of AutoFP8)",
      .scalar_dimensions = 1},
     {.name = "fbgemm",
      .method = "fbgemm_fp8",
      .codes = "weight",
      .scale = "weight_scale",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {false, true, false},
      .groups = {},
      .source = "transformers 5.23.0, integrations/fbgemm_fp8.py",
      .row_dimensions = 2},
     {.name = "mxfp8",
      .method = "mxfp8",
      .codes = "weight",
      .scale = "weight_scale_inv",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {false, false, false},
      .groups = kMxfp8Groups,
      .source = "MiniMax-M3, config.json and tensors"}}};

/// Those of ComfyUI (`scale_weight`) too, whose files have no configuration of their own.
constexpr std::array<StoredNames, 5> kFp8Names{{
    {".weight", ".weight_scale_inv", "", ".weight"},
    {".weight", ".scale", "", ".weight"},
    {".weight", ".scale_weight", "", ".weight"},
    {"", "_scale_inv", "", "", false, true},
    {"", "_weight_scale_inv", "", "", false, true},
}};

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

/// fbgemm's kernel cuts inputs above this number, by its own default.
constexpr double kFbgemmBound = 1200.0;

Json fbgemm(const Layout& layout, const std::vector<std::string>& kept) {
  return {{"quant_method", layout.method},
          {"activation_scale_ub", kFbgemmBound},
          {std::string(layout.kept_key), kept}};
}

Json fp8(const Layout& layout, const WeightScheme& scheme, const std::vector<std::string>& kept) {
  if (layout.takes[static_cast<std::size_t>(WeightTiles::row)]) return fbgemm(layout, kept);
  const bool is_static = scheme.input == InputScheme::calibrated;
  Json result{{"quant_method", layout.method},
              {"fmt", "e4m3"},
              {"activation_scheme", is_static ? "static" : "dynamic"}};
  const bool experts_alone = layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group;
  if (experts_alone)
    result["weight_block_size"] = Json::array({128, 128});
  else if (scheme.tiles == WeightTiles::block || scheme.tiles == WeightTiles::group)
    result["weight_block_size"] = Json::array({scheme.row_block, scheme.k_block});
  else if (layout.scalar_dimensions == 0)
    result["weight_block_size"] = nullptr;
  // To transformers this would say that the scales are bytes, which only DeepSeek's files mean
  // otherwise.
  if ((layout.name == "deepseek" && scheme.power_of_two) || layout.blocks_are_e8m0)
    result["scale_fmt"] = "ue8m0";
  if (!kept.empty()) result[std::string(layout.kept_key)] = kept;
  return result;
}

/// transformers takes rows / scale rows as the block where it dequantizes.
std::string ragged_fault(const Layout& layout, const WeightScheme& scheme, std::int64_t rows,
                         std::int64_t k) {
  if (scheme.tiles != WeightTiles::block || layout.name != "hf-fp8") return {};
  const auto ragged = [](std::int64_t size, std::int64_t block) {
    return size > block && size % block != 0;
  };
  if (ragged(rows, scheme.row_block))
    return fmt::format("{} is not a multiple of the block's {}", rows, scheme.row_block);
  if (ragged(k, scheme.k_block))
    return fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
  return {};
}

/// Whether a tensor [experts, n, k] holds the experts of a layer, and the layout has scales of
/// their blocks.
bool is_fused_expert(const Layout& layout, const WeightScheme& scheme, const TensorSpec& tensor) {
  const bool has_blocks = (layout.name == "hf-fp8" || layout.name == "deepseek") &&
                          scheme.tiles == WeightTiles::block && scheme.row_block == scheme.k_block;
  return has_blocks && tensor.shape.size() == 3 && tensor.name.ends_with("_proj") &&
         is_of_experts(tensor);
}

/// Experts [experts, n, k] whose blocks have a scale. Blocks are square, so that it does not matter
/// which of n and k is the input.
LayerDecision decide_fused(const LayerRule& rule, const Layout& layout, const WeightScheme& scheme,
                           const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  const std::array<std::int64_t, 2> matrix{tensor.shape[1], tensor.shape[2]};
  LayerDecision decision = decide(rule, tensor.name + ".weight", matrix);
  if (!decision.converts) return decision;
  if (element_count(tensor.shape, tensor.name) == 0) return {false, "no elements"};
  const std::string block = ragged_fault(layout, scheme, matrix[0], matrix[1]);
  return {block.empty(), block};
}

constexpr std::array<QuantMethod, 3> kFp8Methods{
    {{"fp8", read_fp8}, {"mxfp8", read_mxfp8}, {"fbgemm_fp8", read_fbgemm}}};

class Fp8 final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kFp8Layouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kFp8Methods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kFp8Names; }

  /// DeepSeek-V4 says outside of `quantization_config` that its experts are FP4.
  void read_beside(const Json& config, StoredQuantization& stored) const override {
    if (text_of(config, "expert_dtype") != "fp4") return;
    FormGroup experts{.name = "expert_dtype", .targets = {}, .form = {}};
    experts.form = group_form(FormatId::e2m1, ScaleKind::e8m0);
    experts.targets.emplace_back("*.experts.*", PatternKind::modelopt, "expert_dtype");
    stored.groups.push_back(std::move(experts));
  }

  [[nodiscard]] Json describe(const Layout& layout, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept) const override {
    return fp8(layout, schemes.scheme, kept);
  }

  [[nodiscard]] Json beside(const Layout& layout, const ModelSchemes& schemes) const override {
    const auto has_groups = [](const WeightScheme& scheme) {
      return scheme.tiles == WeightTiles::group;
    };
    const bool among_others =
        std::any_of(schemes.others.begin(), schemes.others.end(),
                    [&](const ModuleScheme& other) { return has_groups(other.scheme); });
    if (!layout.blocks_are_e8m0 || (!has_groups(schemes.scheme) && !among_others))
      return Json::object();
    return {{"expert_dtype", "fp4"}};
  }

  void require_input(const WeightScheme& scheme, const std::string& argument) const override {
    using enum InputScheme;
    if (scheme.input == stays) return;
    if (scheme.tiles == WeightTiles::row)
      return require(scheme.input == token, argument, "one scale per row", "another scheme");
    const bool by_tensor = scheme.tiles == WeightTiles::tensor;
    const bool fits = by_tensor ? scheme.input == tensor || scheme.input == calibrated
                                : scheme.input == group && scheme.input_group == scheme.k_block;
    require(fits, argument,
            by_tensor ? "one scale" : "one scale for the part of a row that a block covers",
            "another scheme");
  }

  [[nodiscard]] std::string shape_fault(const Layout& layout, const WeightScheme& scheme,
                                        std::int64_t rows, std::int64_t k) const override {
    const std::string ragged = ragged_fault(layout, scheme, rows, k);
    return ragged.empty() ? LayoutFamily::shape_fault(layout, scheme, rows, k) : ragged;
  }

  [[nodiscard]] LayerDecision decide(const LayerRule& rule, const Layout& layout,
                                     const WeightScheme& scheme,
                                     const TensorSpec& tensor) const override {
    if (is_fused_expert(layout, scheme, tensor)) return decide_fused(rule, layout, scheme, tensor);
    LayerDecision decision = LayoutFamily::decide(rule, layout, scheme, tensor);
    if (decision.converts && layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group &&
        !is_of_experts(tensor))
      return {false, fmt::format("not an expert, and {} has FP4 for experts alone", layout.name)};
    return decision;
  }
};

}  // namespace

const LayoutFamily& fp8_family() {
  static const Fp8 kFamily;
  return kFamily;
}

}  // namespace fp8lab
