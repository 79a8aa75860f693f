#include "training/model_files/siblings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "training/model_files/weight_cast.hpp"

namespace fp8lab {
namespace {

struct Joined {
  std::string_view part;
  std::string_view whole;
};

constexpr std::array<Joined, 7> kJoined{{{"q_proj", "qkv"},
                                         {"k_proj", "qkv"},
                                         {"v_proj", "qkv"},
                                         {"gate_proj", "gate_up"},
                                         {"up_proj", "gate_up"},
                                         {"w1", "w13"},
                                         {"w3", "w13"}}};

/// The larger one; NaN wins.
float joined_amax(float a, float b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

bool shares_tensor_scale(const Layout& layout, const WeightScheme& scheme) {
  return scheme.scales == ScaleKind::two_level && layout.joins_tensor_scales;
}

std::string joined_module(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  if (dot == std::string_view::npos) return {};
  for (const Joined& joined : kJoined)
    if (module.substr(dot + 1) == joined.part)
      return fmt::format("{}.{}", module.substr(0, dot), joined.whole);
  return {};
}

std::map<std::string, float> shared_amaxes(const ModelDirectory& source, const Recipe& recipe,
                                           const QuantizedModel& model) {
  std::map<std::string, std::vector<const TensorSpec*>> groups;
  for (const TensorSpec& weight : model.converted) {
    const std::string whole = joined_module(module_of(weight.name));
    if (!whole.empty()) groups[whole].push_back(&weight);
  }
  std::map<std::string, float> shared;
  std::map<std::size_t, std::unique_ptr<SafetensorsFile>> files;
  for (const auto& [whole, weights] : groups) {
    if (weights.size() < 2) continue;
    float largest = 0.0F;
    for (const TensorSpec* weight : weights) {
      const std::size_t shard = source.find(weight->name)->shard;
      std::unique_ptr<SafetensorsFile>& file = files[shard];
      if (!file) file = source.open(shard);
      const TensorView& tensor = file->find(weight->name);
      largest = joined_amax(weight_amax(recipe, tensor), largest);
      file->file().release(tensor.bytes);
    }
    if (!std::isfinite(largest)) continue;
    for (const TensorSpec* weight : weights) shared[std::string(module_of(weight->name))] = largest;
  }
  return shared;
}

void join_input_scales(std::map<std::string, float>& scales, bool are_multipliers) {
  std::map<std::string, float> joined;
  for (const auto& [module, scale] : scales) {
    const std::string whole = joined_module(module);
    if (whole.empty()) continue;
    const auto [at, is_new] = joined.emplace(whole, scale);
    if (!is_new)
      at->second = are_multipliers ? std::min(at->second, scale) : std::max(at->second, scale);
  }
  for (auto& [module, scale] : scales) {
    const auto found = joined.find(joined_module(module));
    if (found != joined.end()) scale = found->second;
  }
}

}  // namespace fp8lab
