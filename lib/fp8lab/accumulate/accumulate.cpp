#include "fp8lab/accumulate/accumulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/kulisch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

__extension__ using Wide = __int128;

constexpr int kNoExponent = std::numeric_limits<int>::min();

/// A finite product or accumulator: (-1)^negative * significand * 2^(exponent - fraction_bits).
struct Term {
  std::uint64_t significand = 0;
  int exponent = 0;
  int fraction_bits = 0;
  bool negative = false;
};

Term product(const Unpacked& a, const Unpacked& b) {
  return {std::uint64_t{a.significand} * b.significand, a.exponent + b.exponent,
          a.mantissa_bits + b.mantissa_bits, a.negative != b.negative};
}

Term as_term(const Unpacked& c) { return {c.significand, c.exponent, c.mantissa_bits, c.negative}; }

Unpacked unpack_float(float x) {
  return unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(x));
}

/// What specials among the operands decide before any arithmetic.
struct Specials {
  bool nan = false;
  bool positive_infinity = false;
  bool negative_infinity = false;

  void note_infinity(bool negative) { (negative ? negative_infinity : positive_infinity) = true; }
  [[nodiscard]] bool any() const { return nan || positive_infinity || negative_infinity; }
  [[nodiscard]] float result() const {
    if (nan || (positive_infinity && negative_infinity)) return std::bit_cast<float>(kCanonicalNan);
    const float infinity = std::numeric_limits<float>::infinity();
    return negative_infinity ? -infinity : infinity;
  }
};

void note_value(Specials& s, const Unpacked& c) {
  s.nan |= c.value_class == ValueClass::nan;
  if (c.value_class == ValueClass::infinity) s.note_infinity(c.negative);
}

void note_product(Specials& s, const Unpacked& a, const Unpacked& b) {
  if (a.is_finite() && b.is_finite()) return;
  const bool has_nan = a.value_class == ValueClass::nan || b.value_class == ValueClass::nan;
  const bool has_zero = a.value_class == ValueClass::zero || b.value_class == ValueClass::zero;
  if (has_nan || has_zero)
    s.nan = true;
  else
    s.note_infinity(a.negative != b.negative);
}

constexpr CastPolicy rounding_policy(RoundingMode mode) {
  return {.rounding = mode,
          .overflow = OverflowPolicy::non_saturating,
          .infinity = InfinityPolicy::non_saturating};
}

constexpr Format binary32_like(int fraction_bits) {
  return {FormatId::f32, "rounded sum", 8, fraction_bits, 127, true, SpecialValues::ieee, 32};
}

/// Rounds an exact value to binary32's exponent range with `fraction_bits`.
float round_to_float(const Exact& x, int fraction_bits, RoundingMode mode) {
  // A sum of exactly zero is +0 whatever the signs of its terms.
  if (x.significand == 0) return 0.0F;
  const CastResult r = round_and_pack(binary32_like(fraction_bits), rounding_policy(mode), x);
  return std::bit_cast<float>(r.code << (23 - fraction_bits));
}

float round_to_half(const Exact& x, RoundingMode mode) {
  if (x.significand == 0) return 0.0F;
  const Format& half = format(FormatId::f16);
  return static_cast<float>(decode(half, round_and_pack(half, rounding_policy(mode), x).code));
}

/// An integer times a power of two as a 64-bit significand with sticky bit.
Exact exact_of(Wide sum, int exponent) {
  __extension__ using UnsignedWide = unsigned __int128;
  Exact x;
  x.negative = sum < 0;
  auto magnitude = x.negative ? -static_cast<UnsignedWide>(sum) : static_cast<UnsignedWide>(sum);
  const auto high = static_cast<std::uint64_t>(magnitude >> 64);
  if (high != 0) {
    const int shift = 64 - std::countl_zero(high);
    x.sticky = (magnitude & ((UnsignedWide{1} << shift) - 1)) != 0;
    magnitude >>= shift;
    exponent += shift;
  }
  x.significand = static_cast<std::uint64_t>(magnitude);
  x.exponent = exponent;
  return x;
}

int leading_exponent(const Term& t) {
  return t.exponent - t.fraction_bits + 63 - std::countl_zero(t.significand);
}

