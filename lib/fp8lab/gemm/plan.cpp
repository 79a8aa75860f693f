#include "fp8lab/gemm/plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr int kStepOfPlainSums = 32;
constexpr int kDoubleBits = 53;
constexpr int kMostExactBits = 100;  // of sums in two words that follow the data

int ceil_log2(std::int64_t x) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x - 1)));
}

/// Whether the sum of a step, in units of the last aligned bit, stays inside
/// the binade of the magic number with `mantissa_bits`.
bool sum_fits(const AccumulatorModel& m, int mantissa_bits) {
  if (m.alignment_fraction_bits + 3 >= mantissa_bits) return false;
  // Each product is below 4 units of 2^F, c below 2, the sign counts below terms + 1.
  const std::int64_t largest =
      (std::int64_t{4 * m.terms + 2} << m.alignment_fraction_bits) + m.terms + 1;
  return largest < std::int64_t{1} << (mantissa_bits - 1);
}

bool is_narrow(const Format& f) { return f.has_sign && f.exponent_bits <= 5 && f.code_bits() <= 8; }

/// Whether conversions to FP16 round to nearest under the kernels' rounding mode, which is toward
/// zero: x86's instruction says how to round, NEON's follows the mode.
#if defined(__x86_64__)
constexpr bool kConvertsToNearest = true;
#else
constexpr bool kConvertsToNearest = false;
#endif

/// Whether the sum of c and so many products fits 32-bit integers, in units of the last aligned
/// bit: c is below 2 units of 2^F, and so are significands.
bool fits_words(const AccumulatorModel& m, const Format& a, const Format& b, int terms) {
  constexpr int kFloatBits = 24;  // of an exact product
  const int bits = a.mantissa_bits + b.mantissa_bits;
  const int f = m.alignment_fraction_bits;
  if (bits + 2 > kFloatBits || f > 25) return false;
  const auto largest = [](const Format& x) {
    return (std::int64_t{2} << x.mantissa_bits) - 1;  // times 2^-mantissa_bits
  };
  const std::int64_t sum = terms * largest(a) * largest(b) + (std::int64_t{2} << bits);
  return terms <= 32 && sum << f < std::int64_t{1} << (31 + bits);
}
bool fits_words(const AccumulatorModel& m, const Format& a, const Format& b) {
  return fits_words(m, a, b, m.terms);
}

/// Whether fused steps that have no method in binary32 are sums of at most two 32-bit integers,
/// which take less time than binary64.
bool fused_in_words(const AccumulatorModel& m, const Format& a, const Format& b) {
  constexpr int kMostFloor = 60;  // bytes hold it
  const int half = m.terms - m.terms / 2;
  if (!fits_words(m, a, b, half) || m.min_alignment_exponent > kMostFloor) return false;
  return m.output_format == FormatId::f32
             ? m.rounding == RoundingMode::toward_zero
             : kConvertsToNearest && m.rounding == RoundingMode::nearest_even;
}

Method two_stage_method(const AccumulatorModel& m, const Format& a, const Format& b,
                        Method method) {
  const int second = m.second_stage_fraction_bits;
  return fits_words(m, a, b) && second >= m.alignment_fraction_bits && second <= 31
             ? method
             : Method::reference;
}

Method fused_method(const AccumulatorModel& m, const Format& a, const Format& b) {
  constexpr int kWordBits = 32;       // of the sign masks
  constexpr int kFloatFraction = 15;  // F <= 15: products times 1 + 2^-19 stay apart
  constexpr int kDoubleFraction = 36;
  if (m.product_exponent != ProductExponent::stored || m.terms > kWordBits)
    return Method::reference;
  const bool truncates = m.rounding == RoundingMode::toward_zero;
  const bool half = m.output_format == FormatId::f16;
  if (is_narrow(a) && is_narrow(b) && a.mantissa_bits + b.mantissa_bits <= 6 &&
      m.alignment_fraction_bits <= kFloatFraction && sum_fits(m, 23)) {
    if (half && kConvertsToNearest && m.rounding == RoundingMode::nearest_even)
      return Method::fused_float;
    if (!half && truncates && m.output_fraction_bits <= 22) return Method::fused_float;
  }
  if (half)
    return kConvertsToNearest && m.rounding == RoundingMode::nearest_even &&
                   m.alignment_fraction_bits <= kDoubleFraction && sum_fits(m, 52)
               ? Method::fused_double
               : Method::reference;
  if (truncates && m.alignment_fraction_bits <= kDoubleFraction && sum_fits(m, 52))
    return Method::fused_double;
  const bool nearest = m.rounding == RoundingMode::nearest_even && m.output_fraction_bits == 23;
  const int lowest = a.min_exponent() - a.mantissa_bits + b.min_exponent() - b.mantissa_bits;
  const bool keeps_tiny = m.min_alignment_exponent - m.alignment_fraction_bits <= lowest;
  return (truncates || nearest) && m.alignment_fraction_bits >= 23 && keeps_tiny
             ? Method::exact_steps
             : Method::reference;
}

