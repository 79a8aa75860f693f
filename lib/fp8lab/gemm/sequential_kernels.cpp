#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/gemm/kernels.hpp"
#include "hwy/cache_control.h"

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

/// Whether units beside those that multiply add: there the operation that a short sum saves costs
/// more than two additions. Most processors do so with 256 bits (AMD's, Intel's from 2021 on),
/// AMD's with 512 bits too; Intel's share two units then.
bool adds_beside() {
#if HWY_TARGET == HWY_AVX2
  return true;
#elif HWY_TARGET <= HWY_AVX3
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

/// The same of short sums.
struct NearestOfShort {
  Nearest nearest;
  HWY_INLINE Vector<double> operator()(Vector<double> a, Vector<double> b, Vector<double> c) const {
    return nearest.round_short(hn::MulAdd(a, b, c));
  }
};

/// The same of products that are rounded, too.
struct NearestOfRounded {
  Nearest product;
  Nearest sum;
  HWY_INLINE Vector<double> operator()(Vector<double> a, Vector<double> b, Vector<double> c) const {
    return sum.round(hn::Add(product.round_short(hn::Mul(a, b)), c));
  }
};

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

/// The terms [first, first + count) of one step of R rows. `at(r, k)` is what row r's term k meets:
/// a number, and where the columns' numbers are.
template <int R, typename T, class Operands, class Add>
HWY_INLINE void add_terms(std::int64_t count, const Operands& at, const Add& add, T* state) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  Vector<T> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  for (std::int64_t k = 0; k < count; ++k) {
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto [a, b] = at(r, k);
      const auto value = hn::Set(d, a);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = add(value, hn::Load(d, b + v * lanes), sum[r][v]);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, state + r * width + v * lanes);
  }
}

template <typename T>
struct Operand {
  T a;
  const T* b;
};

template <int R, typename T, class Add>
HWY_INLINE void sequential_rows(const StepBlock<T>& s, const Add& add, std::int64_t step,
                                std::int64_t row) {
  const std::int64_t width = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors;
  const std::int64_t terms = s.terms;
  const T* a = s.a + (step * s.rows + row) * terms;
  const T* b = s.b + step * terms * width;
  const auto at = [=](int r, std::int64_t k) HWY_ATTR {
    return Operand<T>{a[r * terms + k], b + k * width};
  };
  add_terms<R>(terms, at, add, s.state + row * width);
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

// Products rounded to few bits, of an A whose numbers have few significands: a product is that of
// the significand, rounded once for all rows, times a power of two, which the FMA multiplies by.
constexpr int kSignificands = 8;
constexpr int kSignificandBits = 3;
constexpr std::int64_t kLeastRowsOfProducts = 8;
constexpr std::int64_t kRowsOfProducts = 64;  // that are split at a time

/// The rounded products of each significand with a step's terms: [term][significand][width].
HWY_INLINE void round_products(std::int64_t terms, const double* b, int fraction_bits, double* to) {
  const Tag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const double power = std::ldexp(1.0, 52 - fraction_bits);
  for (std::int64_t k = 0; k < terms; ++k, b += lanes * kVectors)
    for (int m = 0; m < kSignificands; ++m, to += lanes * kVectors) {
      // Splitting as Nearest does; the factors are multiplied first, exactly.
      const double significand = 1.0 + static_cast<double>(m) / kSignificands;
      const auto more = hn::Set(d, significand * (power + 1.0));
      const auto less = hn::Set(d, significand * power);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const auto x = hn::Load(d, b + v * lanes);
        hn::Store(hn::NegMulAdd(less, x, hn::Mul(more, x)), d, to + v * lanes);
      }
    }
}

/// Numbers of A as powers of two, signs included, and where the products of their significands are.
struct SplitNumbers {
  HWY_ALIGN double power[kRowsOfProducts * kTermsOfProducts];
  HWY_ALIGN std::int64_t place[kRowsOfProducts * kTermsOfProducts];

  HWY_INLINE void split(std::int64_t rows, std::int64_t terms, std::int64_t width,
                        const double* a) {
    constexpr std::int64_t kFraction = (std::int64_t{1} << 52) - 1;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < terms; ++k) {
        const std::int64_t i = r * terms + k;
        const auto bits = std::bit_cast<std::int64_t>(a[i]);
        power[i] = std::bit_cast<double>(bits & ~kFraction);
        place[i] = (k * kSignificands + ((bits & kFraction) >> (52 - kSignificandBits))) * width;
      }
  }
};

template <int R, class Add>
HWY_INLINE void add_rounded(const SplitNumbers& a, std::int64_t row, std::int64_t terms,
                            const double* products, const Add& add, double* state) {
  const std::int64_t width = static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors;
  const double* power = a.power + row * terms;
  const std::int64_t* place = a.place + row * terms;
  const auto at = [=](int r, std::int64_t k) HWY_ATTR {
    const std::int64_t i = r * terms + k;
    return Operand<double>{power[i], products + place[i]};
  };
  add_terms<R>(terms, at, add, state + row * width);
}

/// What the next step reads of A meanwhile.
HWY_INLINE void prefetch(const double* a, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(double);
  for (std::int64_t i = 0; i < count; i += kLine) hwy::Prefetch(a + i);
}

template <class Add>
void sums_of_rounded(const StepBlock<double>& from, int fraction_bits, const Add& add) {
  const StepBlock<double> s = from;  // what is stored might be part of `from` for the compiler
  const std::int64_t width = static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors;
  HWY_ALIGN double products[kTermsOfProducts * kSignificands * kMaxWidth / 2];
  SplitNumbers a;
  for (std::int64_t step = 0; step < s.steps; ++step) {
    round_products(s.terms, s.b + step * s.terms * width, fraction_bits, products);
    for (std::int64_t first = 0; first < s.rows; first += kRowsOfProducts) {
      const std::int64_t rows = std::min(kRowsOfProducts, s.rows - first);
      double* state = s.state + first * width;
      const double* numbers = s.a + (step * s.rows + first) * s.terms;
      a.split(rows, s.terms, width, numbers);
      std::int64_t row = 0;
      for (; row + kSumRows <= rows; row += kSumRows) {
        prefetch(numbers + (rows + row) * s.terms, kSumRows * s.terms);
        add_rounded<kSumRows>(a, row, s.terms, products, add, state);
      }
      for (; row < rows; ++row) add_rounded<1>(a, row, s.terms, products, add, state);
    }
  }
}

void nearest_double(const StepBlock<double>& s, const SequentialRounding& rounding) {
  const Nearest nearest(rounding.fraction_bits);
  const NearestOfShort of_short{nearest};
  const int product_bits = rounding.product_fraction_bits;
  const bool short_sums = rounding.short_sums && !adds_beside();
  if (product_bits < 0) return short_sums ? sequential(s, of_short) : sequential(s, nearest);
  if (rounding.few_significands && s.terms <= kTermsOfProducts && s.rows >= kLeastRowsOfProducts)
    return short_sums ? sums_of_rounded(s, product_bits, of_short)
                      : sums_of_rounded(s, product_bits, nearest);
  sequential(s, NearestOfRounded{Nearest(product_bits), nearest});
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
