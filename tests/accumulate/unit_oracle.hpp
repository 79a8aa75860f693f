#pragma once
// All units once more, from the specification: numbers are integers of one tiny unit, so that sums
// are exact, and every result has its special values, its infinities and its sign of zero. Shares
// no code with the library beyond decoding.

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/scales.hpp"

namespace unit_oracle {

using fp8lab::AccumulationKind;
using fp8lab::AccumulatorModel;
using fp8lab::Format;
using fp8lab::FormatId;
using fp8lab::RoundingMode;

/// Multiples of 2^kUnit, below every bit of any product.
using Fixed = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<
    1536, 1536, boost::multiprecision::signed_magnitude, boost::multiprecision::unchecked, void>>;
inline constexpr int kUnit = -700;
inline constexpr int kNoExponent = -100000;

struct Value {
  enum class Kind { finite, infinite, nan };
  Kind kind = Kind::finite;
  bool negative = false;
  Fixed units = 0;                 ///< signed
  int exponent = kNoExponent;      ///< in an alignment; that of zeros is none
  bool subnormal_operand = false;  ///< of an operand: below its format's normal numbers

  [[nodiscard]] bool is_zero() const { return kind == Kind::finite && units == 0; }
};

inline int binade(const Fixed& x) {
  return static_cast<int>(boost::multiprecision::msb(abs(x))) + kUnit;
}

/// x of at most 24 significant bits.
inline Value value_of(double x) {
  Value v{.negative = std::signbit(x)};
  if (std::isnan(x)) v.kind = Value::Kind::nan;
  if (std::isinf(x)) v.kind = Value::Kind::infinite;
  if (!std::isfinite(x) || x == 0.0) return v;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  v.units = static_cast<std::int64_t>(std::ldexp(fraction, 24));
  v.units *= Fixed(1) << (exponent - 24 - kUnit);
  v.exponent = binade(v.units);
  return v;
}

/// An operand or c: no exponent is below the format's smallest normal one.
inline Value operand(const Format& f, std::uint32_t code) {
  const double x = decode(f, code);
  Value v = value_of(x);
  v.subnormal_operand = !v.is_zero() && std::fabs(x) < f.min_normal();
  if (v.units != 0) v.exponent = std::max(v.exponent, f.min_exponent());
  return v;
}
inline Value start(float c) {
  return operand(fp8lab::format(FormatId::f32), std::bit_cast<std::uint32_t>(c));
}

inline Value special(bool nan, bool negative = false) {
  return {.kind = nan ? Value::Kind::nan : Value::Kind::infinite, .negative = negative};
}

inline Value product(const Value& x, const Value& y) {
  using enum Value::Kind;
  const bool negative = x.negative != y.negative;
  if (x.kind == nan || y.kind == nan) return special(true);
  if (x.kind == infinite || y.kind == infinite)
    return special(x.is_zero() || y.is_zero(), negative);
  Value p{.negative = negative};
  if (x.is_zero() || y.is_zero()) return p;
  // Both have 24 bits at most: their zeros at the end make room for the product.
  const auto low = [](const Fixed& u) {
    return static_cast<int>(boost::multiprecision::lsb(abs(u)));
  };
  const int of_x = low(x.units);
  const int of_y = low(y.units);
  const Fixed bits = (abs(x.units) >> of_x) * (abs(y.units) >> of_y);
  p.units = bits << (of_x + of_y + kUnit);
  if (negative) p.units = -p.units;
  p.exponent = x.exponent + y.exponent;
  return p;
}

/// What special values make of a sum, if there are any.
inline std::optional<Value> special_sum(std::span<const Value> terms) {
  bool nan = false;
  bool infinite[2] = {};
  for (const Value& t : terms) {
    nan |= t.kind == Value::Kind::nan;
    if (t.kind == Value::Kind::infinite) infinite[t.negative ? 1 : 0] = true;
  }
  if (nan || (infinite[0] && infinite[1])) return special(true);
  if (infinite[0] || infinite[1]) return special(false, infinite[1]);
  return std::nullopt;
}

/// Bits of results: fraction bits, the least last place, and the exponent of the largest numbers.
struct Grid {
  int fraction_bits;
  int least = kUnit;
  int largest = 100000;
};
inline constexpr Grid kSingle{23, -149, 127};
inline constexpr Grid kHalf{10, -24, 15};

inline Value rounded(const Fixed& x, const Grid& grid, RoundingMode mode) {
  if (x == 0) return {};
  Value v{.negative = x < 0};
  const Fixed magnitude = abs(x);
  const int place = std::max({binade(x) - grid.fraction_bits, grid.least, kUnit}) - kUnit;
  Fixed kept = magnitude >> place;
  const Fixed rest = magnitude - (kept << place);
  const Fixed twice = rest << 1;
  const Fixed one = Fixed(1) << place;
  bool up = false;
  if (mode == RoundingMode::nearest_even) up = twice > one || (twice == one && (kept & 1) != 0);
  if (mode == RoundingMode::nearest_away) up = twice >= one;
  if (mode == RoundingMode::nearest_toward_zero) up = twice > one;
  if (mode == RoundingMode::upward) up = rest != 0 && !v.negative;
  if (mode == RoundingMode::downward) up = rest != 0 && v.negative;
  if (up) kept += 1;
  v.units = kept << place;
  if (v.units == 0) return v;
  if (binade(v.units) > grid.largest) return special(false, v.negative);
  v.exponent = std::max(binade(v.units), -126);
  if (v.negative) v.units = -v.units;
  return v;
}

/// Toward zero, or down, to a multiple of 2^unit.
inline Fixed cut(const Fixed& x, int unit, bool down = false) {
  const int place = unit - kUnit;
  if (place <= 0) return x;
  Fixed kept = (abs(x) >> place) << place;
  if (x >= 0) return kept;
  if (down && kept != abs(x)) kept += Fixed(1) << place;
  return -kept;
}

inline std::uint32_t bits_of(const Value& v) {
  if (v.kind == Value::Kind::nan) return 0x7fffffff;
  float x = std::numeric_limits<float>::infinity();
  if (v.kind == Value::Kind::finite) {
    x = 0.0F;
    if (v.units != 0) {
      const Fixed magnitude = abs(v.units);
      const int low = static_cast<int>(boost::multiprecision::lsb(magnitude));
      const auto significand = static_cast<std::uint64_t>(magnitude >> low);
      x = static_cast<float>(std::ldexp(static_cast<double>(significand), low + kUnit));
    }
  }
  return std::bit_cast<std::uint32_t>(v.negative ? -x : x);
}
inline float float_of(const Value& v) { return std::bit_cast<float>(bits_of(v)); }

/// An IEEE 754 addition.
inline Value added(const Value& x, const Value& y, const Grid& grid) {
  const Value both[] = {x, y};
  if (const auto s = special_sum(both)) return *s;
  if (x.is_zero() && y.is_zero()) return {.negative = x.negative && y.negative};
  return rounded(x.units + y.units, grid, RoundingMode::nearest_even);
}

inline bool all_negative_zeros(std::span<const Value> terms) {
  return std::ranges::all_of(terms, [](const Value& t) { return t.is_zero() && t.negative; });
}

inline Grid grid_of(const AccumulatorModel& m) {
  if (m.output_format == FormatId::f16) return kHalf;
  return {m.output_fraction_bits, -126 - m.output_fraction_bits, 127};
}
inline Value entered(const AccumulatorModel& m, const Value& c) {
  if (m.output_format != FormatId::f16 || c.kind != Value::Kind::finite || c.is_zero()) return c;
  return rounded(c.units, kHalf, RoundingMode::nearest_even);
}

inline Value with_zero_sign(const AccumulatorModel& m, Value d) {
  if (d.is_zero() && m.zero_sign == fp8lab::ZeroSign::positive) d.negative = false;
  return d;
}

/// The fused truncated step of products and c.
inline Value fused_step(const AccumulatorModel& m, std::span<const Value> products,
                        const Value& c) {
  std::vector<Value> terms(products.begin(), products.end());
  for (Value& p : terms)
    if (!p.is_zero() && p.kind == Value::Kind::finite &&
        m.product_exponent == fp8lab::ProductExponent::normalized)
      p.exponent = binade(p.units);
  terms.push_back(c);
  if (const auto s = special_sum(terms)) return *s;
  if (!c.is_zero() && m.output_format == FormatId::f16 &&
      m.half_c_exponent == fp8lab::HalfCExponent::stored)
    terms.back().exponent = std::max(c.exponent, -14);
  int largest = kNoExponent;
  for (const Value& t : terms)
    if (!t.is_zero()) largest = std::max(largest, t.exponent);
  if (largest == kNoExponent) return {};
  largest = std::max(largest, m.min_alignment_exponent);
  Fixed sum = 0;
  for (const Value& t : terms) sum += cut(t.units, largest - m.alignment_fraction_bits);
  return with_zero_sign(m, rounded(sum, grid_of(m), m.rounding));
}

/// Operands as FP16 has them: normalized from 2^-14 on.
inline Value as_half(Value x) {
  if (x.kind == Value::Kind::finite && x.units != 0) x.exponent = std::max(binade(x.units), -14);
  return x;
}

inline Value halves_step(const AccumulatorModel& m, std::span<const Value> a,
                         std::span<const Value> b, const Value& c) {
  Value sums[2];
  for (const std::size_t second : {0U, 1U}) {
    std::vector<Value> products;
    for (std::size_t k = 0; k < a.size(); ++k)
      if ((k / 2) % 2 == second) products.push_back(product(as_half(a[k]), as_half(b[k])));
    const bool chained = second == 1 && m.halves_order == fp8lab::HalvesOrder::chained;
    sums[second] = fused_step(m, products, chained ? sums[0] : Value{});
  }
  const Grid grid = m.output_format == FormatId::f16 ? kHalf : kSingle;
  const bool separate = m.halves_order == fp8lab::HalvesOrder::separate;
  return added(c, separate ? added(sums[0], sums[1], grid) : sums[1], grid);
}

/// CDNA2's binary32 numbers, of which subnormal ones are zeros of their sign. Binary64 has room for
/// one rounding.
inline float flushed(double exact) {
  const auto x = static_cast<float>(exact);
  return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}

inline Value pairs_step(const AccumulatorModel& m, std::span<const Value> a,
                        std::span<const Value> b, const Value& c) {
  float p[4] = {};
  const auto read = [](const Value& x) {
    return x.subnormal_operand || x.is_zero() ? 0.0 : static_cast<double>(float_of(x));
  };
  for (std::size_t i = 0; i < a.size(); ++i) p[i] = flushed(read(a[i]) * read(b[i]));
  const auto sum = [](float x, float y) {
    return flushed(static_cast<double>(x) + static_cast<double>(y));
  };
  const float of_c = float_of(c);
  const float group = m.terms == 2 ? sum(p[0], p[1]) : sum(sum(p[0], p[1]), sum(p[2], p[3]));
  return start(sum(of_c, group));
}

/// Products aligned among themselves.
struct Stage {
  Fixed sum = 0;
  int exponent = kNoExponent;
};
inline Stage first_stage(const AccumulatorModel& m, std::span<const Value> products,
                         std::size_t first, std::size_t stride) {
  Stage s;
  for (std::size_t i = first; i < products.size(); i += stride)
    if (!products[i].is_zero()) s.exponent = std::max(s.exponent, products[i].exponent);
  if (s.exponent == kNoExponent) return s;
  for (std::size_t i = first; i < products.size(); i += stride)
    s.sum += cut(products[i].units, s.exponent - m.alignment_fraction_bits);
  return s;
}

inline Value two_stage_step(const AccumulatorModel& m, std::vector<Value> products,
                            const Value& c) {
  const bool apart = m.kind == AccumulationKind::even_odd_dot_product;
  for (Value& p : products)
    if (!apart && p.kind == Value::Kind::finite && !p.is_zero() && binade(p.units) >= 128)
      p = special(false, p.negative);
  std::vector<Value> terms = products;
  terms.push_back(c);
  if (const auto s = special_sum(terms)) return *s;
  if (all_negative_zeros(terms)) return {.negative = true};
  Stage all;
  if (apart) {
    const Stage even = first_stage(m, products, 0, 2);
    const Stage odd = first_stage(m, products, 1, 2);
    all.exponent = std::max(even.exponent, odd.exponent);
    const int unit = all.exponent - m.alignment_fraction_bits;
    if (all.exponent != kNoExponent) all.sum = cut(even.sum, unit, true) + cut(odd.sum, unit, true);
  } else {
    all = first_stage(m, products, 0, 1);
  }
  const int of_c = c.is_zero() ? -126 : c.exponent;
  const int largest = std::max(all.exponent, of_c);
  Fixed sum = cut(all.sum, largest - m.second_stage_fraction_bits, true);
  if (!apart || of_c >= largest - m.alignment_fraction_bits - 1)
    sum += cut(c.units, largest - m.alignment_fraction_bits, true);
  if (m.second_stage_fraction_bits > 31 && sum != 0)
    sum = cut(sum, std::max(binade(sum), -126) - 31, true);
  return rounded(sum, kSingle, RoundingMode::nearest_even);
}

/// A scale with its stored exponent; the sign of UE4M3 has no meaning.
inline Value scale_of(const fp8lab::BlockScales& scales, std::span<const std::uint32_t> side,
                      std::size_t k) {
  if (scales.empty()) return value_of(1.0);
  Value v =
      operand(fp8lab::format(scales.format), side[k / static_cast<std::size_t>(scales.block)]);
  v.negative = false;
  v.units = abs(v.units);
  return v;
}

/// A fused step with products scaled before their alignment.
inline Value scaled_step(const AccumulatorModel& m, std::vector<Value> products,
                         const Value& a_scale, const Value& b_scale, const Value& c) {
  if (a_scale.kind == Value::Kind::nan || b_scale.kind == Value::Kind::nan) return special(true);
  const int change = a_scale.exponent + b_scale.exponent;
  for (Value& p : products) {
    if (p.kind != Value::Kind::finite || p.is_zero()) continue;
    p.exponent += change;
    if (change >= 0)
      p.units *= Fixed(1) << change;
    else
      p.units = cut(p.units, kUnit - change) / (Fixed(1) << -change);
  }
  AccumulatorModel plain = m;
  plain.product_exponent = fp8lab::ProductExponent::stored;
  return fused_step(plain, products, c);
}

/// A fused step of groups of 16 products, each with the exponent of its scales.
inline Value groups_step(const AccumulatorModel& m, std::span<const Value> products,
                         const fp8lab::BlockScales& scales, std::size_t first, const Value& c) {
  constexpr std::size_t kGroup = 16;
  std::vector<Value> groups;
  for (std::size_t at = 0; at < products.size(); at += kGroup) {
    const Value a = scale_of(scales, scales.a, first + at);
    const Value b = scale_of(scales, scales.b, first + at);
    if (a.kind == Value::Kind::nan || b.kind == Value::Kind::nan) return special(true);
    Value group;
    bool any = false;
    for (std::size_t i = at; i < std::min(at + kGroup, products.size()); ++i) {
      group.units += products[i].units;
      any |= !products[i].is_zero();
    }
    if (!any || a.is_zero() || b.is_zero()) continue;
    // Even one whose products cancel has an exponent.
    group.exponent = a.exponent + b.exponent;
    const Value scale = product(a, b);
    group.negative = group.units < 0;
    const int low = static_cast<int>(boost::multiprecision::lsb(scale.units));
    const int place = low + kUnit;
    group.units *= scale.units >> low;
    if (place >= 0)
      group.units *= Fixed(1) << place;
    else
      group.units /= Fixed(1) << -place;
    groups.push_back(group);
  }
  const std::vector<Value> finite_c{c};
  if (const auto s = special_sum(finite_c)) return *s;
  int largest = c.is_zero() ? kNoExponent : c.exponent;
  for (const Value& g : groups) largest = std::max(largest, g.exponent);
  if (largest == kNoExponent) return {};
  largest = std::max(largest, m.min_alignment_exponent);
  Fixed sum = cut(c.units, largest - m.alignment_fraction_bits);
  for (const Value& g : groups) sum += cut(g.units, largest - m.alignment_fraction_bits);
  return with_zero_sign(m, rounded(sum, grid_of(m), m.rounding));
}

/// The binary32 numbers of processors, of which those below 2^-126 may be zeros of their sign.
inline Value read32(const Value& x, fp8lab::Subnormals subnormals) {
  const bool tiny = x.kind == Value::Kind::finite && x.units != 0 && binade(x.units) < -126;
  return tiny && subnormals == fp8lab::Subnormals::flushed ? Value{.negative = x.negative} : x;
}

/// A sum that is not zero as a result: one is tiny if it is after rounding to 24 bits.
inline Value result32(const Fixed& sum, fp8lab::Subnormals subnormals) {
  if (subnormals == fp8lab::Subnormals::kept)
    return rounded(sum, kSingle, RoundingMode::nearest_even);
  const Value v = rounded(sum, {23}, RoundingMode::nearest_even);
  if (binade(v.units) < -126) return {.negative = sum < 0};
  return binade(v.units) > 127 ? special(false, sum < 0) : v;
}

inline Value multiply_add32(const Value& a, const Value& b, const Value& c,
                            fp8lab::Subnormals subnormals) {
  const Value terms[] = {product(read32(a, subnormals), read32(b, subnormals)),
                         read32(c, subnormals)};
  if (const auto s = special_sum(terms)) return *s;
  if (terms[0].is_zero() && terms[1].is_zero()) return {.negative = all_negative_zeros(terms)};
  const Fixed sum = terms[0].units + terms[1].units;
  return sum == 0 ? Value{} : result32(sum, subnormals);
}

/// The missing element of a pair is +0.
inline Value element(std::span<const Value> x, std::size_t i) {
  return i < x.size() ? x[i] : Value{};
}

inline Value multiply_add_pair(const AccumulatorModel& m, std::span<const Value> a,
                               std::span<const Value> b, Value c) {
  for (const std::size_t i : {1U, 0U})
    c = multiply_add32(element(a, i), element(b, i), c, m.subnormals);
  return c;
}

inline Value chains_step(const AccumulatorModel& m, std::span<const Value> a,
                         std::span<const Value> b, const Value& c) {
  Value whole;
  for (std::size_t chain = 0; chain < static_cast<std::size_t>(m.chains); ++chain) {
    Value sum;
    for (std::size_t i = chain; i < a.size(); i += static_cast<std::size_t>(m.chains))
      sum = multiply_add32(a[i], b[i], sum, m.subnormals);
    whole = chain == 0 ? sum : multiply_add32(sum, value_of(1.0), whole, m.subnormals);
  }
  return multiply_add32(whole, value_of(1.0), c, m.subnormals);
}

/// Products' sum times 2^change, rounded, and c.
inline Value rounded_sum_step(const AccumulatorModel& m, std::span<const Value> products,
                              int change, const Value& c) {
  Value sum;
  if (const auto s = special_sum(products)) {
    sum = *s;
  } else {
    Fixed exact = 0;
    for (const Value& p : products) exact += p.units;
    if (change >= 0)
      exact *= Fixed(1) << change;
    else
      exact /= Fixed(1) << -change;
    const bool minus = m.zero_sign == fp8lab::ZeroSign::kept && !products.empty();
    if (exact != 0)
      sum = result32(exact, m.subnormals);
    else
      sum.negative = minus && all_negative_zeros(products);
  }
  return multiply_add32(sum, value_of(1.0), c, m.subnormals);
}

/// A result of `rounded_pairs`, of a number that is not zero.
inline Value pair_result(const AccumulatorModel& m, const Fixed& x) {
  if (m.pair_rounding == fp8lab::PairRounding::nearest_even)
    return result32(x, fp8lab::Subnormals::flushed);
  const bool negative = x < 0;
  const Fixed magnitude = abs(x);
  const int place = binade(x) - 23 - kUnit;
  if (binade(x) < -126) return {.negative = negative};
  if (binade(x) > 127) return special(false, negative);
  Fixed kept = (magnitude >> place) << place;
  if (kept != magnitude && ((magnitude >> place) & 1) == 0) kept += Fixed(1) << place;
  Value v{.negative = negative};
  v.units = negative ? -kept : kept;
  return v;
}

inline Value rounded_pair_step(const AccumulatorModel& m, std::span<const Value> a,
                               std::span<const Value> b, const Value& c) {
  constexpr auto kFlushed = fp8lab::Subnormals::flushed;
  const auto added_pair = [&](const Value& x, const Value& y) -> Value {
    const Value terms[] = {read32(x, kFlushed), read32(y, kFlushed)};
    if (const auto s = special_sum(terms)) return *s;
    if (terms[0].is_zero() && terms[1].is_zero()) return {.negative = all_negative_zeros(terms)};
    const Fixed sum = terms[0].units + terms[1].units;
    return sum == 0 ? Value{} : pair_result(m, sum);
  };
  Value products[2];
  for (const std::size_t i : {0U, 1U}) {
    products[i] = product(read32(element(a, i), kFlushed), read32(element(b, i), kFlushed));
    if (products[i].kind == Value::Kind::finite && !products[i].is_zero())
      products[i] = pair_result(m, products[i].units);
  }
  return added_pair(c, added_pair(products[0], products[1]));
}

/// A code of a format of FP8, all of which are numbers.
inline Value number_of_code(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & f.magnitude_mask();
  if (magnitude <= f.max_finite_code()) return operand(f, code);
  const double significand =
      1.0 + std::ldexp(magnitude & ((1U << f.mantissa_bits) - 1), -f.mantissa_bits);
  const double x = std::ldexp(significand, (1 << f.exponent_bits) - 1 - f.bias);
  return value_of((code & f.sign_mask()) != 0 ? -x : x);
}

/// Models that look at all terms before they add any.
inline Value whole_sum(const AccumulatorModel& m, std::span<const Value> products, const Value& c) {
  std::vector<Value> terms(products.begin(), products.end());
  terms.push_back(c);
  if (const auto s = special_sum(terms)) return *s;
  constexpr auto kNearest = RoundingMode::nearest_even;
  if (m.kind == AccumulationKind::exact) {
    Fixed sum = 0;
    for (const Value& t : terms) sum += t.units;
    return rounded(sum, kSingle, kNearest);
  }
  if (m.kind == AccumulationKind::float32) {
    Value sum = c;
    for (const Value& p : products)
      if (!p.is_zero()) sum = added(sum, rounded(p.units, kSingle, kNearest), kSingle);
    if (sum.is_zero()) sum.negative = false;
    return sum;
  }
  Fixed sum = c.units;
  for (const Value& p : products) {
    const Fixed term = m.product_fraction_bits < 0
                           ? p.units
                           : rounded(p.units, {m.product_fraction_bits}, kNearest).units;
    sum = rounded(sum + term, {m.output_fraction_bits}, m.rounding).units;
  }
  return rounded(sum, kSingle, kNearest);
}

inline Value one_step(const AccumulatorModel& m, std::span<const Value> a, std::span<const Value> b,
                      const fp8lab::BlockScales& scales, std::size_t first, const Value& c) {
  std::vector<Value> products;
  for (std::size_t i = 0; i < a.size(); ++i) products.push_back(product(a[i], b[i]));
  std::vector<Value> terms = products;
  terms.push_back(c);
  switch (m.kind) {
    case AccumulationKind::fused_dot_product:
      return fused_step(m, products, c);
    case AccumulationKind::fp16_halves:
      return halves_step(m, a, b, c);
    case AccumulationKind::flushed_pairwise_sum:
      return pairs_step(m, a, b, c);
    case AccumulationKind::two_stage_dot_product:
    case AccumulationKind::even_odd_dot_product:
      return two_stage_step(m, products, c);
    case AccumulationKind::scaled_dot_product:
      return a.empty() ? scaled_step(m, {}, value_of(1.0), value_of(1.0), c)
                       : scaled_step(m, products, scale_of(scales, scales.a, first),
                                     scale_of(scales, scales.b, first), c);
    case AccumulationKind::scaled_group_dot_product:
      return groups_step(m, products, scales, first, c);
    case AccumulationKind::multiply_add_pairs:
      return multiply_add_pair(m, a, b, c);
    case AccumulationKind::multiply_add_chains:
      return chains_step(m, a, b, c);
    case AccumulationKind::rounded_sum:
      return rounded_sum_step(m, products, 0, c);
    case AccumulationKind::scaled_rounded_sum: {
      const Value of_a = a.empty() ? value_of(1.0) : scale_of(scales, scales.a, first);
      const Value of_b = a.empty() ? value_of(1.0) : scale_of(scales, scales.b, first);
      if (of_a.kind == Value::Kind::nan || of_b.kind == Value::Kind::nan) return special(true);
      return rounded_sum_step(m, products, of_a.exponent + of_b.exponent, c);
    }
    case AccumulationKind::rounded_pairs:
      return rounded_pair_step(m, a, b, c);
    default:
      break;
  }
  // Exact steps, and fused multiply-adds: steps of one term.
  if (const auto s = special_sum(terms)) return *s;
  if (all_negative_zeros(terms)) return {.negative = true};
  Fixed sum = 0;
  for (const Value& t : terms) sum += t.units;
  const bool half =
      m.kind == AccumulationKind::exact_dot_product && m.output_format == FormatId::f16;
  return rounded(sum, half ? kHalf : kSingle, RoundingMode::nearest_even);
}

/// c + a . b as bits.
inline std::uint32_t dot(const AccumulatorModel& m, const Format& a_format,
                         std::span<const std::uint32_t> a, const Format& b_format,
                         std::span<const std::uint32_t> b, const fp8lab::BlockScales& scales,
                         float c) {
  std::vector<Value> x;
  std::vector<Value> y;
  const bool numbers = m.kind == AccumulationKind::scaled_rounded_sum;
  const auto read = [&](const Format& f, std::uint32_t code) {
    return numbers ? number_of_code(f, code) : operand(f, code);
  };
  for (const std::uint32_t code : a) x.push_back(read(a_format, code));
  for (const std::uint32_t code : b) y.push_back(read(b_format, code));
  const bool whole = m.kind == AccumulationKind::exact || m.kind == AccumulationKind::float32 ||
                     m.kind == AccumulationKind::sequential;
  if (whole) {
    std::vector<Value> products;
    for (std::size_t i = 0; i < x.size(); ++i) products.push_back(product(x[i], y[i]));
    return bits_of(whole_sum(m, products, start(c)));
  }
  Value sum = start(c);
  const bool adds = m.kind == AccumulationKind::fused_multiply_add;
  if (m.kind == AccumulationKind::flushed_pairwise_sum && std::fabs(c) < 0x1p-126F) sum = {};
  if (m.kind == AccumulationKind::fused_dot_product || m.kind == AccumulationKind::fp16_halves ||
      m.kind == AccumulationKind::exact_dot_product)
    sum = entered(m, sum);
  const std::size_t terms = adds ? 1 : static_cast<std::size_t>(m.terms);
  if (adds && x.empty()) return bits_of(sum);
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(terms, x.size() - at);
    sum = one_step(m, std::span(x).subspan(at, count), std::span(y).subspan(at, count), scales, at,
                   sum);
    at += count;
  } while (at < x.size());
  return bits_of(sum);
}

}  // namespace unit_oracle
