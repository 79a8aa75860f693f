#pragma once
// Checks element types: some systems compute in the type of their tensor, which decides bits.

#include <string>
#include <string_view>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// Throws `Error` that names the tensor if the preset's system would compute in another type than
/// this library: FP32 systems accept F32, BF16 systems BF16, all others any type.
void require_recipe_takes(std::string_view preset, const Recipe& recipe, const TensorSpec& tensor);

}  // namespace fp8lab
