#pragma once
// The ways in which the last step, from a finished number to an output code, goes wrong.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

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

}  // namespace fp8lab
