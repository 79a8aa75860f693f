#include "fp8lab/gemm/kernels.hpp"

#include "fp8lab/accumulate/accumulate.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/sum_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

/// The sum p + c as a double that rounds to binary32 as the exact sum would:
/// truncated, and with its lowest bit set where bits were lost (round to odd).
/// Needs rounding toward zero.
HWY_INLINE Vector<double> add_to_odd(Vector<double> p, Vector<double> c) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto sum = hn::Add(p, c);
  const auto lossless = hn::And(hn::Eq(hn::Sub(sum, p), c), hn::Eq(hn::Sub(sum, c), p));
  const auto odd = hn::BitCast(d, hn::Or(hn::BitCast(du, sum), hn::Set(du, std::uint64_t{1})));
  return hn::IfThenElse(lossless, sum, odd);
}

/// Binary64 to 24 significant bits, nearest even, whatever the rounding mode.
HWY_INLINE Vector<double> nearest_even_24(Vector<double> x) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<29>(bits), hn::Set(du, std::uint64_t{1}));
  const auto bias = hn::Add(odd, hn::Set(du, (std::uint64_t{1} << 28) - 1));
  const auto kept = hn::Set(du, ~((std::uint64_t{1} << 29) - 1));
  return hn::BitCast(d, hn::And(hn::Add(bits, bias), kept));
}

/// What an exact step makes of its sum, which was rounded to odd.
HWY_INLINE Vector<double> rounded(Vector<double> sum, const StepRounding& rounding) {
  const Tag<double> d;
  const Tag<std::uint64_t> du;
  const auto kept = hn::Set(du, ~((std::uint64_t{1} << (52 - rounding.output_fraction_bits)) - 1));
  const auto next = rounding.nearest_even ? nearest_even_24(sum)
                                          : hn::BitCast(d, hn::And(hn::BitCast(du, sum), kept));
  return hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), next);
}

template <int R>
HWY_INLINE void exact_rows(const StepBlock<double>& s, const StepRounding& rounding,
                           std::int64_t step, std::int64_t row) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  Vector<double> acc[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }
  multiply_add<double, R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                          s.b + step * s.terms * width, acc);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      double* state = s.state + (row + r) * width + v * lanes;
      hn::Store(rounded(add_to_odd(acc[r][v], hn::Load(d, state)), rounding), d, state);
    }
  }
}

void exact_steps(const StepBlock<double>& s, const StepRounding& rounding) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) exact_rows<kRows>(s, rounding, step, row);
    for (; row < s.rows; ++row) exact_rows<1>(s, rounding, step, row);
  }
}

// Both words of one row by one panel fill 16 registers with their operands.
constexpr int kTwoWordRows = HWY_TARGET == HWY_AVX2 ? 1 : 2;

/// Adds x, a multiple of the lowest unit, to a sum whose first word has `magic` added.
HWY_INLINE void add_to_words(Vector<double> x, Vector<double>& high, Vector<double>& low) {
  const auto next = hn::Add(high, x);
  low = hn::Add(low, hn::Sub(x, hn::Sub(next, high)));
  high = next;
}

/// high and low += a . b: what of a product the first word drops is exact, and
/// goes to the second.
template <int R>
HWY_INLINE void multiply_add_words(std::int64_t terms, const double* a, const double* b,
                                   Vector<double> (&high)[R][kVectors],
                                   Vector<double> (&low)[R][kVectors]) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t k = 0; k < terms; ++k) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto column = hn::Load(d, b + (k * kVectors + v) * lanes);
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto value = hn::Set(d, a[r * terms + k]);
        const auto next = hn::MulAdd(value, column, high[r][v]);
        low[r][v] = hn::Add(low[r][v], hn::MulSub(value, column, hn::Sub(next, high[r][v])));
        high[r][v] = next;
      }
    }
  }
}

