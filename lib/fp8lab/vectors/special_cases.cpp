// Cases of special values.

#include <array>

#include "fp8lab/vectors/case_builder.hpp"

namespace fp8lab::detail {
namespace {

std::uint32_t special_code(const Format& f, Draws& draws) {
  const std::uint32_t sign = draws.coin() ? f.sign_mask() : 0;
  switch (draws.between(0, 5)) {
    case 0:
      return sign;
    case 1:
      return sign | f.max_finite_code();
    case 2:
      return sign | 1;
    case 3:
      return sign | (f.has_infinity() ? f.infinity_code() : f.max_finite_code());
    case 4:
      return sign | (f.has_nan_for_negative_zero() || !f.has_nan() ? 0 : f.magnitude_mask());
    default:
      return normal_code(f, sign != 0, 0, 0);
  }
}

std::uint32_t special_c(Draws& draws) {
  constexpr std::array<std::uint32_t, 9> kMagnitudes{
      0, 0x7f800000u, 0x7fc00000u, 0x7f800001u, 0x7f7fffffu, 0x00800000u, 1u, 0x3f800000u, 0u};
  const std::uint32_t magnitude = kMagnitudes[static_cast<std::size_t>(draws.between(0, 8))];
  return magnitude | (draws.coin() ? 0x80000000u : 0);
}

}  // namespace

void build_special(Builder& c) {
  if (!c.draws.one_in(3))
    for (int i = 0; i < c.terms; ++i) c.set_finite(i, 3);
  else if (c.draws.coin())
    for (int i = 0; i < c.terms; ++i) c.set(i, with_zero(c.a, c.a.sign_mask()), 0);
  const int specials = c.draws.between(0, 3);
  for (int n = 0; n < specials; ++n) {
    const bool both = c.draws.coin();
    const std::uint32_t b = both ? special_code(c.b, c.draws) : finite_code(c.b, c.draws, 3);
    const std::uint32_t a = special_code(c.a, c.draws);
    c.set(c.any_index(), a, b);
  }
  if (specials == 0 || c.draws.coin()) c.out.c = special_c(c.draws);
}

}  // namespace fp8lab::detail
