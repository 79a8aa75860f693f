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
HWY_INLINE void largest_exponents(std::int64_t first, std::int64_t terms, int floor, int bias,
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
  // As bytes without sign: none is below the floor.
  hn::Store(hn::Add(most, hn::Set(d, static_cast<std::int8_t>(bias))), d, largest);
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

/// Adds a row's products to what its sums begin with, in two parts with kTwo.
template <bool kTwo, int kTerms>
HWY_INLINE void add_row(const StepBlock<float>& s, const Row& r,
                        const Vector<float> (&scale)[kVectors],
                        Vector<std::int32_t> (&sum)[kVectors],
                        Vector<std::int32_t> (&rest)[kVectors]) {
  const std::int64_t terms = terms_of<kTerms>(s);
  const std::int64_t first = kTwo ? terms / 2 : terms;
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) rest[v] = hn::Zero(Words());
  add_products<1>(0, first, r.a, r.b, scale, sum);
  if constexpr (kTwo) add_products<1>(first, terms, r.a, r.b, scale, rest);
}

template <bool kTwo, int kTerms>
HWY_INLINE void fused_row(const StepBlock<float>& s, const Row& r, const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::Load(d, r.state + v * lanes);
    const auto e =
        hn::Max(load_exponents(r.largest + v * lanes), alignment_of_c<false>(c, rounding));
    scale[v] = fused_scale<Vector<float>>(e, rounding.alignment_fraction_bits);
    sum[v] = truncated(hn::Mul(c, scale[v]));
  }
  add_row<kTwo, kTerms>(s, r, scale, sum, rest);
  float_results<kTwo>(sum, rest, scale, r.state, rounding);
}

// Between steps of FP16 output a row's sums are FP16 numbers at the row's beginning, which take one
// operation to read.
using Half = HalvesOf<Vector<float>>;

HWY_INLINE hwy::float16_t* halves_of(float* state) {
  return reinterpret_cast<hwy::float16_t*>(state);
}

void pack_halves(const StepBlock<float>& s) {
  const Floats d;
  const Half dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < s.rows; ++row) {
    float* state = s.state + row * lanes * kVectors;
    for (int v = 0; v < kVectors; ++v)
      hn::Store(hn::DemoteTo(dh, hn::Load(d, state + v * lanes)), dh, halves_of(state) + v * lanes);
  }
}
void unpack_halves(const StepBlock<float>& s) {
  const Floats d;
  const Half dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < s.rows; ++row) {
    float* state = s.state + row * lanes * kVectors;
    for (int v = kVectors - 1; v >= 0; --v)
      hn::Store(hn::PromoteTo(d, hn::Load(dh, halves_of(state) + v * lanes)), d, state + v * lanes);
  }
}

/// Whether all of a row's sums are normal numbers.
HWY_INLINE bool are_normal(const float* state) {
  const Tag<std::uint16_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // With one more in the exponent field, which has five bits, zeros, subnormal numbers and
  // infinities have 0 or 1.
  const auto one = hn::Set(d, std::uint16_t{1u << 10});
  const auto above_one = hn::Set(d, std::uint16_t{0x7800});
  const auto* bits = reinterpret_cast<const std::uint16_t*>(state);
  const auto x = hn::Add(hn::Load(d, bits), one);
  const auto y = hn::Add(hn::Load(d, bits + lanes), one);
#if FP8LAB_ROUNDS_IN_REGISTERS
  return (_mm512_testn_epi16_mask(x.raw, above_one.raw) |
          _mm512_testn_epi16_mask(y.raw, above_one.raw)) == 0;
#else
  const auto smaller = hn::Min(hn::And(x, above_one), hn::And(y, above_one));
  return hn::AllFalse(d, hn::Eq(smaller, hn::Zero(d)));
#endif
}

/// Instead of sums of which infinite ones stay: normal ones are not.
template <bool kNormal>
HWY_INLINE void store_halves(hn::Vec<Half> next, hwy::float16_t* to) {
  const Half dh;
  if constexpr (!kNormal) {
    const hn::Rebind<std::uint16_t, Half> d;
    const auto before = hn::BitCast(d, hn::Load(dh, to));
    const auto magnitude = hn::And(before, hn::Set(d, std::uint16_t{0x7fff}));
    const auto infinite = hn::Eq(magnitude, hn::Set(d, std::uint16_t{0x7c00}));
    next = hn::BitCast(dh, hn::IfThenElse(infinite, before, hn::BitCast(d, next)));
  }
  hn::Store(next, dh, to);
}

