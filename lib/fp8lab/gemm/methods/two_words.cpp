#include "fp8lab/gemm/methods/two_words.hpp"

#include <cmath>

namespace fp8lab::gemm_detail {

TwoWords find_two_words(const Format& a, const Format& b, std::int64_t addends) {
  const ProductRange range(widest_row(a), widest_row(b), 1);
  // The second word holds `addends` rests below 2^unit, the first their whole parts.
  const int carries = ceil_log2(addends + 1);
  const int unit = range.low + 52 - carries;
  const int room = unit + 50;
  if (range.top + carries > room || range.low <= -120 || room >= 120) return {};
  return {.magic = std::ldexp(1.5, 52 + unit),
          .limit = std::ldexp(1.0, room),
          .lowest = std::ldexp(1.0, range.low)};
}

bool take_start(const TwoWords& words, float c) {
  return std::fabs(c) < words.limit && std::fmod(c, words.lowest) == 0.0;
}

}  // namespace fp8lab::gemm_detail
