#pragma once
// Known mistakes in the last step, the cast of a finished number to an output code.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/term_variants.hpp"

namespace fp8lab {

/// A mistake in the cast of a finished number to the output format.
struct CastMistake {
  std::string name;
  std::string text;
  std::function<std::uint32_t(float)> code;
  bool of_result = false;  ///< in the number itself: mistakes before the cast may be its reason
};

/// The right cast.
std::function<std::uint32_t(float)> cast_as(FormatId to, const CastPolicy& policy);

/// Known mistakes in casts, the more specific ones first.
std::vector<CastMistake> cast_mistakes(FormatId id, const CastPolicy& policy);

/// Those that are rarer, or what other mistakes come to.
std::vector<CastMistake> rarer_cast_mistakes(FormatId id, const CastPolicy& policy);

/// Results limited to the smallest or largest ones that are there, where right ones go beyond.
std::optional<CastMistake> clamp_mistake(FormatId id, const CastPolicy& policy,
                                         std::span<const float> right,
                                         std::span<const std::uint32_t> got);

/// Another cast of the floats that a recipe quantizes.
struct OtherQuantization {
  std::string_view name;
  std::string_view text;  ///< the mistake in the operand
  OtherCast cast;
};

/// The casts of kernels that quantize their operands: truncation and, for FP8 operands, the cast of
/// Triton's interpreter. Empty if the operands were given as codes.
std::vector<OtherQuantization> quantization_mistakes(const Product& product);

}  // namespace fp8lab