template <int R>
HWY_INLINE void two_word_step_rows(const StepBlock<double>& s, const StepRounding& rounding,
                                   const TwoWords& words, std::int64_t step, std::int64_t row) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const auto magic = hn::Set(d, words.magic);
  double* state = s.state + row * width;
  Vector<double> high[R][kVectors];
  Vector<double> low[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      high[r][v] = magic;
      low[r][v] = hn::Zero(d);
      add_to_words(hn::Load(d, state + r * width + v * lanes), high[r][v], low[r][v]);
    }
  }
  multiply_add_words<R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                        s.b + step * s.terms * width, high, low);
  const auto nan = hn::NaN(d);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      double* c = state + r * width + v * lanes;
      const auto next = rounded(add_to_odd(hn::Sub(high[r][v], magic), low[r][v]), rounding);
      const auto in_range = hn::Lt(hn::Abs(hn::Load(d, c)), hn::Set(d, words.limit));
      hn::Store(hn::IfThenElse(in_range, next, nan), d, c);
    }
  }
}

void two_word_steps(const StepBlock<double>& s, const StepRounding& rounding,
                    const TwoWords& words) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kTwoWordRows <= s.rows; row += kTwoWordRows)
      two_word_step_rows<kTwoWordRows>(s, rounding, words, step, row);
    for (; row < s.rows; ++row) two_word_step_rows<1>(s, rounding, words, step, row);
  }
}

template <int R>
HWY_INLINE void two_word_sum_rows(const StepBlock<double>& s, const TwoWords& words,
                                  std::int64_t step, std::int64_t row) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const auto magic = hn::Set(d, words.magic);
  Vector<double> high[R][kVectors];
  Vector<double> low[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = (row + r) * width + v * lanes;
      high[r][v] = hn::Add(hn::Load(d, s.state + at), magic);
      low[r][v] = hn::Load(d, s.low_state + at);
    }
  }
  multiply_add_words<R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                        s.b + step * s.terms * width, high, low);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = (row + r) * width + v * lanes;
      hn::Store(hn::Sub(high[r][v], magic), d, s.state + at);
      hn::Store(low[r][v], d, s.low_state + at);
    }
  }
}

void two_word_sums(const StepBlock<double>& s, const TwoWords& words) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kTwoWordRows <= s.rows; row += kTwoWordRows)
      two_word_sum_rows<kTwoWordRows>(s, words, step, row);
    for (; row < s.rows; ++row) two_word_sum_rows<1>(s, words, step, row);
  }
}

template <typename T, int R>
HWY_INLINE void plain_rows(const StepBlock<T>& s, std::int64_t step, std::int64_t row) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  T* state = s.state + row * width;
  Vector<T> acc[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  multiply_add<T, R>(s.terms, s.a + (step * s.rows + row) * s.terms, s.b + step * s.terms * width,
                     acc);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, state + r * width + v * lanes);
  }
}

template <typename T>
void plain(const StepBlock<T>& s) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) plain_rows<T, kRows>(s, step, row);
    for (; row < s.rows; ++row) plain_rows<T, 1>(s, step, row);
  }
}

/// sum + scales * partial in the given order.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale_into(ScaleOrder order, V partial, V a_scale, V b_scale, V sum) {
  switch (order) {
    case ScaleOrder::product_then_fma:
      return hn::MulAdd(hn::Mul(a_scale, b_scale), partial, sum);
    case ScaleOrder::product_then_add:
      return hn::Add(sum, hn::Mul(hn::Mul(a_scale, b_scale), partial));
    case ScaleOrder::a_then_fma_b:
      return hn::MulAdd(hn::Mul(partial, a_scale), b_scale, sum);
    case ScaleOrder::b_then_fma_a:
      return hn::MulAdd(hn::Mul(partial, b_scale), a_scale, sum);
    case ScaleOrder::a_then_b_then_add:
      break;
  }
  return hn::Add(sum, hn::Mul(hn::Mul(partial, a_scale), b_scale));
}

