#include <algorithm>

#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/checked_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Doubles = Tag<double>;
using Bits = Tag<std::uint64_t>;

constexpr int kCheckedRows = 2;             // their sums wait for each other's roundings
constexpr std::int64_t kCheckedTerms = 32;  // between two looks at the processor's flag

/// The processor's own word on whether a result was rounded; where it takes long to read, none.
class InexactFlag {
 public:
#if HWY_ARCH_X86
  static constexpr bool kExists = true;
  static void clear() { _mm_setcsr(_mm_getcsr() & ~kFlag); }
  static bool raised() { return (_mm_getcsr() & kFlag) != 0; }

 private:
  static constexpr unsigned kFlag = 0x20;
#else
  static constexpr bool kExists = false;
  static void clear() {}
  static bool raised() { return true; }
#endif
};

/// Binary64 to 24 significant bits, nearest even, by integers: no flag is raised.
HWY_INLINE Vector<double> nearest_24(Vector<double> x) {
  const Bits d;
  const auto bits = hn::BitCast(d, x);
  const auto odd = hn::And(hn::ShiftRight<29>(bits), hn::Set(d, std::uint64_t{1}));
  const auto bias = hn::Add(odd, hn::Set(d, (std::uint64_t{1} << 28) - 1));
  const auto kept = hn::Set(d, ~((std::uint64_t{1} << 29) - 1));
  return hn::BitCast(Doubles(), hn::And(hn::Add(bits, bias), kept));
}

/// c += the rounded sum of a step's products, as if it were not rounded to binary64 before. The sum
/// with c may be: a second rounding of two numbers of 24 bits changes nothing.
template <int R>
HWY_INLINE void add_rounded_sums(std::int64_t terms, const double* a, const double* b,
                                 Vector<double> (&c)[R][kVectors]) {
  Vector<double> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(Doubles());
  }
  multiply_add<double, R>(terms, a, b, sum);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) c[r][v] = hn::Add(c[r][v], nearest_24(sum[r][v]));
  }
}

/// Whether a step's sum starts from c, or is rounded and then added to c.
enum class CEnters : std::uint8_t { first, last };

/// Some steps of some rows as if no sum of a step were rounded to binary64.
template <int R, CEnters kC>
HWY_NOINLINE void add_steps(const StepBlock<double>& s, std::int64_t first, std::int64_t last,
                            std::int64_t row, double* sums) {
  const Doubles d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const double* state = s.state + row * width;
  Vector<double> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  for (std::int64_t step = first; step < last; ++step) {
    const double* a = s.a + (step * s.rows + row) * s.terms;
    const double* b = s.b + step * s.terms * width;
    if constexpr (kC == CEnters::first)
      multiply_add<double, R>(s.terms, a, b, sum);
    else
      add_rounded_sums<R>(s.terms, a, b, sum);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = nearest_24(sum[r][v]);
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, sums + r * width + v * lanes);
  }
}

/// An exact sum in two words, of which the second is what the first has lost.
class ExactSum {
 public:
  HWY_INLINE explicit ExactSum(Vector<double> c) : high_(c), low_(hn::Zero(Doubles())) {}
  HWY_INLINE void add(Vector<double> x) { low_ = hn::Add(low_, add_to_high(x)); }
  /// To 24 bits: first to odd, from where a rounding to nearest is the only one.
  HWY_INLINE Vector<double> rounded() {
    const Bits d;
    const auto rest = add_to_high(low_);
    const auto bits = hn::BitCast(d, high_);
    const auto one = hn::Set(d, std::uint64_t{1});
    const auto zero = hn::Zero(Doubles());
    const auto even = hn::Eq(hn::And(bits, one), hn::Zero(d));
    const auto inexact = hn::RebindMask(d, hn::Ne(rest, zero));
    // Away from zero where the rest has the sum's sign, toward it else: up or down by one bit.
    const auto differs = hn::ShiftRight<63>(hn::Xor(bits, hn::BitCast(d, rest)));
    const auto change = hn::Sub(one, hn::Add(differs, differs));
    const auto odd = hn::Add(bits, hn::IfThenElseZero(hn::And(even, inexact), change));
    return nearest_24(hn::BitCast(Doubles(), odd));
  }

 private:
  /// Returns what the sum loses.
  HWY_INLINE Vector<double> add_to_high(Vector<double> x) {
    const auto sum = hn::Add(high_, x);
    const auto of_x = hn::Sub(sum, high_);
    const auto of_high = hn::Sub(sum, of_x);
    const auto lost = hn::Add(hn::Sub(high_, of_high), hn::Sub(x, of_x));
    high_ = sum;
    return lost;
  }

