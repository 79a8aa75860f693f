#pragma once
// Casts with stochastic rounding: what must hold whatever the random bits are, and which bits and
// which rule give the results. Whether a chip or a simulation casts does not matter here.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stochastic_casts.hpp"
#include "tool/parts.hpp"

namespace fp8lab::cuda {

struct StochasticInput {
  std::array<float, 4> values;
  std::uint32_t random;
};
/// A word of codes for each input.
using RunStochastic =
    std::function<std::vector<std::uint32_t>(const std::vector<StochasticInput>&)>;

/// When a magnitude is rounded up: f, the discarded fraction cut to as many bits as there are
/// random ones, r, of which all are ones in `all`.
enum class UpRule : std::uint8_t {
  sum_carries,     ///< f + r > all: the bits are added below the last place
  fraction_above,  ///< f > r, which is f + (all - r) > all
};

/// The random bits of one element: `width` from bit `first` on.
struct RandomBits {
  int first = 0;
  int width = 8;
  bool reversed = false;  ///< the lowest is the most significant
  UpRule rule = UpRule::sum_carries;

  friend bool operator==(const RandomBits&, const RandomBits&) = default;
};
/// For people: `bits 8 to 15, added below the last place`.
std::string to_string(const RandomBits& bits);

/// The code of a value with these random bits: rounded toward zero, or up in magnitude.
std::uint32_t rounded(const StochasticCast& cast, float value, std::uint32_t random,
                      const RandomBits& bits);

/// Casts random, exact, subnormal, too large and special values, and then values whose discarded
/// fraction is next to the random bits that were found. A mismatch is a result that no random bits
/// may give: neither neighbour of the value, an exact value that is changed, or another special
/// value. The note names the random bits of each element, the fewest of those that differ for no
/// value, or says that no rule explains the results, which is a problem of the row.
CheckRow judge_rounding(const StochasticCast& cast, const RunStochastic& run,
                        std::uint64_t seed = 1, std::size_t inputs = 1 << 16);

}  // namespace fp8lab::cuda