void combine(const Combine& c, std::int64_t width) {
  const Tag<float> d;
  const auto nan = hn::BitCast(d, hn::Set(Tag<std::uint32_t>(), kCanonicalNan));
  const auto a_scale = hn::Set(d, c.a_scale);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < width; j += lanes) {
    const auto partial = hn::LoadU(d, c.partial + j);
    auto sum = hn::LoadU(d, c.final + j);
    if (c.scale_b == nullptr)
      sum = hn::Add(sum, partial);
    else
      sum = scale_into<Tag<float>>(c.order, partial, a_scale, hn::LoadU(d, c.scale_b + j), sum);
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), nan, sum), d, c.final + j);
  }
}

/// Accumulators of fused steps as binary32, without the mark in their lowest bits.
HWY_INLINE Vector<float> without_mark(const float* state, bool marked) {
  const Tag<float> d;
  const Tag<std::uint32_t> du;
  const auto bits = hn::BitCast(du, hn::Load(d, state));
  return hn::BitCast(d, hn::AndNot(hn::Set(du, marked ? 1u : 0u), bits));
}
HWY_INLINE hn::Vec<hn::Rebind<float, Tag<double>>> without_mark(const double* state,
                                                                bool /*marked*/) {
  return hn::DemoteTo(hn::Rebind<float, Tag<double>>(), hn::Load(Tag<double>(), state));
}

/// The same of state `i` of a promotion, with the sign of zero that it asks for: adding -0 changes
/// nothing, adding +0 makes -0 +0.
template <class P>
HWY_INLINE auto load_fused(const P& p, std::int64_t i) {
  const auto sum = without_mark(p.state + i, p.marked);
  const hn::DFromV<decltype(sum)> d;
  return hn::Add(sum, hn::Set(d, p.positive_zero ? 0.0F : -0.0F));
}

/// x + y to nearest even. FP16's sum goes through binary32, whose bits are enough for two roundings
/// to be one.
template <bool kHalf, class D>
HWY_INLINE hn::Vec<D> add_nearest(D d, hn::Vec<D> x, hn::Vec<D> y) {
  const auto sum = hn::Add(x, y);
  if constexpr (!kHalf) return sum;
  return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), sum));
}

template <typename T, bool kHalf>
void promote_to(const Promotion<T>& p) {
  const Tag<T> d;
  const hn::Rebind<float, Tag<T>> df;
  const auto nan = hn::BitCast(df, hn::Set(hn::Rebind<std::uint32_t, Tag<T>>(), kCanonicalNan));
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < p.count; i += lanes) {
    auto sum = load_fused(p, i);
    if (p.first != nullptr) sum = add_nearest<kHalf>(df, hn::LoadU(df, p.first + i), sum);
    sum = add_nearest<kHalf>(df, hn::LoadU(df, p.final + i), sum);
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), nan, sum), df, p.final + i);
    hn::Store(hn::Zero(d), d, p.state + i);
  }
}

template <typename T>
void promote_scaled(const ScaledPromotion<T>& p) {
  const Tag<T> d;
  const hn::Rebind<float, Tag<T>> df;
  const auto nan = hn::BitCast(df, hn::Set(hn::Rebind<std::uint32_t, Tag<T>>(), kCanonicalNan));
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const auto a_scale = hn::Set(df, p.scale_a[r]);
    for (std::int64_t j = 0; j < p.width; j += lanes) {
      const std::int64_t i = r * p.width + j;
      const auto sum = scale_into<hn::Rebind<float, Tag<T>>>(p.order, load_fused(p, i), a_scale,
                                                             hn::LoadU(df, p.scale_b + j),
                                                             hn::LoadU(df, p.final + i));
      hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), nan, sum), df, p.final + i);
      hn::Store(hn::Zero(d), d, p.state + i);
    }
  }
}

template <typename T>
void stash(const Promotion<T>& p) {
  const Tag<T> d;
  const hn::Rebind<float, Tag<T>> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < p.count; i += lanes) {
    hn::StoreU(load_fused(p, i), df, p.first + i);
    hn::Store(hn::Zero(d), d, p.state + i);
  }
}

