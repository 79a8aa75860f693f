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

/// Of exponents as binary32 has them.
constexpr int kBias = 127;

/// Biased exponents of what products are multiplied by, 2^(fraction_bits - largest), as bytes: 29
/// or more, since exponents are at most 121 here, and at most 252.
HWY_INLINE void store_scales(Vector<std::int8_t> largest, int fraction_bits, std::uint8_t* to) {
  const Tag<std::int8_t> d;
  const auto of_one = hn::Set(d, static_cast<std::int8_t>(kBias + fraction_bits));
  hn::Store(hn::BitCast(Tag<std::uint8_t>(), hn::Sub(of_one, largest)), Tag<std::uint8_t>(), to);
}

HWY_INLINE Vector<float> load_scales(const std::uint8_t* from) {
  const Words d;
  const hn::Rebind<std::uint8_t, Words> d8;
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::PromoteTo(d, hn::Load(d8, from))));
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

/// Rows whose scales are found before the first of them multiplies: it would wait for its own
/// otherwise.
constexpr std::int64_t kRowsAhead = 8;

/// What products of a row ahead are multiplied by, as biased exponents, a byte a column: of all
/// terms or of two groups. Of an FP16 row of normal numbers, with what c brings.
struct Scales {
  HWY_ALIGN std::uint8_t of[2][kMaxWidth];
  bool normal = false;
};

/// One row's operands of one step.
struct Row {
  const float* a;
  const std::uint32_t* a_exponents;
  const float* b;
  const std::uint8_t* b_exponents;
  float* state;

  HWY_INLINE Row(const StepBlock<float>& s, std::int64_t step, std::int64_t row) {
    const auto width = static_cast<std::int64_t>(hn::Lanes(Floats())) * kVectors;
    const std::int64_t at = (step * s.rows + row) * s.terms;
    a = s.a + at;
    a_exponents = s.a_exponents + at;
    b = s.b + step * s.terms * width;
    b_exponents = s.b_exponents + step * s.terms * width;
    state = s.state + row * width;
  }
};