/// To how many fraction bits products are rounded; negative where they have no more.
int rounded_product_bits(const AccumulatorModel& m, const Format& a, const Format& b) {
  const int exact = a.mantissa_bits + b.mantissa_bits + 1;
  return m.product_fraction_bits < exact ? m.product_fraction_bits : -1;
}

Method sequential_method(const AccumulatorModel& m, const Format& a, const Format& b) {
  const int rounded = rounded_product_bits(m, a, b);
  if (m.rounding == RoundingMode::nearest_even) {
    const int bits = rounded >= 0 ? rounded : a.mantissa_bits + b.mantissa_bits + 1;
    if (bits <= m.output_fraction_bits) return Method::nearest_double;
    return rounded >= 0 ? Method::reference : Method::nearest_of_odd;
  }
  if (m.rounding != RoundingMode::toward_zero || rounded >= 0) return Method::reference;
  // Sums of such products are no subnormals of binary32, and far from its end.
  return a.exponent_bits <= 5 && b.exponent_bits <= 5 ? Method::truncated_float
                                                      : Method::truncated_double;
}

/// Of a step whose operands are packed with their scales, which need binary64's exponents; what
/// stands for zeros there is below any alignment from 2^-200 on.
Method scaled_method(Method unscaled, const AccumulatorModel& m) {
  const bool fused = unscaled == Method::fused_float || unscaled == Method::fused_double;
  return fused && m.min_alignment_exponent >= -200 ? Method::fused_double : Method::reference;
}

/// Exact sums of groups of E2M1's products; their scaled terms have 12 + 8 bits and stay 11 above
/// the alignment.
Method scaled_groups_method(const AccumulatorModel& m) {
  constexpr int kMostFraction = 36;
  return m.rounding == RoundingMode::toward_zero && m.alignment_fraction_bits <= kMostFraction
             ? Method::scaled_groups
             : Method::reference;
}

Method choose(const AccumulatorModel& m, const Format& a, const Format& b, bool words) {
  if (!a.has_sign || !b.has_sign) return Method::reference;
  switch (traits_of(m).arithmetic) {
    case Arithmetic::fused_steps: {
      const Method method = fused_method(m, a, b);
      return words && method == Method::fused_double && fused_in_words(m, a, b)
                 ? Method::fused_words
                 : method;
    }
    case Arithmetic::exact_steps:
      return m.terms <= kStepOfPlainSums ? Method::checked_steps : Method::reference;
    case Arithmetic::multiply_adds:
      return Method::multiply_adds;
    case Arithmetic::flushed_pairs:
      return a.exponent_bits + a.mantissa_bits < 16 && b.exponent_bits + b.mantissa_bits < 16
                 ? Method::flushed_pairs
                 : Method::reference;
    case Arithmetic::two_stage:
      return two_stage_method(m, a, b, Method::two_stage);
    case Arithmetic::even_odd:
      return two_stage_method(m, a, b, Method::even_odd);
    case Arithmetic::scaled_groups:
      return scaled_groups_method(m);
    case Arithmetic::exact:
      return Method::exact;
    case Arithmetic::float32:
      return Method::float32;
    case Arithmetic::sequential:
      return sequential_method(m, a, b);
    case Arithmetic::halves:        // halves.cpp puts them together
    case Arithmetic::scaled_steps:  // planned as fused steps
    case Arithmetic::other:
      break;
  }
  return Method::reference;
}

/// Up to how many rows of A dot kernels are faster than those that transpose B: measured, see
/// docs/lab/gemm.md. Their vectors hold 32 terms, of whatever model.
std::int64_t most_dot_rows(std::int64_t terms) { return terms == 32 ? 4 : terms >= 16 ? 1 : 0; }

/// With fewer, packing A for them takes longer than they save.
constexpr std::int64_t kColumnsPerRow = 64;

/// The layout of B for dot kernels, unless others are faster. FP16 has no room for the
/// largest FNUZ numbers. With few columns packing A, which takes longer for these, weighs more.
DotLayout choose_dots(const GemmProblem& p) {
  const Format& b = format(p.b.format);
  const bool has_half_fields = b.code_bits() == 8 && b.exponent_bits >= 4 && b.exponent_bits <= 5 &&
                               b.specials != SpecialValues::fnuz;
  if (!has_half_fields || p.a.rows > most_dot_rows(p.model.terms) ||
      p.b.rows < kColumnsPerRow * p.a.rows)
    return {};
  return {b.exponent_bits, b.bias};
}