  Vector<double> high_;
  Vector<double> low_;
};

/// The same of one row in two words.
template <CEnters kC>
HWY_NOINLINE void add_steps_exactly(const StepBlock<double>& s, std::int64_t first,
                                    std::int64_t last, std::int64_t row) {
  const Doubles d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  for (std::int64_t v = 0; v < kVectors; ++v) {
    double* state = s.state + row * width + v * lanes;
    auto c = hn::Load(d, state);
    for (std::int64_t step = first; step < last; ++step) {
      const double* a = s.a + (step * s.rows + row) * s.terms;
      const double* b = s.b + step * s.terms * width + v * lanes;
      ExactSum sum(kC == CEnters::first ? c : hn::Zero(d));
      for (std::int64_t k = 0; k < s.terms; ++k)
        sum.add(hn::Mul(hn::Set(d, a[k]), hn::Load(d, b + k * width)));
      c = kC == CEnters::first ? sum.rounded() : nearest_24(hn::Add(c, sum.rounded()));
    }
    hn::Store(c, d, state);
  }
}

template <int R, CEnters kC>
HWY_INLINE void checked_rows(const StepBlock<double>& s, std::int64_t first, std::int64_t last,
                             std::int64_t row) {
  HWY_ALIGN double sums[R * kMaxWidth];
  const auto width = static_cast<std::int64_t>(hn::Lanes(Doubles())) * kVectors;
  if constexpr (InexactFlag::kExists) {
    add_steps<R, kC>(s, first, last, row, sums);
    if (!InexactFlag::raised()) {
      std::copy_n(sums, R * width, s.state + row * width);
      return;
    }
  }
  for (int r = 0; r < R; ++r) add_steps_exactly<kC>(s, first, last, row + r);
  InexactFlag::clear();
}

template <CEnters kC>
void checked_steps(const StepBlock<double>& from) {
  const StepBlock<double> s = from;  // what is stored might be part of `from` for the compiler
  const std::int64_t most = std::max<std::int64_t>(1, kCheckedTerms / s.terms);
  InexactFlag::clear();
  for (std::int64_t first = 0; first < s.steps; first += most) {
    const std::int64_t last = std::min(first + most, s.steps);
    std::int64_t row = 0;
    for (; row + kCheckedRows <= s.rows; row += kCheckedRows)
      checked_rows<kCheckedRows, kC>(s, first, last, row);
    for (; row < s.rows; ++row) checked_rows<1, kC>(s, first, last, row);
  }
}

/// To FP16, nearest even: a multiple of the last bit of its binade, or of FP16's subnormal numbers.
HWY_INLINE Vector<double> nearest_half(Vector<double> x) {
  const Doubles d;
  const auto magnitude = hn::Abs(x);
  const auto power = hn::And(x, hn::BitCast(d, hn::Set(Bits(), kExponentMask<double>)));
  const auto binade = hn::Max(power, hn::Set(d, 0x1p-14));
  const auto magic = hn::Mul(binade, hn::Set(d, 0x1.8p42));  // its ulp is 2^-10 of the binade
  const auto kept = hn::Sub(hn::Add(magnitude, magic), magic);
  const auto overflows = hn::Ge(magnitude, hn::Set(d, 65520.0));
  return hn::CopySign(hn::IfThenElse(overflows, hn::Inf(d), kept), x);
}

template <int R>
HWY_INLINE void half_rows(const StepBlock<double>& s, std::int64_t step, std::int64_t row) {
  const Doubles d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  double* state = s.state + row * width;
  Vector<double> sum[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  multiply_add<double, R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                          s.b + step * s.terms * width, sum);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v)
      hn::Store(nearest_half(sum[r][v]), d, state + r * width + v * lanes);
  }
}

void half_steps(const StepBlock<double>& from) {
  const StepBlock<double> s = from;  // what is stored might be part of `from` for the compiler
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) half_rows<kRows>(s, step, row);
    for (; row < s.rows; ++row) half_rows<1>(s, step, row);
  }
}

const CheckedKernels* checked_kernels() {
  static const CheckedKernels kTable{checked_steps<CEnters::first>, checked_steps<CEnters::last>,
                                     half_steps};
  return &kTable;
}

#else
const CheckedKernels* checked_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(CheckedKernels, checked_kernels)

}  // namespace fp8lab::gemm_detail
#endif
