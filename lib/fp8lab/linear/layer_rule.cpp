#include "fp8lab/linear/layer_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "fp8lab/core/names.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kWeightEnding = ".weight";

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::vector<LayerRule> make_rules() {
  return {
      {"llama-factory",
       {"embed", "lm_head", "output", "classifier"},
       {},
       16,
       "LLaMA-Factory with torchao or TransformerEngine"},
      {"deepseek-v3", {"embed", "head", "norm"}, {".gate"}, 1, "DeepSeek-V3"},
      {"linear",
       {"embed", "lm_head", "norm", ".router."},
       {".gate", ".router", "_gate"},
       1,
       "LLM Compressor, ModelOpt and transformers by default: every linear layer except lm_head"},
      {"language",
       {"embed", "lm_head", "norm", ".router.", "vision", "visual", "image", "audio",
        "multi_modal_projector", "mm_projector", "mtp", "nextn", "eh_proj", "shared_head",
        "indexer.weights_proj"},
       {".gate", ".router", "_gate"},
       1,
       "vLLM and SGLang build these layers quantized: the language part without routers, "
       "multi-token heads, and what sees images and sound"},
      {"all", {}, {}, 1, "every matrix"}};
}

}  // namespace

std::span<const LayerRule> layer_rules() {
  static const std::vector<LayerRule> kRules = make_rules();
  return kRules;
}

const LayerRule& find_layer_rule(std::string_view name) {
  return find_named(layer_rules(), "rule", name);
}

LayerDecision decide(const LayerRule& rule, std::string_view name,
                     std::span<const std::int64_t> shape) {
  if (!name.ends_with(kWeightEnding)) return {false, "not the .weight of a module"};
  const std::string module = lower_case(name.substr(0, name.size() - kWeightEnding.size()));
  for (const std::string_view part : rule.skipped_parts)
    if (module.find(part) != std::string::npos)
      return {false, fmt::format("the name contains {}", part)};
  for (const std::string_view ending : rule.skipped_endings)
    if (module.ends_with(ending)) return {false, fmt::format("the name ends with {}", ending)};
  if (shape.size() != 2) return {false, fmt::format("{} dimensions, not 2", shape.size())};
  for (const std::int64_t dimension : shape)
    if (dimension % rule.multiple != 0)
      return {false, fmt::format("{} is not a multiple of {}", dimension, rule.multiple)};
  return {true, ""};
}

}  // namespace fp8lab