/// The same for steps of 32-bit integers, whose reductions cost a short step more.
std::int64_t most_word_dot_rows(std::int64_t terms) {
  return terms >= 16 ? kMostWordDotRows : terms >= 8 ? 4 : 2;
}
WordDotLayout choose_word_dots(const GemmProblem& p, const Plan& plan) {
  if (!plan.in_words() || p.a.rows > most_word_dot_rows(plan.terms) ||
      p.b.rows < kColumnsPerRow * p.a.rows)
    return {};
  const WordDotLayout layout = word_dot_layout(format(p.b.format), plan.terms);
  const bool bytes = layout.kind == LineCodes::bytes;
  if (plan.method == Method::even_odd && !bytes) return {};
  // Both sums get half the terms, which are dealt by twos of four.
  if (bytes && plan.words_rounding.two_sums && plan.terms % 4 != 0) return {};
  return layout;
}

StepRounding step_rounding(const AccumulatorModel& m, bool in_double) {
  const bool half = m.output_format == FormatId::f16;
  const bool stored_half = half && m.half_c_exponent == HalfCExponent::stored;
  const int bias = in_double ? 1023 : 127;
  const int floor = in_double ? kDoubleExponentFloor : kFloatExponentFloor;
  // A binary32 c that kernels in binary32 take is no subnormal.
  const int smallest_c = stored_half ? format(FormatId::f16).min_exponent() : -126;
  return {.alignment_fraction_bits = m.alignment_fraction_bits,
          .output_fraction_bits = m.output_fraction_bits,
          .nearest_even = m.rounding == RoundingMode::nearest_even,
          .half_output = half,
          .exponent_floor = std::max(floor, m.min_alignment_exponent + bias),
          .c_exponent_floor = smallest_c + bias};
}

WordRounding word_rounding(const AccumulatorModel& m) {
  const bool half = m.output_format == FormatId::f16;
  const bool stored_half = half && m.half_c_exponent == HalfCExponent::stored;
  return {.alignment_fraction_bits = m.alignment_fraction_bits,
          .output_fraction_bits = m.output_fraction_bits,
          .second_stage_fraction_bits = m.second_stage_fraction_bits,
          .half_output = half,
          .exponent_floor = std::max(kWordExponentFloor, m.min_alignment_exponent),
          .c_exponent_floor = stored_half ? format(FormatId::f16).min_exponent() : -126};
}

/// The model whose parameters the kernels take.
AccumulatorModel planned_model(const AccumulatorModel& model) {
  AccumulatorModel planned = model;
  // Scales are in the packed operands, whose products are aligned like any other.
  if (traits_of(model).arithmetic == Arithmetic::scaled_steps)
    planned.kind = AccumulationKind::fused_dot_product;
  return planned;
}

/// The widest step that promotion never interrupts.
std::int64_t plain_terms(std::int64_t interval) {
  for (std::int64_t terms = kStepOfPlainSums; terms > 1; --terms)
    if (interval % terms == 0) return terms;
  return 1;
}

}  // namespace

std::string_view to_string(Method method) {
  constexpr std::array<std::string_view, 17> kNames{
      "reference",  "fused float",   "fused double",  "exact steps", "exact steps",
      "exact",      "float32",       "sequential",    "sequential",  "sequential",
      "sequential", "multiply-adds", "flushed pairs", "fused words", "two stages",
      "two stages", "scaled groups"};
  return kNames[static_cast<std::size_t>(method)];
}

bool is_one_word(const AccumulatorModel& model, const Format& a, const Format& b) {
  return fits_words(model, a, b);
}

Plan make_plan(const GemmProblem& p, bool words) {
  const AccumulatorModel model = planned_model(p.model);
  Plan plan;
  const bool scaled_steps = traits_of(p.model).arithmetic == Arithmetic::scaled_steps;
  plan.method = choose(model, format(p.a.format), format(p.b.format), words && !scaled_steps);
  if (scaled_steps) plan.method = scaled_method(plan.method, model);
  plan.keeps_negative_zero = traits_of(p.model).arithmetic == Arithmetic::exact_steps ||
                             plan.method == Method::two_stage || plan.method == Method::even_odd;
  const bool plain = plan.method == Method::exact || plan.method == Method::float32 ||
                     plan.takes_everything() || plan.sequential();
  plan.terms = plain ? plain_terms(p.promotion_interval) : model.terms;
  if (plan.method == Method::flushed_pairs) plan.group = model.terms;
  // Binary32's field of infinities is that of formats with its exponents.
  plan.keeps_infinities = plan.takes_everything() && format(p.a.format).exponent_bits == 8 &&
                          format(p.b.format).exponent_bits == 8;
  plan.words_rounding = word_rounding(model);
  plan.words_rounding.two_sums = plan.method == Method::fused_words &&
                                 !is_one_word(model, format(p.a.format), format(p.b.format));
  plan.rounding = step_rounding(model, plan.in_double());
  plan.sums = {p.model.output_fraction_bits,
               rounded_product_bits(p.model, format(p.a.format), format(p.b.format))};
  if (plan.method == Method::fused_float) plan.dots = choose_dots(p);
  plan.word_dots = choose_word_dots(p, plan);
  return plan;
}

