#include "fp8lab/scaling/presets.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/scaling/preset_list.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"activation", "weight", "gradient"};
constexpr std::array<std::string_view, 3> kProducts{"fprop", "dgrad", "wgrad"};
constexpr std::array<std::string_view, 3> kEvidence{"compared with the package", "by reading",
                                                    "defined here"};

std::vector<Preset> make_presets() {
  std::vector<Preset> all = scaling_detail::training_presets();
  for (auto make :
       {scaling_detail::mx_presets, scaling_detail::fp4_presets, scaling_detail::serving_presets,
        scaling_detail::mx_serving_presets, scaling_detail::jax_presets})
    for (const Preset& preset : make()) all.push_back(preset);
  return all;
}

}  // namespace

std::string_view to_string(TensorRole role) { return kRoles[static_cast<std::size_t>(role)]; }

TensorRole find_tensor_role(std::string_view name) {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    if (kRoles[i] == name) return static_cast<TensorRole>(i);
  throw Error("role", "activation, weight or gradient", "'" + std::string(name) + "'");
}

std::string_view to_string(LinearProduct product) {
  return kProducts[static_cast<std::size_t>(product)];
}

LinearProduct find_linear_product(std::string_view name) {
  return find_enumerator<LinearProduct>(kProducts, "product", name);
}

std::string_view to_string(Evidence evidence) {
  return kEvidence[static_cast<std::size_t>(evidence)];
}

const Recipe& Preset::recipe(TensorRole role) const {
  if (role == TensorRole::weight) return weight;
  return role == TensorRole::gradient ? gradient : activation;
}

const Recipe& Preset::recipe(TensorRole role, LinearProduct product) const {
  using enum LinearProduct;
  constexpr std::array<LinearProduct, 3> kAbsent{dgrad, wgrad, fprop};
  require(kAbsent[static_cast<std::size_t>(role)] != product, "product",
          fmt::format("a product that the {} enters", to_string(role)), to_string(product));
  require(product != wgrad || !high_precision_wgrad, "product",
          fmt::format("a product that {} computes in FP8", name), to_string(product));
  const std::array<const std::optional<Recipe>*, 3> second{&activation_for_wgrad, &weight_for_dgrad,
                                                           &gradient_for_wgrad};
  const std::optional<Recipe>& own = *second[static_cast<std::size_t>(role)];
  const LinearProduct second_product = role == TensorRole::weight ? dgrad : wgrad;
  return own && product == second_product ? *own : recipe(role);
}

std::span<const Preset> presets() {
  static const std::vector<Preset> kPresets = make_presets();
  return kPresets;
}

const Preset& find_preset(std::string_view name) { return find_named(presets(), "recipe", name); }

}  // namespace fp8lab
