#include "fp8lab/gemm/methods/request.hpp"

#include <algorithm>

namespace fp8lab::gemm_detail {
namespace {

/// Whether conversions to FP16 round to nearest under the kernels' rounding mode, which is toward
/// zero: x86's instruction says how to round, NEON's follows the mode.
#if defined(__x86_64__)
constexpr bool kConvertsToNearest = true;
#else
constexpr bool kConvertsToNearest = false;
#endif

constexpr int kWordBits = 32;  // of the sign masks

}  // namespace

MethodRequest::MethodRequest(const GemmProblem& product)
    : problem(product),
      a(&format(product.a.format)),
      b(&format(product.b.format)),
      a_values(a),
      b_values(b),
      arithmetic(traits_of(product.model).arithmetic),
      scaled(arithmetic == Arithmetic::scaled_steps) {
  // Scales are in the packed operands, whose products are aligned like any other.
  if (scaled) arithmetic = Arithmetic::fused_steps;
}

bool MethodRequest::truncates() const {
  return !half_output() && model().rounding == RoundingMode::toward_zero;
}

bool MethodRequest::rounds_to_half() const {
  return half_output() && kConvertsToNearest && model().rounding == RoundingMode::nearest_even;
}

bool MethodRequest::has_fused_steps() const {
  return arithmetic == Arithmetic::fused_steps &&
         model().product_exponent == ProductExponent::stored && model().terms <= kWordBits;
}

std::int64_t MethodRequest::plain_terms(std::int64_t most) const {
  for (std::int64_t terms = most; terms > 1; --terms)
    if (problem.promotion_interval % terms == 0) return terms;
  return 1;
}

int smallest_c_exponent(const AccumulatorModel& m) {
  const bool stored_half =
      m.output_format == FormatId::f16 && m.half_c_exponent == HalfCExponent::stored;
  // A binary32 c that kernels in binary32 take is no subnormal.
  return stored_half ? format(FormatId::f16).min_exponent() : -126;
}

StepRounding step_rounding(const AccumulatorModel& m, bool in_double) {
  const int bias = in_double ? 1023 : 127;
  const int floor = in_double ? kDoubleExponentFloor : kFloatExponentFloor;
  return {.alignment_fraction_bits = m.alignment_fraction_bits,
          .output_fraction_bits = m.output_fraction_bits,
          .nearest_even = m.rounding == RoundingMode::nearest_even,
          .half_output = m.output_format == FormatId::f16,
          .exponent_floor = std::max(floor, m.min_alignment_exponent + bias),
          .c_exponent_floor = smallest_c_exponent(m) + bias};
}

int rounded_product_bits(const MethodRequest& r) {
  const int exact = r.a->mantissa_bits + r.b->mantissa_bits + 1;
  return r.model().product_fraction_bits < exact ? r.model().product_fraction_bits : -1;
}

}  // namespace fp8lab::gemm_detail
