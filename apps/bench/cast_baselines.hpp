#pragma once
// Other people's casts of binary32 to FP8, which a user could take instead of ours.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::cli {

struct CastBaseline {
  std::string name;
  FormatId format;
  std::string profile;  ///< ours to compare with
  std::function<void(std::span<const float>, std::span<std::uint8_t>)> cast;
};

/// Those that are there when this program is built; the ones of Python packages are in
/// apps/bench/baselines.py.
std::vector<CastBaseline> cast_baselines();

}  // namespace fp8lab::cli