/// The largest exponents of one row's products with the panel: of every `kGroups`th term from
/// `first` on.
template <int kGroups>
HWY_INLINE Vector<std::int8_t> largest_exponents(std::int64_t first, std::int64_t terms, int floor,
                                                 const Row& r) {
  const Tag<std::int8_t> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, static_cast<std::int8_t>(floor));
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = first; k < terms; k += kGroups) {
    const auto of_b = hn::BitCast(d, hn::Load(Tag<std::uint8_t>(), r.b_exponents + k * width));
    most = hn::Max(most, hn::SaturatedAdd(of_b, hn::BitCast(d, hn::Set(d32, r.a_exponents[k]))));
  }
  return most;
}

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
HWY_INLINE void fused_row(const StepBlock<float>& s, const Row& r, const Scales& scales,
                          const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::Load(d, r.state + v * lanes);
    const auto of_products = load_scales(scales.of[0] + v * lanes);
    scale[v] = scale_with(of_products, field_of(c), rounding.alignment_fraction_bits);
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

/// The exponent fields of a row's sums, times 4, as bytes.
HWY_INLINE Vector<std::uint8_t> half_fields(const float* state) {
  const Tag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(state);
  const auto upper = hn::ConcatOdd(d, hn::Load(d, bytes + lanes), hn::Load(d, bytes));
  return hn::And(upper, hn::Set(d, std::uint8_t{0x7c}));
}

/// Whether all of these are of normal numbers, which a field of 0 or 31 is not.
HWY_INLINE bool are_normal(Vector<std::uint8_t> fields) {
  const Tag<std::uint8_t> d;
  const auto next = hn::Add(fields, hn::Set(d, std::uint8_t{4}));
  const auto above_one = hn::Set(d, std::uint8_t{0x78});
#if FP8LAB_ROUNDS_IN_REGISTERS
  return _mm512_testn_epi8_mask(next.raw, above_one.raw) == 0;
#else
  return hn::AllFalse(d, hn::Eq(hn::And(next, above_one), hn::Zero(d)));
#endif
}

/// The scales of a row of FP16 numbers.
HWY_INLINE void find_half_scales(Vector<std::int8_t> largest, const Row& r, int fraction_bits,
                                 Scales& to) {
  constexpr std::int8_t kHalfBias = 15;
  const Tag<std::int8_t> d;
  const Tag<std::uint16_t> d16;
  const auto fields = half_fields(r.state);
  to.normal = are_normal(fields);
  const auto biased = hn::BitCast(d, hn::ShiftRight<2>(hn::BitCast(d16, fields)));
  const auto with_c = hn::Max(largest, hn::Sub(biased, hn::Set(d, kHalfBias)));
  store_scales(to.normal ? with_c : largest, fraction_bits, to.of[0]);
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
HWY_INLINE void half_row(const StepBlock<float>& s, const Row& r, const Scales& scales,
                         const WordRounding& rounding) {
  const Floats d;
  const Half dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  Vector<std::int32_t> rest[kVectors];
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto c = hn::PromoteTo(d, hn::Load(dh, halves_of(r.state) + v * lanes));
    scale[v] = load_scales(scales.of[0] + v * lanes);
    if constexpr (!kNormal)
      scale[v] =
          scale_with(scale[v], alignment_of_c<true>(c, rounding), rounding.alignment_fraction_bits);
    sum[v] = truncated(hn::Mul(c, scale[v]));
  }
  add_row<kTwo, kTerms>(s, r, scale, sum, rest);
  Vector<float> odd[kVectors];
  odd_results<kTwo>(sum, rest, scale, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v)
    store_halves<kNormal>(hn::DemoteTo(dh, odd[v]), halves_of(r.state) + v * lanes);
}

/// The sums of every `kGroups`th product from `first` on, times their scale.
template <int kGroups>
HWY_INLINE void first_stage(const Row& r, std::int64_t first, std::int64_t terms,
                            const Vector<float> (&scale)[kVectors],
                            Vector<std::int32_t> (&sum)[kVectors]) {
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(Words());
  // There may be no second term.
  if constexpr (kGroups == 1) multiply_term(r.a + first++, r.b, scale, sum);
  add_products<kGroups>(first, terms, r.a, r.b, scale, sum);
}

HWY_INLINE void load_row(const std::uint8_t* from, Vector<float> (&to)[kVectors]) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) to[v] = load_scales(from + v * lanes);
}

/// From what products are multiplied by to the field of their alignment.
HWY_INLINE Vector<std::int32_t> alignment_of(Vector<float> scale, int fraction_bits) {
  const Words d;
  return hn::Sub(hn::Set(d, field(254 + fraction_bits)), hn::BitCast(d, scale));
}

template <bool kShort, int kTerms>
HWY_INLINE void two_stage_row(const StepBlock<float>& s, const Row& r, const Scales& scales,
                              const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale[kVectors];
  Vector<std::int32_t> sum[kVectors];
  load_row(scales.of[0], scale);
  first_stage<1>(r, 0, terms_of<kTerms>(s), scale, sum);
  if constexpr (kShort) {
    Vector<float> scale_of_c[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v)
      scale_of_c[v] = scale_with(scale[v], field_of(hn::Load(d, r.state + v * lanes)), kBitsOfC);
    short_second_stages<Vector<float>>(sum, scale, scale_of_c, r.state);
    return;
  }
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    const auto e = alignment_of(scale[v], rounding.alignment_fraction_bits);
    hn::Store(second_stage<false>(sum[v], e, hn::Load(d, c), rounding), d, c);
  }
}