int alignment_exponent(const AccumulatorModel& model, const Term& t) {
  if (t.significand == 0) return kNoExponent;
  return model.product_exponent == ProductExponent::normalized ? leading_exponent(t) : t.exponent;
}

/// `t` in units of 2^unit_exponent, truncated toward zero.
Wide truncated(const Term& t, int unit_exponent) {
  if (t.significand == 0) return 0;
  const int shift = t.exponent - t.fraction_bits - unit_exponent;
  Wide magnitude = 0;
  if (shift >= 0)
    magnitude = static_cast<Wide>(t.significand) << shift;
  else if (shift > -64)
    magnitude = static_cast<Wide>(t.significand >> -shift);
  return t.negative ? -magnitude : magnitude;
}

float rounded_to_half(float x) {
  const Format& half = format(FormatId::f16);
  return static_cast<float>(decode(half, encode(half, kNvidiaNosat, x)));
}

/// The exponent that the accumulator brings to the alignment.
int alignment_exponent_of_c(const AccumulatorModel& model, const Term& c) {
  if (c.significand == 0) return kNoExponent;
  const bool stored_half =
      model.output_format == FormatId::f16 && model.half_c_exponent == HalfCExponent::stored;
  return stored_half ? std::max(c.exponent, format(FormatId::f16).min_exponent()) : c.exponent;
}

/// One step: at most `model.terms` finite products and a finite c.
float fused_step(const AccumulatorModel& model, std::span<const Unpacked> a,
                 std::span<const Unpacked> b, float c) {
  const Term c_term = as_term(unpack_float(c));
  int largest = alignment_exponent_of_c(model, c_term);
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, alignment_exponent(model, product(a[i], b[i])));
  if (largest == kNoExponent) return 0.0F;
  largest = std::max(largest, model.min_alignment_exponent);

  const int unit_exponent = largest - model.alignment_fraction_bits;
  Wide sum = truncated(c_term, unit_exponent);
  for (std::size_t i = 0; i < a.size(); ++i) sum += truncated(product(a[i], b[i]), unit_exponent);

  const Exact exact = exact_of(sum, unit_exponent);
  return model.output_format == FormatId::f16
             ? round_to_half(exact, model.rounding)
             : round_to_float(exact, model.output_fraction_bits, model.rounding);
}

float fused(const AccumulatorModel& model, std::span<const Unpacked> a, std::span<const Unpacked> b,
            float c) {
  if (model.output_format == FormatId::f16) c = rounded_to_half(c);
  const auto terms = static_cast<std::size_t>(model.terms);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(terms, a.size() - begin);
    const auto a_step = a.subspan(begin, count);
    const auto b_step = b.subspan(begin, count);
    Specials specials;
    note_value(specials, unpack_float(c));
    for (std::size_t i = 0; i < count; ++i) note_product(specials, a_step[i], b_step[i]);
    c = specials.any() ? specials.result() : fused_step(model, a_step, b_step, c);
    begin += count;
  } while (begin < a.size());
  return c;
}

void add(KulischAccumulator& sum, const Term& t) {
  if (t.significand != 0) sum.add(t.negative, t.significand, t.exponent - t.fraction_bits);
}

Exact exact_of(const Term& t) {
  return {t.significand, t.exponent - t.fraction_bits, t.negative, false};
}

/// Rounds to `fraction_bits` with an exponent that has no bounds.
Term rounded(const Exact& x, int fraction_bits, RoundingMode mode) {
  if (x.significand == 0) return {};
  const int leading = 63 - std::countl_zero(x.significand) + x.exponent;
  const Format f = binary32_like(fraction_bits);
  // Round in the binade of 1, where no exponent is out of reach.
  const Exact unit{x.significand, x.exponent - leading, x.negative, x.sticky};
  const Unpacked u = unpack(f, round_and_pack(f, rounding_policy(mode), unit).code);
  return {u.significand, u.exponent + leading, fraction_bits, x.negative};
}

float sequential(const AccumulatorModel& model, std::span<const Unpacked> a,
                 std::span<const Unpacked> b, float c) {
  Term sum = as_term(unpack_float(c));
  for (std::size_t i = 0; i < a.size(); ++i) {
    Term p = product(a[i], b[i]);
    if (model.product_fraction_bits >= 0)
      p = rounded(exact_of(p), model.product_fraction_bits, RoundingMode::nearest_even);
    KulischAccumulator partial;
    add(partial, sum);
    add(partial, p);
    sum = rounded(partial.value(), model.output_fraction_bits, model.rounding);
  }
  return round_to_float(exact_of(sum), 23, RoundingMode::nearest_even);
}