/// One row to FP16; of normal sums, fewer operations.
template <bool kNormal, bool kTwo, int kTerms>
HWY_INLINE void half_row(const StepBlock<float>& s, const Row& r, const WordRounding& rounding) {
  const Floats d;
  const Half dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::PromoteTo(d, hn::Load(dh, halves_of(r.state) + v * lanes));
    const auto of_c = kNormal ? field_of(c) : alignment_of_c<true>(c, rounding);
    const auto e = hn::Max(load_exponents(r.largest + v * lanes), of_c);
    scale[v] = fused_scale<Vector<float>>(e, rounding.alignment_fraction_bits);
    sum[v] = truncated(hn::Mul(c, scale[v]));
  }
  add_row<kTwo, kTerms>(s, r, scale, sum, rest);
  Vector<float> odd[kVectors];
  odd_results<kTwo>(sum, rest, scale, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v)
    store_halves<kNormal>(hn::DemoteTo(dh, odd[v]), halves_of(r.state) + v * lanes);
}

/// The sums of every `kGroups`th product from `first` on, in units of 2^(largest - fraction_bits).
template <int kGroups>
HWY_INLINE void first_stage(const Row& r, std::int64_t first, std::int64_t terms, int fraction_bits,
                            const std::int8_t* largest, Vector<std::int32_t> (&sum)[kVectors]) {
  const Words dw;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dw));
  Vector<float> scale[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = fused_scale<Vector<float>>(load_exponents(largest + v * lanes), fraction_bits);
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
  const int fraction_bits = kShort ? kBitsOfC : rounding.alignment_fraction_bits;
  first_stage<1>(r, 0, terms_of<kTerms>(s), fraction_bits, r.largest, sum);
  if constexpr (kShort) {
    Vector<std::int32_t> from[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) from[v] = load_exponents(r.largest + v * lanes);
    short_second_stages<Vector<float>>(sum, from, r.state);
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
  const int fraction_bits = rounding.alignment_fraction_bits;
  first_stage<2>(r, 0, s.terms, fraction_bits, r.largest, even);
  first_stage<2>(r, 1, s.terms, fraction_bits, largest_odd, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    hn::Store(even_odd_result(even[v], odd[v], load_exponents(r.largest + v * lanes),
                              load_exponents(largest_odd + v * lanes), hn::Load(d, c), rounding),
              d, c);
  }
}

/// Of exponents as binary32 has them.
constexpr int kBias = 127;

/// one_row(block, row's operands) of every step and row, whose terms are aligned in `kGroups`
/// groups.
template <int kGroups, int kTerms, class OneRow>
HWY_INLINE void for_rows(const StepBlock<float>& from, int exponent_floor, int bias,
                         const OneRow& one_row) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  HWY_ALIGN std::int8_t largest[kRowsAhead * kGroups * kMaxWidth];
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t first = 0; first < s.rows; first += kRowsAhead) {
      const std::int64_t rows = std::min(kRowsAhead, s.rows - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        const Row r(s, step, first + i);
        for (int group = 0; group < kGroups; ++group)
          largest_exponents<kGroups>(group, terms_of<kTerms>(s), exponent_floor, bias,
                                     r.a_exponents, r.b_exponents,
                                     largest + (i * kGroups + group) * kMaxWidth);
      }
      for (std::int64_t i = 0; i < rows; ++i)
        one_row(s, Row(s, step, first + i, largest + i * kGroups * kMaxWidth));
    }
}

template <bool kTwo, int kTerms = 0>
void fused_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<1, kTerms>(s, r.exponent_floor, kBias, [&](const auto& block, const Row& row) HWY_ATTR {
    fused_row<kTwo, kTerms>(block, row, r);
  });
}
template <bool kTwo, int kTerms = 0>
void half_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  pack_halves(s);
  for_rows<1, kTerms>(s, r.exponent_floor, kBias, [&](const auto& block, const Row& row) HWY_ATTR {
    if (are_normal(row.state)) return half_row<true, kTwo, kTerms>(block, row, r);
    half_row<false, kTwo, kTerms>(block, row, r);
  });
  unpack_halves(s);
}

void fused_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const bool half = rounding.half_output;
  if (rounding.two_sums) return (half ? half_steps<true> : fused_steps<true>)(s, rounding);
  if (s.terms == kShortStep)
    return (half ? half_steps<false, kShortStep> : fused_steps<false, kShortStep>)(s, rounding);
  (half ? half_steps<false> : fused_steps<false>)(s, rounding);
}

template <bool kShort, int kTerms = 0>
void two_stage_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  // The short form wants to know where c is too large for the unit of the sums.
  const int bias = kShort ? kBias + kBitsOfC - r.alignment_fraction_bits : kBias;
  for_rows<1, kTerms>(s, kWordExponentFloor, bias, [&](const auto& block, const Row& row) HWY_ATTR {
    two_stage_row<kShort, kTerms>(block, row, r);
  });
}
void two_stage_words(const StepBlock<float>& s, const WordRounding& rounding) {
  if (!rounding.short_second_stage) return two_stage_steps<false>(s, rounding);
  (s.terms == kShortStep ? two_stage_steps<true, kShortStep> : two_stage_steps<true>)(s, rounding);
}
void even_odd_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  for_rows<2, 0>(s, kWordExponentFloor, kBias,
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
