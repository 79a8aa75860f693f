#include "training/collectives/scales.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

float unified_scale(std::span<const float> scales) {
  const FloatEnvironment environment;
  require(!scales.empty(), "scales", "at least one", "none");
  for (const float scale : scales)
    require(std::isfinite(scale) && scale > 0.0F, "scales", "positive, finite numbers",
            fmt::format("{}", scale));
  return *std::min_element(scales.begin(), scales.end());
}

WireCounts requantize(const WireFormat& wire, std::span<std::byte> codes, float from, float to,
                      const Backend& backend) {
  require(wire.bytes == 1, "wire", "e4m3fn or e5m2", wire.name);
  std::vector<float> values(codes.size());
  from_wire(wire, codes, 1.0F, values);
  return to_wire(wire, values, to / from, codes, backend);
}

float mean_scale(float unified, int ranks) {
  const FloatEnvironment environment;
  require(ranks >= 1, "ranks", "at least 1", fmt::format("{}", ranks));
  return unified * static_cast<float>(ranks);
}

}  // namespace fp8lab
