// Mistral's own files: params.json and consolidated.safetensors, whose FP8 weights have one scale
// each. Written for vLLM, which reads them as `quant_method: fp8` (transformers_utils/configs/
// mistral.py and models/mistral.py: qscale_weight becomes weight_scale, qscale_act input_scale).

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<Layout, 1> kMistralLayouts{
    {{.name = "mistral",
      .method = "mistral",
      .codes = "weight",
      .scale = "qscale_weight",
      .input_scale = "qscale_act",
      .kept_key = "",
      .takes = {true, false, false},
      .groups = {},
      .source = "vLLM, transformers_utils/configs/mistral.py and models/mistral.py"}}};

constexpr std::array<StoredNames, 1> kMistralNames{{{".weight", ".qscale_weight", "", ".weight"}}};

constexpr std::string_view kFormat = "fp8_e4m3";

/// TENSOR: scales of the inputs are in the files, also where nothing is said. NO_SCALES: they are
/// computed at run time.
void read_mistral(const Json& config, StoredQuantization& stored) {
  const std::string format = text_of(config, "qformat_weight");
  require(format == kFormat, stored.where + ": qformat_weight", kFormat,
          fmt::format("'{}'", format.substr(0, 40)));
  const std::string scheme = text_of(config, "qscheme_act");
  require(scheme.empty() || scheme == "TENSOR" || scheme == "NO_SCALES",
          stored.where + ": qscheme_act", "TENSOR or NO_SCALES", scheme.substr(0, 40));
  stored.has_forms = true;
  stored.static_inputs = scheme != "NO_SCALES";
  stored.has_dynamic_inputs = scheme == "NO_SCALES";
  stored.form.tiles = WeightTiles::tensor;
  stored.says_no_blocks = true;
}

constexpr std::array<QuantMethod, 1> kMistralMethods{{{"mistral", read_mistral}}};

class Mistral final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kMistralLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kMistralMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kMistralNames; }
  [[nodiscard]] std::string_view config_file() const override { return "params.json"; }
  [[nodiscard]] std::string_view config_key() const override { return "quantization"; }

  [[nodiscard]] Json describe(const Layout& /*layout*/, const ModelSchemes& schemes,
                              const std::vector<std::string>& /*kept*/) const override {
    const bool is_static = schemes.scheme.input == InputScheme::calibrated;
    return {{"qformat_weight", kFormat}, {"qscheme_act", is_static ? "TENSOR" : "NO_SCALES"}};
  }

  void require_input(const WeightScheme& scheme, const std::string& argument) const override {
    using enum InputScheme;
    require(scheme.input == tensor || scheme.input == calibrated, argument, "one scale",
            "another scheme");
  }

  /// vLLM quantizes every linear layer but the head, which these files call `output`.
  [[nodiscard]] LayerDecision decide(const LayerRule& rule, const Layout& layout,
                                     const WeightScheme& scheme,
                                     const TensorSpec& tensor) const override {
    if (module_of(tensor.name) == "output")
      return {false, fmt::format("the head, for which {} has no scales", layout.name)};
    return LayoutFamily::decide(rule, layout, scheme, tensor);
  }
};

}  // namespace

const LayoutFamily& mistral_family() {
  static const Mistral kFamily;
  return kFamily;
}

}  // namespace fp8lab