float exact(std::span<const Unpacked> a, std::span<const Unpacked> b, float c) {
  KulischAccumulator sum;
  add(sum, as_term(unpack_float(c)));
  for (std::size_t i = 0; i < a.size(); ++i) add(sum, product(a[i], b[i]));
  return round_to_float(sum.value(), 23, RoundingMode::nearest_even);
}

/// The IEEE 754 sum of two numbers of `output`, nearest even.
float add(FormatId output, float x, float y) {
  Specials specials;
  note_value(specials, unpack_float(x));
  note_value(specials, unpack_float(y));
  if (specials.any()) return specials.result();
  if (x == 0.0F && y == 0.0F && std::signbit(x) && std::signbit(y)) return -0.0F;
  KulischAccumulator sum;
  add(sum, as_term(unpack_float(x)));
  add(sum, as_term(unpack_float(y)));
  return output == FormatId::f16 ? round_to_half(sum.value(), RoundingMode::nearest_even)
                                 : round_to_float(sum.value(), 23, RoundingMode::nearest_even);
}

float fp16_halves(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c) {
  const AccumulatorModel step = step_of_halves(model);
  if (model.output_format == FormatId::f16) c = rounded_to_half(c);
  std::vector<Unpacked> a_half;
  std::vector<Unpacked> b_half;
  const auto terms = static_cast<std::size_t>(model.terms);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(terms, a.size() - begin);
    float sum = 0.0F;
    for (int place = 0; place < model.terms;) {
      const bool first = place == 0;
      a_half.clear();
      b_half.clear();
      for (int i = 0; i < step.terms; ++i, ++place) {
        const auto term = static_cast<std::size_t>(term_of_halves(place, model.terms));
        if (term >= count) continue;
        a_half.push_back(as_half(a[begin + term], "a"));
        b_half.push_back(as_half(b[begin + term], "b"));
      }
      if (first || model.halves_order == HalvesOrder::chained)
        sum = fused(step, a_half, b_half, sum);
      else
        sum = add(model.output_format, sum, fused(step, a_half, b_half, 0.0F));
    }
    c = add(model.output_format, c, sum);
    begin += count;
  } while (begin < a.size());
  return c;
}

/// Binary32 additions of the products, each product rounded to binary32 first
/// where it does not fit (only BF16 and TF32 products near the range's ends).
float float32(std::span<const Unpacked> a, std::span<const Unpacked> b, float c) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Term p = product(a[i], b[i]);
    if (p.significand == 0) continue;
    c += round_to_float(exact_of(p), 23, RoundingMode::nearest_even);
  }
  return c == 0.0F ? 0.0F : c;
}

}  // namespace

float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c) {
  const FloatEnvironment environment;
  validate(model);
  require(a.size() == b.size(), "b", fmt::format("k = {} operands, as a has", a.size()),
          fmt::format("{}", b.size()));
  if (model.kind == AccumulationKind::fused_dot_product) return fused(model, a, b, c);
  if (model.kind == AccumulationKind::fp16_halves) return fp16_halves(model, a, b, c);

  Specials specials;
  note_value(specials, unpack_float(c));
  for (std::size_t i = 0; i < a.size(); ++i) note_product(specials, a[i], b[i]);
  if (specials.any()) return specials.result();
  switch (model.kind) {
    case AccumulationKind::sequential:
      return sequential(model, a, b, c);
    case AccumulationKind::float32:
      return float32(a, b, c);
    default:
      return exact(a, b, c);
  }
}

float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, float c) {
  require_formats(model, a_format, b_format);
  const auto unpack_all = [](FormatId id, std::span<const std::uint32_t> codes) {
    std::vector<Unpacked> values(codes.size());
    std::transform(codes.begin(), codes.end(), values.begin(),
                   [&](std::uint32_t code) { return unpack(format(id), code); });
    return values;
  };
  return dot_product(model, unpack_all(a_format, a), unpack_all(b_format, b), c);
}

}  // namespace fp8lab
