#include "fp8lab/gemm/plan.hpp"

#include <algorithm>
#include <array>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/gemm/dot_pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr int kStepOfPlainSums = 32;

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

/// The largest sum of so many products in units of 2^-(mantissa bits of both).
std::int64_t largest_sum(const Format& a, const Format& b, int terms) {
  const auto largest = [](const Format& x) {
    return (std::int64_t{2} << x.mantissa_bits) - 1;  // times 2^-mantissa_bits
  };
  return terms * largest(a) * largest(b);
}

/// Whether the sum of c and so many products fits 32-bit integers, in units of the last aligned
/// bit: c is below 2 units of 2^F, and so are significands.
bool fits_words(const AccumulatorModel& m, const Format& a, const Format& b, int terms) {
  constexpr int kFloatBits = 24;  // of an exact product
  const int bits = a.mantissa_bits + b.mantissa_bits;
  const int f = m.alignment_fraction_bits;
  if (bits + 2 > kFloatBits || f > 25) return false;
  const std::int64_t sum = largest_sum(a, b, terms) + (std::int64_t{2} << bits);
  return terms <= 32 && sum << f < std::int64_t{1} << (31 + bits);
}
bool fits_words(const AccumulatorModel& m, const Format& a, const Format& b) {
  return fits_words(m, a, b, m.terms);
}

/// Whether the second stage of such steps has the short form, see docs/lab/gemm.md.
bool has_short_second_stage(const AccumulatorModel& m, const Format& a, const Format& b) {
  const int f = m.alignment_fraction_bits;
  return m.second_stage_fraction_bits == 31 && f >= 23 &&
         largest_sum(a, b, m.terms) << f < std::int64_t{1}
                                               << (29 + a.mantissa_bits + b.mantissa_bits);
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

/// With fewer, packing A by tables takes longer than they save.
constexpr std::int64_t kColumnsPerRow = 64;

/// The same for columns that fill a quarter of a panel at most: of so many.
constexpr std::int64_t kFewColumns = 8;
constexpr std::int64_t kMostRowsOfFewColumns = 32;

/// The layout of B for dot kernels, unless others are faster. Packing A of other formats takes
/// longer, which weighs more with few columns.
DotLayout choose_dots(const GemmProblem& p) {
  const Format& b = format(p.b.format);
  if (!has_half_fields(b)) return {};
  const bool packs_fast = has_half_fields(format(p.a.format));
  const std::int64_t terms = p.model.terms;
  const bool few_rows =
      p.a.rows <= most_dot_rows(terms) && (packs_fast || p.b.rows >= kColumnsPerRow * p.a.rows);
  const bool few_columns = packs_fast && terms == kDotTerms && p.b.rows <= kFewColumns &&
                           p.a.rows <= kMostRowsOfFewColumns;
  return few_rows || few_columns ? DotLayout{b.exponent_bits, b.bias} : DotLayout{};
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
  plan.words_rounding.short_second_stage =
      plan.method == Method::two_stage &&
      has_short_second_stage(model, format(p.a.format), format(p.b.format));
  plan.rounding = step_rounding(model, plan.in_double());
  plan.sums = {p.model.output_fraction_bits,
               rounded_product_bits(p.model, format(p.a.format), format(p.b.format))};
  plan.sums.short_a = format(p.a.format).mantissa_bits <= plan.sums.product_fraction_bits;
  if (plan.method == Method::fused_float) plan.dots = choose_dots(p);
  plan.word_dots = choose_word_dots(p, plan);
  return plan;
}

}  // namespace fp8lab::gemm_detail
