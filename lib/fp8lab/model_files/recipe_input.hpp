#pragma once
// Systems that compute in the type of their tensor have other bits for another type.

#include <string>
#include <string_view>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// Throws `Error` naming the tensor where the preset's system would compute in another type than
/// this library does: FP32 systems take F32, BF16 systems BF16; of the others all do.
void require_recipe_takes(std::string_view preset, const Recipe& recipe, const TensorSpec& tensor);

}  // namespace fp8lab
