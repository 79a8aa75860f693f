#include <algorithm>

#include "fp8lab/gemm/unit_kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/processor_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Floats = Tag<float>;

/// What units make of numbers below 2^-126. x86's modes do it; elsewhere these operations do.
class Flush {
 public:
  explicit Flush(Subnormals subnormals)
      : operands_(subnormals == Subnormals::flushed), results_(subnormals != Subnormals::kept) {}

  [[nodiscard]] HWY_INLINE Vector<float> operand(Vector<float> x) const {
    return kSubnormalsByMode || !operands_ ? x : zero_if_small(x);
  }
  /// Of a sum that is exact if it is below 2^-126.
  template <class V>
  [[nodiscard]] HWY_INLINE V result(V x) const {
    return by_operations() ? zero_if_small(x) : x;
  }
  /// Whether results are flushed, by these operations.
  [[nodiscard]] HWY_INLINE bool by_operations() const { return !kSubnormalsByMode && results_; }
  /// Of any sum. One of 2^-126 may be below it with an unbounded exponent: NaN asks the reference.
  [[nodiscard]] HWY_INLINE Vector<float> rounded_result(Vector<float> x) const {
    if (kSubnormalsByMode || !results_) return x;
    const Floats d;
    return hn::IfThenElse(hn::Eq(hn::Abs(x), hn::Set(d, kLeast)), hn::NaN(d), zero_if_small(x));
  }

 private:
  static constexpr float kLeast = 0x1p-126F;
  template <class V>
  static HWY_INLINE V zero_if_small(V x) {
    const hn::DFromV<V> d;
    const auto zero = hn::CopySign(hn::Zero(d), x);
    return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, kLeast)), zero, x);
  }

  bool operands_;
  bool results_;
};

/// The sum of the chains of a step, in their order.
template <int R>
HWY_INLINE void sum_chains(const StepBlock<float>& s, std::int64_t chains, const Flush& flush,
                           const float* a, const float* b, Vector<float> (&sum)[R][kVectors]) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t chain = 0; chain < chains; ++chain) {
    Vector<float> acc[R][kVectors];
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
    }
    for (std::int64_t k = chain; k < s.terms; k += chains) {
      Vector<float> column[kVectors];
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        column[v] = flush.operand(hn::Load(d, b + (k * kVectors + v) * lanes));
      FP8LAB_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto value = flush.operand(hn::Set(d, a[r * s.terms + k]));
        FP8LAB_UNROLL
        for (int v = 0; v < kVectors; ++v)
          acc[r][v] = flush.rounded_result(hn::MulAdd(value, column[v], acc[r][v]));
      }
    }
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = chain == 0 ? acc[r][v] : flush.result(hn::Add(sum[r][v], acc[r][v]));
    }
  }
}

template <int R>
HWY_INLINE void chain_rows(const StepBlock<float>& s, std::int64_t chains, const Flush& flush,
                           std::int64_t step, std::int64_t row) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  Vector<float> sum[R][kVectors];
  sum_chains<R>(s, chains, flush, s.a + (step * s.rows + row) * s.terms,
                s.b + step * s.terms * width, sum);
  float* state = s.state + row * width;
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* c = state + r * width + v * lanes;
      hn::Store(flush.result(hn::Add(hn::Load(d, c), sum[r][v])), d, c);
    }
  }
}

void chains(const StepBlock<float>& from, const ProcessorRule& rule) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  const Flush flush(rule.subnormals);
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) chain_rows<kRows>(s, rule.chains, flush, step, row);
    for (; row < s.rows; ++row) chain_rows<1>(s, rule.chains, flush, step, row);
  }
}

/// Two elements of a row and of columns.
struct PairOperands {
  Vector<float> a0;
  Vector<float> a1;
  Vector<float> b0;
  Vector<float> b1;
};

/// c = fma(a0, b0, fma(a1, b1, c)).
struct OddFirst {
  Flush flush;
  HWY_INLINE Vector<float> operator()(const PairOperands& p, Vector<float> c) const {
    const auto odd = hn::MulAdd(flush.operand(p.a1), flush.operand(p.b1), c);
    const auto first = flush.rounded_result(odd);
    return flush.rounded_result(hn::MulAdd(flush.operand(p.a0), flush.operand(p.b0), first));
  }
};

/// c + (a0 b0 + a1 b1), each of the four results rounded.
struct RoundedProducts {
  Flush flush;
  HWY_INLINE Vector<float> operator()(const PairOperands& p, Vector<float> c) const {
    const auto p0 = flush.result(hn::Mul(flush.operand(p.a0), flush.operand(p.b0)));
    const auto p1 = flush.result(hn::Mul(flush.operand(p.a1), flush.operand(p.b1)));
    return flush.result(hn::Add(c, flush.result(hn::Add(p0, p1))));
  }
};

/// c + (a0 b0 + a1 b1), the pair's sum rounded once, where binary32 holds a0 b0.
struct ExactProducts {
  Flush flush;
  HWY_INLINE Vector<float> operator()(const PairOperands& p, Vector<float> c) const {
    const auto pair = hn::MulAdd(p.a1, p.b1, hn::Mul(p.a0, p.b0));
    return flush.result(hn::Add(c, pair));
  }
};

