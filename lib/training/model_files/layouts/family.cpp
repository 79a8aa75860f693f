// The families of layouts, and what most of them have in common.

#include "training/model_files/layouts/family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

namespace fp8lab {

// Each is defined in the source of its name.
const LayoutFamily& compressed_tensors_family();
const LayoutFamily& modelopt_family();
const LayoutFamily& fp8_family();
const LayoutFamily& torchao_family();
const LayoutFamily& gpt_oss_family();
const LayoutFamily& quark_family();
const LayoutFamily& mistral_family();

namespace {

/// Modules that look words up rather than multiply: no layout has a scale there that is read.
constexpr std::array<std::string_view, 3> kEmbeddings{"embed", "wte", "wpe"};

bool is_embedding(std::string_view module) {
  // T5's embedding, and the one that its attention looks positions up in.
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  if (leaf == "shared" || leaf == "relative_attention_bias") return true;
  std::string lower(module);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kEmbeddings.begin(), kEmbeddings.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

std::vector<StoredNames> all_names() {
  std::vector<StoredNames> all;
  for (const LayoutFamily* family : layout_families())
    all.insert(all.end(), family->names().begin(), family->names().end());
  std::stable_partition(all.begin(), all.end(),
                        [](const StoredNames& one) { return !one.is_fused; });
  return all;
}

}  // namespace

bool is_of_experts(const TensorSpec& tensor) {
  return tensor.name.find(".experts.") != std::string::npos;
}

std::span<const LayoutFamily* const> layout_families() {
  static const std::vector<const LayoutFamily*> kFamilies{&compressed_tensors_family(),
                                                          &modelopt_family(),
                                                          &fp8_family(),
                                                          &torchao_family(),
                                                          &gpt_oss_family(),
                                                          &quark_family(),
                                                          &mistral_family()};
  return kFamilies;
}

std::set<std::string> own_files() {
  std::set<std::string> files;
  for (const LayoutFamily* family : layout_families())
    if (!family->own_file().empty()) files.emplace(family->own_file());
  return files;
}

std::span<const StoredNames> stored_names() {
  static const std::vector<StoredNames> kNames = all_names();
  return kNames;
}

void LayoutFamily::read_beside(const nlohmann::ordered_json& /*config*/,
                               StoredQuantization& /*stored*/) const {}

nlohmann::ordered_json LayoutFamily::describe(const Layout& /*layout*/,
                                              const ModelSchemes& /*schemes*/,
                                              const std::vector<std::string>& /*kept*/) const {
  return nlohmann::ordered_json::object();
}

nlohmann::ordered_json LayoutFamily::beside(const Layout& /*layout*/,
                                            const ModelSchemes& /*schemes*/) const {
  return nlohmann::ordered_json::object();
}

nlohmann::ordered_json LayoutFamily::own_config(const ModelSchemes& /*schemes*/,
                                                const std::vector<std::string>& /*kept*/) const {
  return nlohmann::ordered_json::object();
}

std::map<std::string, std::string> LayoutFamily::metadata(const QuantizedModel& /*model*/) const {
  return {};
}

bool LayoutFamily::is_own_metadata(const std::string& /*key*/, const std::string& /*value*/) const {
  return false;
}

void LayoutFamily::complete(const Preset& /*preset*/, WeightScheme& /*scheme*/) const {}

void LayoutFamily::require_input(const WeightScheme& /*scheme*/,
                                 const std::string& /*argument*/) const {}

std::string LayoutFamily::shape_fault(const Layout& /*layout*/, const WeightScheme& scheme,
                                      std::int64_t /*rows*/, std::int64_t k) const {
  if (scheme.tiles == WeightTiles::group && k % scheme.k_block != 0)
    return fmt::format("{} is not a multiple of the group's {}", k, scheme.k_block);
  return {};
}

LayerDecision LayoutFamily::decide(const LayerRule& rule, const Layout& layout,
                                   const WeightScheme& scheme, const TensorSpec& tensor) const {
  LayerDecision decision = fp8lab::decide(rule, tensor);
  if (!decision.converts) return decision;
  if (is_embedding(module_of(tensor.name)))
    return {false, fmt::format("an embedding, for which {} has no scales", layout.name)};
  if (tensor.shape[0] == 0 || tensor.shape[1] == 0) return {false, "no elements"};
  const std::string fault = shape_fault(layout, scheme, tensor.shape[0], tensor.shape[1]);
  return {fault.empty(), fault};
}

}  // namespace fp8lab
