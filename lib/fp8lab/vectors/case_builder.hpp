#pragma once
// Building blocks of generated cases: draws in order, and operand pairs whose
// product has a wanted exponent. Private to the generator.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/vectors/cases.hpp"

namespace fp8lab::detail {

/// Consecutive draws of one case; each case owns 2^20 counters of the stream.
class Draws {
 public:
  Draws(RandomStream stream, std::uint64_t index) : stream_(stream), next_(index << 20) {}

  /// Draw next_ of the stream, of which a block has four.
  std::uint32_t bits() {
    if (next_ % 4 == 0) block_ = stream_.block(next_ / 4);
    return block_[next_++ % 4];
  }
  /// Uniform on [low, high].
  int between(int low, int high) {
    const auto span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    return low + static_cast<int>((std::uint64_t{bits()} * span) >> 32);
  }
  bool coin() { return (bits() & 1) != 0; }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  RandomStream stream_;
  std::uint64_t next_;
  std::array<std::uint32_t, 4> block_{};
};

/// Exponent of the largest finite value.
constexpr int max_exponent(const Format& f) {
  return static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
}

/// The code of (-1)^negative * (1 + mantissa / 2^M) * 2^exponent, the exponent
/// clamped to the format's normals and the code to its finite ones.
constexpr std::uint32_t normal_code(const Format& f, bool negative, int exponent,
                                    std::uint32_t mantissa) {
  const int clamped = std::clamp(exponent, f.min_exponent(), max_exponent(f));
  const auto field = static_cast<std::uint32_t>(clamped + f.bias);
  const std::uint32_t low = mantissa & ((std::uint32_t{1} << f.mantissa_bits) - 1);
  const std::uint32_t magnitude = std::min((field << f.mantissa_bits) | low, f.max_finite_code());
  return magnitude | (negative ? f.sign_mask() : 0);
}

/// A code that is finite but for a zero with a sign, which FNUZ formats have as NaN: +0 there.
constexpr std::uint32_t with_zero(const Format& f, std::uint32_t code) {
  return f.has_nan_for_negative_zero() && code == f.sign_mask() ? 0 : code;
}

/// A binary32 with that exponent (subnormal below -126, clamped above 127).
inline std::uint32_t float_bits(bool negative, int exponent, std::uint32_t mantissa) {
  const std::uint32_t sign = negative ? 0x80000000u : 0;
  const std::uint32_t significand = 0x800000u | (mantissa & 0x7fffffu);
  const int clamped = std::min(exponent, 127);
  if (clamped >= -126)
    return sign | (static_cast<std::uint32_t>(clamped + 127) << 23) | (significand & 0x7fffffu);
  const int shift = std::min(-126 - clamped, 23);
  return sign | (significand >> shift);
}

/// A finite code whose exponent is at most `spread` in magnitude.
inline std::uint32_t finite_code(const Format& f, Draws& draws, int spread) {
  const int low = std::max(f.min_exponent() - f.mantissa_bits, -spread);
  const int exponent = draws.between(low, std::min(max_exponent(f), spread));
  const bool negative = draws.coin();
  if (exponent >= f.min_exponent()) return normal_code(f, negative, exponent, draws.bits());
  const std::uint32_t top = std::uint32_t{1} << (f.mantissa_bits - 1);
  return with_zero(f, (draws.bits() & (top - 1)) | (negative ? f.sign_mask() : 0));
}

/// One case under construction: the formats, what is known of the model, the draws.
struct Builder {
  const Format& a;
  const Format& b;
  const AccumulatorModel& model;
  int terms;
  Draws draws;
  VectorCase out;

  Builder(const InstructionModel& instruction, int term_count, Draws source)
      : a(format(instruction.a_format)),
        b(format(instruction.b_format)),
        model(instruction.accumulator),
        terms(term_count),
        draws(source) {
    out.a.assign(static_cast<std::size_t>(term_count), 0);
    out.b.assign(static_cast<std::size_t>(term_count), 0);
  }

  [[nodiscard]] int lowest_product() const { return a.min_exponent() + b.min_exponent(); }
  /// The place of the last bit of the smallest product.
  [[nodiscard]] int lowest_bit() const {
    return lowest_product() - a.mantissa_bits - b.mantissa_bits;
  }
  [[nodiscard]] int highest_product() const { return max_exponent(a) + max_exponent(b); }
  [[nodiscard]] int any_index() { return draws.between(0, terms - 1); }

  void set(int i, std::uint32_t a_code, std::uint32_t b_code) {
    out.a[static_cast<std::size_t>(i)] = a_code;
    out.b[static_cast<std::size_t>(i)] = b_code;
  }

  /// Makes term i a product whose stored exponents add up to `wanted`, or as near as they can.
  void set_product(int i, bool negative, int wanted, std::uint32_t a_mantissa,
                   std::uint32_t b_mantissa) {
    const int exponent = std::clamp(wanted, lowest_product(), highest_product());
    const int low = std::max(a.min_exponent(), exponent - max_exponent(b));
    const int high = std::min(max_exponent(a), exponent - b.min_exponent());
    const int at = draws.between(low, high);
    const bool flip = draws.coin();
    set(i, normal_code(a, negative != flip, at, a_mantissa),
        normal_code(b, flip, exponent - at, b_mantissa));
  }
  /// Makes term i +-2^exponent, of subnormals where normal numbers do not reach so low.
  void set_power(int i, bool negative, int exponent) {
    if (exponent >= lowest_product()) return set_product(i, negative, exponent, 0, 0);
    const int b_exponent = exponent - (a.min_exponent() - a.mantissa_bits);
    const std::uint32_t b_code =
        b_exponent >= b.min_exponent()
            ? normal_code(b, false, b_exponent, 0)
            : std::uint32_t{1} << std::max(b_exponent - (b.min_exponent() - b.mantissa_bits), 0);
    set(i, 1u | (negative ? a.sign_mask() : 0), b_code);
  }
  void set_random_product(int i, bool negative, int exponent) {
    const std::uint32_t b_mantissa = draws.bits();
    set_product(i, negative, exponent, draws.bits(), b_mantissa);
  }
  void set_finite(int i, int spread) {
    const std::uint32_t b_code = finite_code(b, draws, spread);
    set(i, finite_code(a, draws, spread), b_code);
  }
  /// Lowest product exponent that is used; formats with eight exponent bits reach
  /// far below binary32, where every result would be zero.
  [[nodiscard]] int floor_exponent() const { return std::max(lowest_product(), -60); }
  /// An exponent that leaves `below` more binades under it where the formats allow.
  [[nodiscard]] int top_exponent(int below) {
    const int low = std::min(floor_exponent() + below, highest_product());
    return draws.between(low, std::min(highest_product(), low + 12));
  }
};

/// Few special operands among zeros or ordinary values, so that each rule shows alone.
void build_special(Builder& c);

/// Scales near 1, so that blocks stay within reach of each other; a special case may have NaN, the
/// largest or the smallest one.
std::vector<std::uint8_t> scale_codes(const ScaleBlocks& scales, int terms, bool special,
                                      Draws& draws);

}  // namespace fp8lab::detail