RowSummary widest_row(const Format& f) {
  RowSummary s;
  s.largest = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  s.lowest = f.min_exponent() - f.mantissa_bits;
  return s;
}

TwoWords find_two_words(const Plan& plan, const Format& a, const Format& b, std::int64_t k) {
  const RowSummary in_a = widest_row(a);
  const RowSummary in_b = widest_row(b);
  const int low = in_a.lowest + in_b.lowest;
  const int f = plan.rounding.alignment_fraction_bits;
  const bool steps = plan.method == Method::exact_steps;
  if (!steps && plan.method != Method::exact) return {};
  if (steps && in_a.largest + in_b.largest - f > low) return {};
  // The second word holds `terms` rests below 2^unit, the first their whole parts.
  const int carries = ceil_log2((steps ? plan.terms : k) + 1);
  const int unit = low + 52 - carries;
  const int room = unit + 50;
  if (in_a.largest + in_b.largest + 2 + carries > room || low <= -120 || room >= 120) return {};
  return {.magic = std::ldexp(1.5, 52 + unit),
          .limit = std::ldexp(1.0, steps ? std::min(room, low + f + 1) : room),
          .lowest = std::ldexp(1.0, low)};
}

bool kernel_takes(const Plan& plan, const RowSummary& a, const RowSummary& b, std::int64_t k) {
  if (plan.words.used()) return true;
  const int top = a.largest + b.largest + 2;  // products are below 2^top
  const int low = a.lowest + b.lowest;        // and multiples of 2^low
  const int sum_top = top + ceil_log2(k);
  switch (plan.method) {
    case Method::fused_double:
      return sum_top < 126;
    case Method::exact:
      return sum_top - low <= kDoubleBits && sum_top < 126 && low > -149;
    case Method::exact_steps:
      return top + ceil_log2(plan.terms) - low <= kDoubleBits && sum_top < 120 && low > -120 &&
             sum_top + 1 - plan.rounding.alignment_fraction_bits <= low;
    case Method::checked_steps:
      return sum_top < 120 && low > -120 && sum_top - low <= kMostExactBits;
    case Method::float32:
      return top < 127 && low >= -149;
    case Method::scaled_groups:
      return sum_top < 126;
    case Method::fused_words:
    case Method::two_stage:
    case Method::even_odd:
      // All sums are multiples of 2^(-60 - 31), which the least alignment keeps.
      return low >= -60 && sum_top < 80 && a.largest <= 60 && b.largest <= 60;
    default:
      return true;
  }
}

bool kernel_takes_start(const Plan& plan, float c, const RowSummary& a, const RowSummary& b) {
  if (plan.takes_everything()) return true;
  if (c == 0.0F) return !(plan.keeps_negative_zero && std::signbit(c));
  if (plan.words.used())
    return std::fabs(c) < plan.words.limit && std::fmod(c, plan.words.lowest) == 0.0;
  // 128 for NaN and Inf, -127 for subnormals: outside of what each method asks of them.
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(c) >> 23 & 255) - 127;
  switch (plan.method) {
    case Method::fused_float:
      // The magic number of the largest and of the smallest alignment must exist.
      return exponent < 117 && exponent + 23 - plan.rounding.alignment_fraction_bits < 128 &&
             exponent >= -45;
    case Method::exact_steps: {
      // Neither may c truncate a product nor a product c.
      const int f = plan.rounding.alignment_fraction_bits;
      return exponent + 2 - f <= a.lowest + b.lowest &&
             exponent - 23 >= a.largest + b.largest - f && exponent > -100 && exponent < 120;
    }
    case Method::checked_steps: {
      // K's length is not known here: 24 bits of it are enough for any.
      const int top = std::max(a.largest + b.largest + 2 + 24, exponent + 2);
      const int low = std::min(a.lowest + b.lowest, exponent - 23);
      return exponent < 120 && low > -120 && top - low <= kMostExactBits;
    }
    case Method::truncated_float:
      return exponent - 23 >= -126 && exponent < 120;
    case Method::nearest_double:
      // c may have more bits than a sum: its first sum must be exact if products are the smaller.
      return exponent < 128 && exponent + 2 - (a.lowest + b.lowest) <= kDoubleBits;
    case Method::fused_words:
    case Method::two_stage:
    case Method::even_odd:
      return exponent >= -60 && exponent < 120;
    case Method::truncated_double:
    case Method::nearest_of_odd:
      return exponent < 128;
    default:
      return exponent < 120;
  }
}

}  // namespace fp8lab::gemm_detail
