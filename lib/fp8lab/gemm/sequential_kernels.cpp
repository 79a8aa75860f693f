#include <cmath>

#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/sequential_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

// A sum waits for the one before, roundings included: 16 registers hold the sums of three rows.
constexpr int kSumRows = HWY_TARGET == HWY_AVX2 ? 3 : 4;

// What follows rounds one binary64 (or binary32) sum c + a * b after the other; docs/lab/gemm.md,
// "Sequential sums", says why each is exact.

/// Toward zero. Needs rounding toward zero.
template <typename T>
class Truncated {
 public:
  explicit Truncated(int fraction_bits)
      : kept_(~((Word<T>{1} << (kMantissaBits<T> - fraction_bits)) - 1)) {}
  HWY_INLINE Vector<T> operator()(Vector<T> a, Vector<T> b, Vector<T> c) const {
    const Tag<T> d;
    const Tag<Word<T>> du;
    return hn::BitCast(d, hn::And(hn::BitCast(du, hn::MulAdd(a, b, c)), hn::Set(du, kept_)));
  }

 private:
  Word<T> kept_;
};

/// Nearest even by Veltkamp's splitting. Needs rounding to nearest.
class Nearest {
 public:
  explicit Nearest(int fraction_bits)
      : factor_(static_cast<double>((std::uint64_t{1} << (52 - fraction_bits)) + 1)) {}
  [[nodiscard]] HWY_INLINE Vector<double> round(Vector<double> x) const {
    const auto large = hn::Mul(x, hn::Set(Tag<double>(), factor_));
    return hn::Add(hn::Sub(x, large), large);
  }
  /// Of vectors whose operations take turns: those of one would wait for each other.
  HWY_INLINE void round_all(const Vector<double> (&x)[kVectors],
                            Vector<double> (&to)[kVectors]) const {
    const auto factor = hn::Set(Tag<double>(), factor_);
    Vector<double> large[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) large[v] = hn::Mul(x[v], factor);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) to[v] = hn::Sub(x[v], large[v]);
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) to[v] = hn::Add(to[v], large[v]);
  }
  /// The same of x with fewer than 53 bits, where it is one operation less: a product of FP8.
  [[nodiscard]] HWY_INLINE Vector<double> round_short(Vector<double> x) const {
    const Tag<double> d;
    return hn::NegMulAdd(x, hn::Set(d, factor_ - 1.0), hn::Mul(x, hn::Set(d, factor_)));
  }
  HWY_INLINE Vector<double> operator()(Vector<double> a, Vector<double> b, Vector<double> c) const {
    return round(hn::MulAdd(a, b, c));
  }

 private:
  double factor_;
};

/// The same of products that are rounded, too.
struct NearestOfRounded {
  Nearest product;
  Nearest sum;
  HWY_INLINE Vector<double> operator()(Vector<double> a, Vector<double> b, Vector<double> c) const {
    return sum.round(hn::Add(product.round_short(hn::Mul(a, b)), c));
  }
};

// Sums of rounded products take more registers a sum.
constexpr std::int64_t kMostRoundedTerms = 32;
constexpr int kRoundedRows = HWY_TARGET == HWY_AVX2 ? 2 : 4;

/// One step of R rows as NearestOfRounded, of A with so few bits that a * (2^s + 1), which
/// multiplies no column of B alone, is exact: two operations less a product.
template <int R>
HWY_INLINE void rounded_rows(const StepBlock<double>& s, const SequentialRounding& rounding,
                             std::int64_t step, std::int64_t row) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const std::int64_t terms = s.terms;
  const double power = std::ldexp(1.0, 52 - rounding.product_fraction_bits);
  const Nearest nearest(rounding.fraction_bits);
  const double* a = s.a + (step * s.rows + row) * terms;
  const double* b = s.b + step * terms * width;
  double* state = s.state + row * width;
  HWY_ALIGN double large[R * kMostRoundedTerms];  // a (2^s + 1)
  HWY_ALIGN double rest[R * kMostRoundedTerms];   // a 2^s
  for (std::int64_t i = 0; i < R * terms; ++i) {
    large[i] = a[i] * (power + 1.0);
    rest[i] = a[i] * power;
  }
  Vector<double> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  for (std::int64_t k = 0; k < terms; ++k) {
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto more = hn::Set(d, large[r * terms + k]);
      const auto less = hn::Set(d, rest[r * terms + k]);
      Vector<double> next[kVectors];
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        next[v] = hn::Mul(more, hn::Load(d, b + k * width + v * lanes));
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        next[v] = hn::NegMulAdd(less, hn::Load(d, b + k * width + v * lanes), next[v]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) next[v] = hn::Add(next[v], sum[r][v]);
      nearest.round_all(next, sum[r]);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, state + r * width + v * lanes);
  }
}

