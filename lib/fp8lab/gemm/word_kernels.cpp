#include <algorithm>

#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/word_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"
#include "fp8lab/gemm/word_steps-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Words = Tag<std::int32_t>;
using Floats = Tag<float>;

/// The largest exponents of one row's products with the panel: of every `kGroups`th term from
/// `first` on.
template <int kGroups>
HWY_INLINE void largest_exponents(std::int64_t first, std::int64_t terms, int floor,
                                  const std::uint32_t* a, const std::uint8_t* b,
                                  std::int8_t* largest) {
  const Tag<std::int8_t> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, static_cast<std::int8_t>(floor));
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto of_b = hn::BitCast(d, hn::Load(Tag<std::uint8_t>(), b + k * width));
    most = hn::Max(most, hn::SaturatedAdd(of_b, hn::BitCast(d, hn::Set(d32, a[k]))));
  }
  // Biased as binary32's are: none is below the floor.
  hn::Store(hn::Add(most, hn::Set(d, std::int8_t{127})), d, largest);
}

/// As fields.
HWY_INLINE Vector<std::int32_t> load_exponents(const std::int8_t* largest) {
  const Words d;
  const hn::Rebind<std::uint8_t, Words> d8;
  const auto biased = hn::Load(d8, reinterpret_cast<const std::uint8_t*>(largest));
  return hn::ShiftLeft<23>(hn::PromoteTo(d, biased));
}

/// The product of each vector of columns with one term, times `scale` and truncated.
HWY_INLINE void multiply_term(const float* a, const float* b,
                              const Vector<float> (&scale)[kVectors],
                              Vector<std::int32_t> (&product)[kVectors]) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto value = hn::Set(d, *a);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto exact = hn::Mul(value, hn::Load(d, b + v * lanes));
    product[v] = truncated(hn::Mul(exact, scale[v]));
  }
}

/// sum += a . b of every `kGroups`th term from `first` on, each product times `scale` and
/// truncated.
template <int kGroups>
HWY_INLINE void add_products(std::int64_t first, std::int64_t terms, const float* a, const float* b,
                             const Vector<float> (&scale)[kVectors],
                             Vector<std::int32_t> (&sum)[kVectors]) {
  const auto width = static_cast<std::int64_t>(hn::Lanes(Floats())) * kVectors;
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = first; k < terms; k += kGroups) {
    Vector<std::int32_t> product[kVectors];
    multiply_term(a + k, b + k * width, scale, product);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Add(sum[v], product[v]);
  }
}

/// Terms of the shortest steps, for which loops over a step's terms cost most.
constexpr int kShortStep = 4;

/// Terms of a step: known to the compiler where kTerms is not 0.
template <int kTerms>
HWY_INLINE std::int64_t terms_of(const StepBlock<float>& s) {
  return kTerms == 0 ? s.terms : kTerms;
}

/// Rows whose exponents are found before the first of them multiplies: it would wait for its own
/// otherwise.
constexpr std::int64_t kRowsAhead = 8;

/// One row's operands of one step.
struct Row {
  const float* a;
  const std::uint32_t* a_exponents;
  const float* b;
  const std::uint8_t* b_exponents;
  float* state;
  const std::int8_t* largest;  ///< exponents, [group][kMaxWidth]

  HWY_INLINE Row(const StepBlock<float>& s, std::int64_t step, std::int64_t row,
                 const std::int8_t* exponents = nullptr)
      : largest(exponents) {
    const auto width = static_cast<std::int64_t>(hn::Lanes(Floats())) * kVectors;
    const std::int64_t at = (step * s.rows + row) * s.terms;
    a = s.a + at;
    a_exponents = s.a_exponents + at;
    b = s.b + step * s.terms * width;
    b_exponents = s.b_exponents + step * s.terms * width;
    state = s.state + row * width;
  }
};

template <bool kHalf, bool kTwo, int kTerms>
HWY_INLINE void fused_row(const StepBlock<float>& s, const Row& r, const WordRounding& rounding) {
  const Floats d;
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::Load(d, r.state + v * lanes);
    const auto e =
        hn::Max(load_exponents(r.largest + v * lanes), alignment_of_c<kHalf>(c, rounding));
    scale[v] = fused_scale<Vector<float>>(e, rounding);
    sum[v] = truncated(hn::Mul(c, scale[v]));
    rest[v] = hn::Zero(dw);
  }
  const std::int64_t terms = terms_of<kTerms>(s);
  const std::int64_t first = kTwo ? terms / 2 : terms;
  add_products<1>(0, first, r.a, r.b, scale, sum);
  if constexpr (kTwo) add_products<1>(first, terms, r.a, r.b, scale, rest);
  fused_results<kHalf, kTwo>(sum, rest, scale, r.state, r.state, rounding);
}

/// The sums of every `kGroups`th product from `first` on, in units of 2^(largest - F).
template <int kGroups>
HWY_INLINE void first_stage(const Row& r, std::int64_t first, std::int64_t terms,
                            const WordRounding& rounding, const std::int8_t* largest,
                            Vector<std::int32_t> (&sum)[kVectors]) {
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dw));
  Vector<float> scale[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = fused_scale<Vector<float>>(load_exponents(largest + v * lanes), rounding);
    sum[v] = hn::Zero(dw);
  }
  // There may be no second term.
  if constexpr (kGroups == 1) multiply_term(r.a + first++, r.b, scale, sum);
  add_products<kGroups>(first, terms, r.a, r.b, scale, sum);
}

