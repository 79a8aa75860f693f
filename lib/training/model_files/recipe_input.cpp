#include "training/model_files/recipe_input.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

void require_recipe_takes(std::string_view preset, const Recipe& recipe, const TensorSpec& tensor) {
  const bool narrow = tensor.type == ElementType::bf16 || tensor.type == ElementType::f16;
  const std::string argument = fmt::format("tensor '{}' under recipe {}", tensor.name, preset);
  require(!computes_in_fp32_input(recipe.rule) || !narrow, argument,
          fmt::format("f32 elements ({}-bf16 takes bf16; f16 has none)", preset),
          to_string(tensor.type));
  require(!takes_bf16(recipe.rule) || tensor.type == ElementType::bf16, argument, "bf16 elements",
          to_string(tensor.type));
}

}  // namespace fp8lab