/// Nearest even of a sum rounded to odd. Needs rounding toward zero.
class NearestOfOdd {
 public:
  explicit NearestOfOdd(int fraction_bits) : dropped_(52 - fraction_bits) {}
  HWY_INLINE Vector<double> operator()(Vector<double> a, Vector<double> b, Vector<double> c) const {
    const Tag<double> d;
    const Tag<std::uint64_t> du;
    const auto one = hn::Set(du, std::uint64_t{1});
    const auto sum = hn::MulAdd(a, b, c);
    const auto inexact = hn::Ne(hn::MulSub(a, b, sum), hn::Neg(c));
    const auto odd =
        hn::Or(hn::BitCast(du, sum), hn::IfThenElseZero(hn::RebindMask(du, inexact), one));
    const auto even = hn::Add(hn::And(hn::ShiftRightSame(odd, dropped_), one),
                              hn::Set(du, (std::uint64_t{1} << (dropped_ - 1)) - 1));
    const auto kept = hn::Set(du, ~((std::uint64_t{1} << dropped_) - 1));
    return hn::BitCast(d, hn::And(hn::Add(odd, even), kept));
  }

 private:
  int dropped_;
};

template <int R, typename T, class Add>
HWY_INLINE void sequential_rows(const StepBlock<T>& s, const Add& add, std::int64_t step,
                                std::int64_t row) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const std::int64_t terms = s.terms;
  const T* a = s.a + (step * s.rows + row) * terms;
  const T* b = s.b + step * terms * width;
  T* state = s.state + row * width;
  Vector<T> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  for (std::int64_t k = 0; k < terms; ++k) {
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto value = hn::Set(d, a[r * terms + k]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = add(value, hn::Load(d, b + k * width + v * lanes), sum[r][v]);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, state + r * width + v * lanes);
  }
}

template <typename T, class Add>
void sequential(const StepBlock<T>& s, const Add& add) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kSumRows <= s.rows; row += kSumRows) sequential_rows<kSumRows>(s, add, step, row);
    for (; row < s.rows; ++row) sequential_rows<1>(s, add, step, row);
  }
}

void truncated_float(const StepBlock<float>& s, const SequentialRounding& rounding) {
  sequential(s, Truncated<float>(rounding.fraction_bits));
}

void truncated_double(const StepBlock<double>& s, const SequentialRounding& rounding) {
  sequential(s, Truncated<double>(rounding.fraction_bits));
}

void rounded(const StepBlock<double>& s, const SequentialRounding& rounding) {
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRoundedRows <= s.rows; row += kRoundedRows)
      rounded_rows<kRoundedRows>(s, rounding, step, row);
    for (; row < s.rows; ++row) rounded_rows<1>(s, rounding, step, row);
  }
}

void nearest_double(const StepBlock<double>& s, const SequentialRounding& rounding) {
  const Nearest nearest(rounding.fraction_bits);
  if (rounding.product_fraction_bits < 0)
    sequential(s, nearest);
  else if (rounding.short_a && s.terms <= kMostRoundedTerms)
    rounded(s, rounding);
  else
    sequential(s, NearestOfRounded{Nearest(rounding.product_fraction_bits), nearest});
}

void nearest_of_odd_double(const StepBlock<double>& s, const SequentialRounding& rounding) {
  sequential(s, NearestOfOdd(rounding.fraction_bits));
}

const SequentialKernels* sequential_kernels() {
  static const SequentialKernels kTable{truncated_float, truncated_double, nearest_double,
                                        nearest_of_odd_double};
  return &kTable;
}

#else
const SequentialKernels* sequential_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(SequentialKernels, sequential_kernels)

}  // namespace fp8lab::gemm_detail
#endif
