#include "fp8lab/gemm/methods/method.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/scaling.hpp"

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
      kind(product.model.kind),
      scaled(kind == AccumulationKind::scaled_dot_product) {
  // Scales are in the packed operands, whose products are aligned like any other.
  if (scaled) kind = AccumulationKind::fused_dot_product;
}

bool MethodRequest::truncates() const {
  return !half_output() && model().rounding == RoundingMode::toward_zero;
}

bool MethodRequest::rounds_to_half() const {
  return half_output() && kConvertsToNearest && model().rounding == RoundingMode::nearest_even;
}

bool MethodRequest::has_fused_steps() const {
  return kind == AccumulationKind::fused_dot_product &&
         model().product_exponent == ProductExponent::stored && model().terms <= kWordBits;
}

std::int64_t MethodRequest::plain_terms(std::int64_t most, std::int64_t group) const {
  for (std::int64_t terms = most / group * group; terms > group; terms -= group)
    if (problem.promotion_interval % terms == 0) return terms;
  return group;
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

bool Method::takes_start(float c, const RowSummary& a, const RowSummary& b) const {
  if (sums_.takes_everything) return true;
  if (c == 0.0F) return !(sums_.drops_negative_zero && std::signbit(c));
  return takes_c(c, static_cast<int>(std::bit_cast<std::uint32_t>(c) >> 23 & 255) - 127, a, b);
}

template <typename T>
void MethodOf<T>::start(std::span<const float> c, T* state) const {
  for (std::size_t i = 0; i < c.size(); ++i)
    if (c[i] != 0.0F && std::isfinite(c[i])) state[i] = static_cast<T>(c[i]);
}

template <typename T>
void MethodOf<T>::extract(const Kernels& /*kernels*/, const RowOfSums<T>& row) const {
  for (std::int64_t j = 0; j < row.width; ++j) {
    if constexpr (std::is_same_v<T, float>)
      row.out[j] = canonical(row.state[j]);
    else
      row.out[j] = static_cast<float>(row.state[j]);
  }
}

template <typename T>
StepBlock<T> MethodOf<T>::block_of(const TileSteps<T>& steps) const {
  const PackedRows<T>& rows = steps.rows;
  StepBlock<T> block;
  const std::int64_t first = (steps.first - rows.first) * rows.padded_rows;
  block.rows = rows.padded_rows;
  block.steps = steps.count;
  block.terms = form_.terms;
  block.fold = form_.fold;
  block.a = rows.values.data() + first * form_.terms;
  if (form_.has_exponents()) block.a_exponents = rows.exponents.data() + first * form_.terms;
  if (form_.fused()) block.a_signs = rows.signs.data() + first;
  steps.panel.place(block, steps.first);
  block.state = steps.state;
  block.low_state = steps.low_state;
  return block;
}

template class MethodOf<float>;
template class MethodOf<double>;

}  // namespace fp8lab::gemm_detail
