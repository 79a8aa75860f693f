#pragma once
// Distances in steps between representable numbers, and their histogram. They
// distinguish another rounding from a wrong algorithm.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The distance of a NaN from anything that is not a NaN.
inline constexpr std::uint64_t kNanDistance = std::numeric_limits<std::uint64_t>::max();

/// The number of steps between neighbouring numbers of `f` from code `a` to code
/// `b`. -0 and +0 are one number; Inf is one step above max finite. Two NaN have
/// distance 0, NaN and any other code `kNanDistance`. Bits above the format's width
/// are ignored.
std::uint64_t ulp_distance(const Format& f, std::uint32_t a, std::uint32_t b);

/// Distances of many pairs in bins 0, 1, 2, 3-4, 5-8, ..., doubling.
struct UlpHistogram {
  static constexpr std::size_t kBins = 34;
  std::array<std::uint64_t, kBins> counts{};
  std::uint64_t total = 0;           ///< pairs, NaN ones included
  std::uint64_t nan_mismatches = 0;  ///< pairs of a NaN and something else; in no bin
  std::uint64_t max_distance = 0;    ///< over all other pairs
  std::size_t max_index = 0;         ///< the first pair with it
  std::uint64_t toward_zero = 0;     ///< pairs whose actual number is smaller in magnitude
  std::uint64_t away_from_zero = 0;  ///< larger in magnitude; pairs of equal magnitude in neither

  static constexpr std::size_t bin_of(std::uint64_t distance) {
    std::size_t bin = 0;
    for (std::uint64_t last = 0; distance > last && bin + 1 < kBins; ++bin)
      last = last == 0 ? 1 : 2 * last;
    return bin;
  }
  /// The largest distance in a bin: 0, 1, 2, 4, 8, ...
  static constexpr std::uint64_t last_of(std::size_t bin) {
    return bin == 0 ? 0 : std::uint64_t{1} << (bin - 1);
  }
};

/// Histogram over pairs of codes. Throws `Error` if the sizes differ.
UlpHistogram ulp_histogram(const Format& f, std::span<const std::uint8_t> reference,
                           std::span<const std::uint8_t> actual);

/// The same over binary32 numbers.
UlpHistogram ulp_histogram(std::span<const float> reference, std::span<const float> actual);

}  // namespace fp8lab