template <bool kShort, int kTerms>
HWY_INLINE void two_stage_row(const StepBlock<float>& s, const Row& r,
                              const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<std::int32_t> sum[kVectors];
  first_stage<1>(r, 0, terms_of<kTerms>(s), rounding, r.largest, sum);
  if constexpr (kShort) {
    const auto fraction = hn::Set(Words(), field(rounding.alignment_fraction_bits));
    Vector<std::int32_t> unit[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v)
      unit[v] = hn::Sub(load_exponents(r.largest + v * lanes), fraction);
    short_second_stages<Vector<float>>(sum, unit, r.state);
    return;
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    const auto e = load_exponents(r.largest + v * lanes);
    hn::Store(second_stage<false>(sum[v], e, hn::Load(d, c), rounding), d, c);
  }
}

HWY_INLINE void even_odd_row(const StepBlock<float>& s, const Row& r,
                             const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int8_t* largest_odd = r.largest + kMaxWidth;
  Vector<std::int32_t> even[kVectors];
  Vector<std::int32_t> odd[kVectors];
  first_stage<2>(r, 0, s.terms, rounding, r.largest, even);
  first_stage<2>(r, 1, s.terms, rounding, largest_odd, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    hn::Store(even_odd_result(even[v], odd[v], load_exponents(r.largest + v * lanes),
                              load_exponents(largest_odd + v * lanes), hn::Load(d, c), rounding),
              d, c);
  }
}

/// one_row(block, row's operands) of every step and row, whose terms are aligned in `kGroups`
/// groups.
template <int kGroups, int kTerms, class OneRow>
HWY_INLINE void for_rows(const StepBlock<float>& from, int exponent_floor, const OneRow& one_row) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  HWY_ALIGN std::int8_t largest[kRowsAhead * kGroups * kMaxWidth];
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t first = 0; first < s.rows; first += kRowsAhead) {
      const std::int64_t rows = std::min(kRowsAhead, s.rows - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        const Row r(s, step, first + i);
        for (int group = 0; group < kGroups; ++group)
          largest_exponents<kGroups>(group, terms_of<kTerms>(s), exponent_floor, r.a_exponents,
                                     r.b_exponents, largest + (i * kGroups + group) * kMaxWidth);
      }
      for (std::int64_t i = 0; i < rows; ++i)
        one_row(s, Row(s, step, first + i, largest + i * kGroups * kMaxWidth));
    }
}

template <bool kHalf, bool kTwo, int kTerms = 0>
void fused_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<1, kTerms>(s, r.exponent_floor, [&](const auto& block, const Row& row) HWY_ATTR {
    fused_row<kHalf, kTwo, kTerms>(block, row, r);
  });
}

void fused_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const bool half = rounding.half_output;
  if (rounding.two_sums)
    return (half ? fused_steps<true, true> : fused_steps<false, true>)(s, rounding);
  if (s.terms == kShortStep)
    return (half ? fused_steps<true, false, kShortStep>
                 : fused_steps<false, false, kShortStep>)(s, rounding);
  (half ? fused_steps<true, false> : fused_steps<false, false>)(s, rounding);
}

template <bool kShort, int kTerms = 0>
void two_stage_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<1, kTerms>(s, kWordExponentFloor, [&](const auto& block, const Row& row) HWY_ATTR {
    two_stage_row<kShort, kTerms>(block, row, r);
  });
}
void two_stage_words(const StepBlock<float>& s, const WordRounding& rounding) {
  if (!rounding.short_second_stage) return two_stage_steps<false>(s, rounding);
  (s.terms == kShortStep ? two_stage_steps<true, kShortStep> : two_stage_steps<true>)(s, rounding);
}
void even_odd_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<2, 0>(s, kWordExponentFloor,
                 [&](const auto& block, const Row& row) HWY_ATTR { even_odd_row(block, row, r); });
}

void exponents(const float* values, std::int64_t count, int smallest, std::uint8_t* to) {
  const Floats d;
  const Words dw;
  const hn::Rebind<std::int8_t, Words> db;
  const hn::Rebind<std::uint8_t, Words> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    const auto exponent_of = hn::Sub(hn::ShiftRight<23>(field_of(x)), hn::Set(dw, 127));
    const auto stored = hn::Max(exponent_of, hn::Set(dw, smallest));
    const auto zero = hn::RebindMask(dw, hn::Eq(x, hn::Zero(d)));
    const auto exponent = hn::IfThenElse(zero, hn::Set(dw, kWordExponentOfZero), stored);
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(db, exponent)), du, to + i);
  }
}

const WordKernels* word_kernels() {
  static const WordKernels kTable{exponents, fused_words, two_stage_words, even_odd_words};
  return &kTable;
}

#else
const WordKernels* word_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(WordKernels, word_kernels)

}  // namespace fp8lab::gemm_detail
#endif
