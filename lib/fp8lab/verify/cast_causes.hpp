#pragma once
// The ways in which the last step, from a finished number to an output code, goes wrong.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/term_variants.hpp"

namespace fp8lab {

/// What a finished number becomes on its way into the output format.
struct CastMistake {
  std::string name;
  std::string text;
  std::function<std::uint32_t(float)> code;
};

/// The cast itself.
std::function<std::uint32_t(float)> cast_as(FormatId to, const CastPolicy& policy);

/// The ways in which casts go wrong, more particular ones first.
std::vector<CastMistake> cast_mistakes(FormatId id, const CastPolicy& policy);

/// Another cast of the floats that a recipe quantizes.
struct OtherQuantization {
  std::string_view name;
  std::string_view text;  ///< what happened to the operand
  OtherCast cast;
};

/// Those that kernels have which quantize their operands themselves: truncated, and, of FP8
/// operands, as Triton's interpreter casts. None where the operands came as codes.
std::vector<OtherQuantization> quantization_mistakes(const Product& product);

}  // namespace fp8lab
