#pragma once
// Inputs of 16-bit dot products that tell rules of binary32 arithmetic apart. For the files of this
// room.

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class ProbeKind : std::uint8_t {
  normal,      ///< numbers about 1, and c of the size of the sum
  wide,        ///< any finite codes and any finite c
  special,     ///< NaN, infinities, zeros and the ends of the formats among normal numbers
  small,       ///< sums about 2^-126, which a unit may flush, with terms down to 2^-152
  tie,         ///< c beside half of its last place, with or without something below it
  cancelling,  ///< products that cancel, or c that cancels one
};
inline constexpr std::uint64_t kProbeKinds = 6;

/// Case `index` of a seed: a function of these and of format and length alone.
class ProbeCases {
 public:
  ProbeCases(const Format& format, std::uint64_t seed);

  static constexpr ProbeKind kind_of(std::uint64_t index) {
    return static_cast<ProbeKind>(index % kProbeKinds);
  }
  /// Fills a and b, of the same size, with codes; gives c as binary32 bits.
  std::uint32_t make(std::uint64_t index, std::span<std::uint16_t> a,
                     std::span<std::uint16_t> b) const;

 private:
  const Format& format_;
  RandomStream stream_;
};

}  // namespace fp8lab
