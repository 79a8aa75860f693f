#include "optimizer-precision/rows.hpp"

#include <algorithm>
#include <string_view>

#include "training/optim/presets.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view kUnscaled = "-unscaled";

bool is_preset(std::string_view name) {
  return std::any_of(optimizer_presets().begin(), optimizer_presets().end(),
                     [&](const OptimizerPreset& preset) { return preset.name == name; });
}

void drop_scales(AdamWOptions& options) {
  for (StateFormat* state : {&options.master, &options.gradient, &options.m, &options.v})
    state->scaling = StateScaling::none;
}

}  // namespace

OptimizerRow find_optimizer_row(const std::string& name) {
  if (name == "fp32" || name == "bf16") return {name, find_variant(name), {}, true};
  const bool unscaled = name.ends_with(kUnscaled);
  const std::string base =
      unscaled && !is_preset(name) ? name.substr(0, name.size() - kUnscaled.size()) : name;
  OptimizerRow row{name, find_variant("bf16"), find_optimizer_preset(base).options, !unscaled};
  if (unscaled) drop_scales(row.states);
  return row;
}

}  // namespace fp8lab::experiments
