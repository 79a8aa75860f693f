#include "fp8lab/processor/probe_cases.hpp"

#include <algorithm>
#include <array>

namespace fp8lab {
namespace {

/// Uniform words of one case.
class Words {
 public:
  Words(const RandomStream& stream, std::uint64_t index, std::size_t terms)
      : stream_(stream), next_(index * (4 + 5 * terms)) {}
  std::uint32_t bits() {
    if (used_ == block_.size()) {
      block_ = stream_.block(next_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  int below(int bound) {
    return static_cast<int>(std::uint64_t{bits()} * static_cast<std::uint64_t>(bound) >> 32);
  }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool once_in(int times) { return below(times) == 0; }

 private:
  const RandomStream& stream_;
  std::uint64_t next_;
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
};

struct Pair {
  std::uint16_t a = 0;
  std::uint16_t b = 0;
};

/// Draws of one case in a format.
class Drawing {
 public:
  Drawing(const Format& format, Words& words) : f_(format), words_(words) {}

  /// (-1)^negative x 2^exponent x significand, whose fraction bits are the lowest ones of
  /// `fraction`; the nearest end of the format where it does not reach.
  [[nodiscard]] std::uint16_t code(bool negative, int exponent, std::uint32_t fraction) const {
    return static_cast<std::uint16_t>(packed(f_, negative, exponent, fraction));
  }
  [[nodiscard]] static std::uint32_t packed(const Format& f, bool negative, int exponent,
                                            std::uint32_t fraction) {
    const std::uint32_t hidden = 1U << f.mantissa_bits;
    std::uint32_t magnitude = fraction & (hidden - 1);
    const int low = f.min_exponent();
    if (exponent < low)
      magnitude = (magnitude | hidden) >> std::min(low - exponent, 31);
    else
      magnitude |= static_cast<std::uint32_t>(exponent + f.bias) << f.mantissa_bits;
    return std::min(magnitude, f.max_finite_code()) | (negative ? f.sign_mask() : 0);
  }

  /// Zero, quarters, or anything.
  std::uint32_t fraction(const Format& f) {
    switch (words_.below(4)) {
      case 0:
        return 0;
      case 1:
        return static_cast<std::uint32_t>(words_.below(4)) << (f.mantissa_bits - 2);
      default:
        return words_.bits();
    }
  }

  /// Operands whose product is about 2^exponent.
  Pair product(int exponent, bool negative, bool power = false) {
    const int low = f_.min_exponent();
    const int high = static_cast<int>(f_.max_finite_code() >> f_.mantissa_bits) - f_.bias;
    const int from = std::max(low, exponent - high);
    const int to = std::max(from, std::min(high, exponent - low));
    const int of_a = words_.between(from, to);
    const bool flip = words_.once_in(2);
    const std::uint32_t fa = power ? 0 : fraction(f_);
    const std::uint32_t fb = power ? 0 : fraction(f_);
    return {code(flip, of_a, fa), code(flip != negative, exponent - of_a, fb)};
  }

  std::uint16_t finite() {
    const std::uint32_t word = words_.bits();
    const std::uint32_t magnitude = (word & f_.magnitude_mask()) % (f_.max_finite_code() + 1);
    return static_cast<std::uint16_t>(magnitude | (word >> 31 != 0 ? f_.sign_mask() : 0));
  }

  std::uint32_t special(const Format& f) {
    const std::uint32_t normal = 1U << f.mantissa_bits;
    const std::array<std::uint32_t, 10> ends{0,
                                             0,
                                             1,
                                             normal - 1,
                                             normal,
                                             normal + 1,
                                             f.max_finite_code(),
                                             f.infinity_code(),
                                             f.infinity_code(),
                                             f.infinity_code() + 1 + words_.bits() % (normal - 1)};
    const std::uint32_t magnitude = ends[static_cast<std::size_t>(words_.below(10))];
    return magnitude | (sign() ? f.sign_mask() : 0);
  }

  bool sign() { return words_.once_in(2); }
  Words& words() { return words_; }

 private:
  const Format& f_;
  Words& words_;
};

const Format& binary32() { return format(FormatId::f32); }

/// A c of this exponent.
std::uint32_t number(bool negative, int exponent, std::uint32_t fraction) {
  return Drawing::packed(binary32(), negative, std::clamp(exponent, -150, 127), fraction);
}

using Operands = std::span<std::uint16_t>;

void put(Operands a, Operands b, std::size_t at, const Pair& pair) {
  a[at] = pair.a;
  b[at] = pair.b;
}

std::uint32_t normal_case(Drawing& draw, Operands a, Operands b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int exponent = draw.words().between(-3, 3);
    put(a, b, i, draw.product(exponent, draw.sign()));
  }
  const int exponent = draw.words().between(-6, 8);
  const bool negative = draw.sign();
  return number(negative, exponent, draw.words().bits());
}

std::uint32_t wide_case(Drawing& draw, Operands a, Operands b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = draw.finite();
    b[i] = draw.finite();
  }
  const std::uint32_t word = draw.words().bits();
  return (word & 0x7f800000) == 0x7f800000 ? word & 0xbfffffff : word;
}

std::uint32_t special_case(Drawing& draw, const Format& f, Operands a, Operands b) {
  std::uint32_t c = normal_case(draw, a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (draw.words().once_in(3)) a[i] = static_cast<std::uint16_t>(draw.special(f));
    if (draw.words().once_in(3)) b[i] = static_cast<std::uint16_t>(draw.special(f));
  }
  if (draw.words().once_in(2)) c = draw.special(binary32());
  return c;
}

/// Exponents at which sums are just above, just below, or in the last places of 2^-126.
std::uint32_t small_case(Drawing& draw, Operands a, Operands b) {
  constexpr std::array kPlaces{-126, -126, -125, -127, -149, -150, -151, -151, -152, -140};
  const auto place = [&] { return kPlaces[static_cast<std::size_t>(draw.words().below(10))]; };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (draw.words().once_in(4)) continue;  // zeros
    const int exponent = place();
    const bool negative = draw.sign();
    put(a, b, i, draw.product(exponent, negative, draw.words().once_in(3)));
  }
  const bool negative = draw.sign();
  const int form = draw.words().below(4);
  if (form == 0) return negative ? 0x80000000U : 0U;
  if (form == 1) return number(negative, -126, static_cast<std::uint32_t>(draw.words().below(3)));
  const int exponent = draw.words().between(-130, -124);
  return number(negative, exponent, draw.fraction(binary32()));
}

std::uint32_t tie_case(Drawing& draw, Operands a, Operands b) {
  const int exponent = draw.words().between(-2, 8);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool half = draw.words().once_in(2);
    const int below = half ? draw.words().between(23, 25) : draw.words().between(25, 46);
    const bool negative = draw.sign();
    const bool power = draw.words().once_in(2);
    put(a, b, i, draw.product(exponent - below, negative, half || power));
  }
  const bool negative = draw.sign();
  const auto last = static_cast<std::uint32_t>(draw.words().below(4));
  const std::uint32_t fraction = draw.sign() ? last : ~last;
  return number(negative, exponent, draw.words().once_in(3) ? draw.words().bits() : fraction);
}

std::uint32_t cancelling_case(Drawing& draw, const Format& f, Operands a, Operands b) {
  std::uint32_t c = normal_case(draw, a, b);
  const int exponent = draw.words().between(-8, 8);
  for (std::size_t i = 1; i < a.size(); i += 2) {
    put(a, b, i - 1, draw.product(exponent, draw.sign()));
    a[i] = static_cast<std::uint16_t>(a[i - 1] ^ f.sign_mask());
    b[i] = b[i - 1];
    if (draw.words().once_in(3)) b[i] = static_cast<std::uint16_t>(b[i] ^ 1U);
  }
  if (draw.words().once_in(2)) {
    const std::size_t at = draw.words().once_in(2) ? 0 : 1;
    const bool negative = draw.sign();
    put(a, b, at, draw.product(exponent, negative, true));
    const bool exact = draw.words().once_in(2);
    c = number(!negative, exponent, exact ? 0 : draw.words().bits() & 3);
  }
  return c;
}

}  // namespace

ProbeCases::ProbeCases(const Format& format, std::uint64_t seed)
    : format_(format), stream_(seed, "probe-cpu") {}

std::uint32_t ProbeCases::make(std::uint64_t index, std::span<std::uint16_t> a,
                               std::span<std::uint16_t> b) const {
  std::fill(a.begin(), a.end(), std::uint16_t{0});
  std::fill(b.begin(), b.end(), std::uint16_t{0});
  Words words(stream_, index, a.size());
  Drawing draw(format_, words);
  switch (kind_of(index)) {
    case ProbeKind::normal:
      return normal_case(draw, a, b);
    case ProbeKind::wide:
      return wide_case(draw, a, b);
    case ProbeKind::special:
      return special_case(draw, format_, a, b);
    case ProbeKind::small:
      return small_case(draw, a, b);
    case ProbeKind::tie:
      return tie_case(draw, a, b);
    default:
      return cancelling_case(draw, format_, a, b);
  }
}

}  // namespace fp8lab
