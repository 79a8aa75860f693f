#include "fp8lab/verify/activation_reach.hpp"

#include <cmath>
#include <cstring>

#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/cast_interval.hpp"

namespace fp8lab {

WithinReach within_reach(const OutputCast& output, const Finished& finished,
                         std::span<const std::byte> golden, std::span<const std::byte> got) {
  const auto width = static_cast<std::size_t>(format(output.format).bytes());
  WithinReach result{{got.begin(), got.end()}};
  for (std::size_t i = 0; i < finished.reach.size(); ++i) {
    const std::size_t at = i * width;
    if (std::memcmp(&golden[at], &got[at], width) == 0) continue;
    const auto value = static_cast<double>(finished.values[i]);
    if (!std::isfinite(value)) continue;
    const CastInterval interval =
        cast_interval(output, value - finished.reach[i], value + finished.reach[i]);
    if (!lies_in(interval, output.format, code_at(output.format, got, i))) continue;
    std::memcpy(&result.codes[at], &golden[at], width);
    ++result.replaced;
  }
  return result;
}

}  // namespace fp8lab