template <typename T>
void promote(const Promotion<T>& p) {
  if (p.stash)
    stash(p);
  else if (p.to_half)
    promote_to<T, true>(p);
  else
    promote_to<T, false>(p);
}

/// A sum that was rounded to odd as binary32, nearest even; zeros are +0.
HWY_INLINE void store_rounded(Vector<double> sum, float* out) {
  const hn::Rebind<float, Tag<double>> df;
  const auto rounded = hn::DemoteTo(df, nearest_even_24(sum));
  hn::StoreU(hn::IfThenElse(hn::Eq(rounded, hn::Zero(df)), hn::Zero(df), rounded), df, out);
}

void round_exact(const double* sum, const float* c, float* out, std::int64_t count) {
  const Tag<double> d;
  const hn::Rebind<float, Tag<double>> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes)
    store_rounded(add_to_odd(hn::LoadU(d, sum + i), hn::PromoteTo(d, hn::LoadU(df, c + i))),
                  out + i);
}

void round_two_words(const double* high, const double* low, const float* c, const TwoWords& words,
                     float* out, std::int64_t count) {
  const Tag<double> d;
  const hn::Rebind<float, Tag<double>> df;
  const auto magic = hn::Set(d, words.magic);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    auto first = hn::Add(hn::LoadU(d, high + i), magic);
    auto second = hn::LoadU(d, low + i);
    add_to_words(hn::PromoteTo(d, hn::LoadU(df, c + i)), first, second);
    store_rounded(add_to_odd(hn::Sub(first, magic), second), out + i);
  }
}

/// Of R rows from `row` on. An addition waits for the one before: the terms of a step are dealt to
/// several sums.
template <int R>
HWY_INLINE void line_rows(const LineSums& s, std::int64_t row) {
  constexpr int kSums = R == 1 ? 4 : 2;
  const Tag<double> d;
  const hn::Rebind<float, Tag<double>> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<double> sum[R][kSums];
  for (std::int64_t step = 0; step < s.steps; ++step) {
    const double* a = s.a + (step * s.rows + row) * kLineTerms;
    const float* b = s.b + step * kLineTerms;
    if (step == 0 || !s.together) {
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        FP8LAB_UNROLL
        for (int i = 0; i < kSums; ++i) sum[r][i] = hn::Zero(d);
      }
    }
    for (std::int64_t t = 0; t < kLineTerms; t += kSums * lanes) {
      FP8LAB_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const auto x = hn::PromoteTo(d, hn::LoadU(df, b + t + i * lanes));
        FP8LAB_UNROLL
        for (int r = 0; r < R; ++r)
          sum[r][i] = hn::MulAdd(hn::LoadU(d, a + r * kLineTerms + t + i * lanes), x, sum[r][i]);
      }
    }
    if (s.together && step + 1 < s.steps) continue;
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      auto all = hn::Add(sum[r][0], sum[r][1]);
      if constexpr (kSums == 4) all = hn::Add(all, hn::Add(sum[r][2], sum[r][3]));
      s.to[(row + r) * s.row_stride + (s.together ? 0 : step) * s.step_stride] =
          hn::GetLane(hn::SumOfLanes(d, all));
    }
  }
}

void line_sums(const LineSums& from) {
  const LineSums s = from;  // what is stored might be part of `from` for the compiler
  std::int64_t row = 0;
  for (; row + 4 <= s.rows; row += 4) line_rows<4>(s, row);
  for (; row + 2 <= s.rows; row += 2) line_rows<2>(s, row);
  for (; row < s.rows; ++row) line_rows<1>(s, row);
}

const SumKernels* sum_kernels() {
  static const SumKernels kTable{exact_steps,           round_exact,     two_word_steps,
                                 two_word_sums,         round_two_words, plain<float>,
                                 plain<double>,         line_sums,       combine,
                                 promote<float>,        promote<double>, promote_scaled<float>,
                                 promote_scaled<double>};
  return &kTable;
}

#else
const SumKernels* sum_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(SumKernels, sum_kernels)

}  // namespace fp8lab::gemm_detail
#endif
