// gpt-oss: the fused experts of a layer in MXFP4, and nothing else.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<GroupElements, 1> kGptOssGroups{{{FormatId::e2m1, ScaleKind::e8m0}}};

constexpr std::array<Layout, 1> kGptOssLayouts{
    {{.name = "gpt-oss",
      .method = "mxfp4",
      .codes = "_blocks",
      .scale = "_scales",
      .input_scale = "",
      .kept_key = "modules_to_not_convert",
      .takes = {false, false, false},
      .groups = kGptOssGroups,
      .source = "transformers 5.23.0, integrations/mxfp4.py and models/gpt_oss/modeling_gpt_oss.py",
      .keeps_inputs = true,
      .fuses_experts = true}}};

void read_gpt_oss(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"modules_to_not_convert"}, PatternKind::transformers, stored);
  stored.has_forms = true;
  stored.has_experts_alone = true;
  stored.form = group_form(FormatId::e2m1, ScaleKind::e8m0);
}

/// gpt-oss has fused experts in MXFP4 and nothing else: [experts, k, rows].
LayerDecision decide_experts(const LayerRule& rule, const TensorSpec& tensor) {
  const std::string fault = type_fault(tensor.type);
  if (!fault.empty()) return {false, fault};
  const bool is_expert =
      tensor.name.ends_with(".experts.gate_up_proj") || tensor.name.ends_with(".experts.down_proj");
  if (!is_expert || tensor.shape.size() != 3) return {false, "not the fused experts of a layer"};
  const std::array<std::int64_t, 2> matrix{tensor.shape[2], tensor.shape[1]};
  LayerDecision decision = decide(rule, tensor.name + ".weight", matrix);
  if (!decision.converts) return decision;
  if (element_count(tensor.shape, tensor.name) == 0) return {false, "no elements"};
  if (tensor.shape[1] % 32 != 0)
    return {false, fmt::format("{} is not a multiple of the group's 32", tensor.shape[1])};
  return {true, ""};
}

constexpr std::array<StoredNames, 1> kGptOssNames{{
    {"_blocks", "_scales", "", "", false, true, true},
}};

constexpr std::array<QuantMethod, 1> kGptOssMethods{{{"mxfp4", read_gpt_oss}}};

class GptOss final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kGptOssLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kGptOssMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kGptOssNames; }

  [[nodiscard]] Json describe(const Layout& layout, const ModelSchemes& /*schemes*/,
                              const std::vector<std::string>& kept) const override {
    return {{"quant_method", layout.method}, {std::string(layout.kept_key), kept}};
  }

  [[nodiscard]] LayerDecision decide(const LayerRule& rule, const Layout& /*layout*/,
                                     const WeightScheme& /*scheme*/,
                                     const TensorSpec& tensor) const override {
    return decide_experts(rule, tensor);
  }
};

}  // namespace

const LayoutFamily& gpt_oss_family() {
  static const GptOss kFamily;
  return kFamily;
}

}  // namespace fp8lab