HWY_INLINE void even_odd_row(const StepBlock<float>& s, const Row& r, const Scales& scales,
                             const WordRounding& rounding) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<float> scale_even[kVectors];
  Vector<float> scale_odd[kVectors];
  Vector<std::int32_t> even[kVectors];
  Vector<std::int32_t> odd[kVectors];
  load_row(scales.of[0], scale_even);
  load_row(scales.of[1], scale_odd);
  const int fraction_bits = rounding.alignment_fraction_bits;
  first_stage<2>(r, 0, s.terms, scale_even, even);
  first_stage<2>(r, 1, s.terms, scale_odd, odd);
  FP8LAB_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    float* c = r.state + v * lanes;
    hn::Store(even_odd_result(even[v], odd[v], alignment_of(scale_even[v], fraction_bits),
                              alignment_of(scale_odd[v], fraction_bits), hn::Load(d, c), rounding),
              d, c);
  }
}

/// ahead(block, row, its scales) and then one_row(block, row, its scales) of every step and row.
template <class Ahead, class OneRow>
HWY_INLINE void for_rows(const StepBlock<float>& from, const Ahead& ahead, const OneRow& one_row) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  Scales scales[kRowsAhead];
  for (std::int64_t step = 0; step < s.steps; ++step)
    for (std::int64_t first = 0; first < s.rows; first += kRowsAhead) {
      const std::int64_t rows = std::min(kRowsAhead, s.rows - first);
      for (std::int64_t i = 0; i < rows; ++i) ahead(s, Row(s, step, first + i), scales[i]);
      for (std::int64_t i = 0; i < rows; ++i) one_row(s, Row(s, step, first + i), scales[i]);
    }
}

template <bool kTwo, int kTerms = 0>
void fused_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  const auto ahead = [&](const auto& block, const Row& row, Scales& to) HWY_ATTR {
    const auto largest = largest_exponents<1>(0, terms_of<kTerms>(block), r.exponent_floor, row);
    store_scales(largest, r.alignment_fraction_bits, to.of[0]);
  };
  for_rows(s, ahead, [&](const auto& block, const Row& row, const Scales& scales) HWY_ATTR {
    fused_row<kTwo, kTerms>(block, row, scales, r);
  });
}
template <bool kTwo, int kTerms = 0>
void half_steps(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  const auto ahead = [&](const auto& block, const Row& row, Scales& to) HWY_ATTR {
    const auto largest = largest_exponents<1>(0, terms_of<kTerms>(block), r.exponent_floor, row);
    find_half_scales(largest, row, r.alignment_fraction_bits, to);
  };
  pack_halves(s);
  for_rows(s, ahead, [&](const auto& block, const Row& row, const Scales& scales) HWY_ATTR {
    if (scales.normal) return half_row<true, kTwo, kTerms>(block, row, scales, r);
    half_row<false, kTwo, kTerms>(block, row, scales, r);
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
  const auto ahead = [&](const auto& block, const Row& row, Scales& to) HWY_ATTR {
    const auto largest = largest_exponents<1>(0, terms_of<kTerms>(block), kWordExponentFloor, row);
    store_scales(largest, r.alignment_fraction_bits, to.of[0]);
  };
  for_rows(s, ahead, [&](const auto& block, const Row& row, const Scales& scales) HWY_ATTR {
    two_stage_row<kShort, kTerms>(block, row, scales, r);
  });
}
void two_stage_words(const StepBlock<float>& s, const WordRounding& rounding) {
  if (!rounding.short_second_stage) return two_stage_steps<false>(s, rounding);
  (s.terms == kShortStep ? two_stage_steps<true, kShortStep> : two_stage_steps<true>)(s, rounding);
}
void even_odd_words(const StepBlock<float>& s, const WordRounding& rounding) {
  const WordRounding r = rounding;
  const auto ahead = [&](const auto& block, const Row& row, Scales& to) HWY_ATTR {
    for (int group = 0; group < 2; ++group) {
      const auto largest = largest_exponents<2>(group, block.terms, kWordExponentFloor, row);
      store_scales(largest, r.alignment_fraction_bits, to.of[group]);
    }
  };
  for_rows(s, ahead, [&](const auto& block, const Row& row, const Scales& scales) HWY_ATTR {
    even_odd_row(block, row, scales, r);
  });
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
