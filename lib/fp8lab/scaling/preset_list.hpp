#pragma once
// What the lists of presets are made of.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fp8lab/scaling/presets.hpp"

namespace fp8lab::scaling_detail {

/// Version and file that a preset was read from, and how its bits are known.
struct Origin {
  std::string_view used_by;
  std::string_view source;
  Evidence evidence = Evidence::read;
  std::string_view not_compared = {};  ///< by reading: why there is no comparison
};

inline constexpr std::string_view kGpuAlone =
    "the kernel needs a GPU, and has no reference for a CPU";

inline Recipe tiles(Recipe recipe, std::int64_t row_block, std::int64_t k_block) {
  recipe.row_block = row_block;
  recipe.k_block = k_block;
  return recipe;
}

inline Preset operands(std::string_view name, const Recipe& activation, const Recipe& weight,
                       const Recipe& gradient, const Origin& origin) {
  return {.name = name,
          .activation = activation,
          .weight = weight,
          .gradient = gradient,
          .used_by = origin.used_by,
          .source = origin.source,
          .evidence = origin.evidence,
          .not_compared = origin.not_compared};
}

inline Preset same(std::string_view name, const Recipe& recipe, const Origin& origin) {
  return operands(name, recipe, recipe, recipe, origin);
}

std::vector<Preset> training_presets();
std::vector<Preset> mx_presets();
std::vector<Preset> fp4_presets();
std::vector<Preset> serving_presets();
std::vector<Preset> mx_serving_presets();
std::vector<Preset> jax_presets();

}  // namespace fp8lab::scaling_detail