/// As RoundedProducts, to odd. Needs rounding toward zero, products that binary32 holds unless they
/// are below 2^-126, and no overflow. The last bit of a sum that x86 has flushed may be set, which
/// its next reading flushes.
struct OddProducts {
  Flush flush;
  HWY_INLINE Vector<float> operator()(const PairOperands& p, Vector<float> c) const {
    const auto p0 = flush.result(hn::Mul(flush.operand(p.a0), flush.operand(p.b0)));
    const auto p1 = flush.result(hn::Mul(flush.operand(p.a1), flush.operand(p.b1)));
    return add(c, add(p0, p1));
  }

 private:
  [[nodiscard]] HWY_INLINE Vector<float> add(Vector<float> x, Vector<float> y) const {
    const Floats d;
    const Tag<std::uint32_t> du;
    const auto sum = hn::Add(x, y);
    const auto odd = hn::BitCast(d, hn::Or(hn::BitCast(du, sum), hn::Set(du, 1U)));
    const auto exact = hn::Eq(hn::Sub(sum, x), y);
    return flush.result(hn::IfThenElse(exact, sum, odd));
  }
};

template <int R, class Pair>
HWY_INLINE void pair_rows(const StepBlock<float>& s, const Pair& pair, std::int64_t step,
                          std::int64_t row) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  const float* a = s.a + (step * s.rows + row) * s.terms;
  const float* b = s.b + step * s.terms * width;
  float* state = s.state + row * width;
  Vector<float> c[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) c[r][v] = hn::Load(d, state + r * width + v * lanes);
  }
  for (std::int64_t k = 0; k < s.terms; k += 2) {
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto a0 = hn::Set(d, a[r * s.terms + k]);
      const auto a1 = hn::Set(d, a[r * s.terms + k + 1]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const float* column = b + k * width + v * lanes;
        c[r][v] = pair({a0, a1, hn::Load(d, column), hn::Load(d, column + width)}, c[r][v]);
      }
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(c[r][v], d, state + r * width + v * lanes);
  }
}

template <class Pair>
void pairs(const StepBlock<float>& from, const ProcessorRule& rule) {
  const StepBlock<float> s = from;  // what is stored might be part of `from` for the compiler
  const Pair pair{Flush(rule.subnormals)};
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kRows <= s.rows; row += kRows) pair_rows<kRows>(s, pair, step, row);
    for (; row < s.rows; ++row) pair_rows<1>(s, pair, step, row);
  }
}

using Doubles = Tag<double>;
using Narrow = hn::Rebind<float, Doubles>;

/// Exact sums as binary32, flushed after they were rounded. The tie below 2^-126 rounds up to it.
HWY_INLINE hn::Vec<Narrow> narrow_sum(const Flush& flush, Vector<double> sum) {
  const Doubles d;
  if (!flush.by_operations()) return hn::DemoteTo(Narrow(), sum);
  const auto small = hn::Lt(hn::Abs(sum), hn::Set(d, 0x1p-126 - 0x1p-151));
  const auto kept = hn::IfThenElse(small, hn::CopySign(hn::Zero(d), sum), sum);
  return hn::DemoteTo(Narrow(), kept);
}

/// Steps [first, last) of some rows.
template <int R>
HWY_INLINE void scaled_rows(const StepBlock<double>& s, const Flush& flush, std::int64_t first,
                            std::int64_t last, std::int64_t row) {
  const Doubles d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = lanes * kVectors;
  double* state = s.state + row * width;
  hn::Vec<Narrow> c[R][kVectors];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v)
      c[r][v] = hn::DemoteTo(Narrow(), hn::Load(d, state + r * width + v * lanes));
  }
  for (std::int64_t step = first; step < last; ++step) {
    Vector<double> sum[R][kVectors];
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
    multiply_add<double, R>(s.terms, s.a + (step * s.rows + row) * s.terms,
                            s.b + step * s.terms * width, sum);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        c[r][v] = flush.result(hn::Add(c[r][v], narrow_sum(flush, sum[r][v])));
    }
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) {
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v)
      hn::Store(hn::PromoteTo(d, c[r][v]), d, state + r * width + v * lanes);
  }
}

constexpr int kScaledRows = 2;             // sums and states of more do not fit the registers
constexpr std::int64_t kScaledTerms = 32;  // of B, which all rows read before the next ones

void scaled_sums(const StepBlock<double>& from, const ProcessorRule& rule) {
  const StepBlock<double> s = from;  // what is stored might be part of `from` for the compiler
  const Flush flush(rule.subnormals);
  const std::int64_t most = std::max<std::int64_t>(1, kScaledTerms / s.terms);
  for (std::int64_t first = 0; first < s.steps; first += most) {
    const std::int64_t last = std::min(first + most, s.steps);
    std::int64_t row = 0;
    for (; row + kScaledRows <= s.rows; row += kScaledRows)
      scaled_rows<kScaledRows>(s, flush, first, last, row);
    for (; row < s.rows; ++row) scaled_rows<1>(s, flush, first, last, row);
  }
}

const ProcessorKernels* processor_kernels() {
  static const ProcessorKernels kTable{
      chains,     pairs<OddFirst>, pairs<RoundedProducts>, pairs<ExactProducts>, pairs<OddProducts>,
      scaled_sums};
  return &kTable;
}

#else
const ProcessorKernels* processor_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(ProcessorKernels, processor_kernels)

}  // namespace fp8lab::gemm_detail
#endif
