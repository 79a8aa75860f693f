#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/fused_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/folded_rows-inl.hpp"
#include "fp8lab/gemm/fused_steps-inl.hpp"
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

/// The largest exponent among the products of each row with each column.
template <typename T, int R>
HWY_INLINE void largest_exponents(std::int64_t terms, const std::uint32_t* a, const Exponent<T>* b,
                                  int exponent_floor, Exponent<T>* largest) {
  const Tag<Exponent<T>> d;
  const Tag<std::uint32_t> d32;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  const auto floor = hn::Set(d, static_cast<Exponent<T>>(exponent_floor));
  Vector<Exponent<T>> m[R];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) m[r] = floor;
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = 0; k < terms; ++k) {
    const auto e = hn::Load(d, b + k * width);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r)
      m[r] = hn::Max(m[r], hn::Add(e, hn::BitCast(d, hn::Set(d32, a[r * terms + k]))));
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) hn::Store(m[r], d, largest + r * width);
}

/// One fused step of R rows.
template <typename T, End kEnd, int R>
HWY_INLINE void fused_rows(const StepBlock<T>& s, const StepRounding& rounding, std::int64_t step,
                           std::int64_t row) {
  const auto width = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors;
  const std::int64_t at = step * s.rows + row;
  HWY_ALIGN Exponent<T> largest[R * kMaxWidth];
  HWY_ALIGN std::uint32_t magic[R * kMaxWidth];
  Vector<T> acc[R][kVectors];
  largest_exponents<T, R>(s.terms, s.a_exponents + at * s.terms,
                          s.b_exponents + step * s.terms * width, rounding.exponent_floor, largest);
  start<kEnd == End::half, 1, R>(s, rounding, step, row, largest, magic, acc);
  multiply_add<T, R>(s.terms, s.a + at * s.terms, s.b + step * s.terms * width, acc);
  finish<T, kEnd, R>(acc, magic, rounding, s.state + row * width);
}

/// Fetches a part of the next codes each time, all of them in `times`.
class Fetcher {
 public:
  HWY_INLINE Fetcher(const NextCodes& next, std::int64_t terms, std::int64_t times)
      : at_(next.codes),
        row_stride_(next.row_stride),
        bytes_(terms * next.term_bytes),
        rows_(next.rows),
        lines_(next.rows == 0 ? 0
                              : ceil_divide(next.rows * ceil_divide(bytes_, kCacheLine), times)) {}
  HWY_INLINE void some() {
    for (std::int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(at_ + byte_);
      byte_ += kCacheLine;
      if (byte_ < bytes_) continue;
      byte_ = 0;
      at_ += row_stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t kCacheLine = 64;
  const unsigned char* at_;
  std::int64_t row_stride_;
  std::int64_t bytes_;
  std::int64_t rows_;
  std::int64_t lines_;
  std::int64_t byte_ = 0;
};

/// All steps: `rows` takes kRows times kFold rows at once and, of what is left, kFold. It holds
/// copies: what is stored might be part of `s` for the compiler.
template <int kFold, typename T, class Rows>
HWY_INLINE void all_steps(const StepBlock<T>& s, const Rows& rows) {
  constexpr int kTogether = kRows * kFold;
  const std::int64_t groups = s.rows / kTogether + s.rows % kTogether / kFold;
  Fetcher fetcher(s.next, s.steps * s.terms, s.steps * groups);
  for (std::int64_t step = 0; step < s.steps; ++step) {
    std::int64_t row = 0;
    for (; row + kTogether <= s.rows; row += kTogether) {
      fetcher.some();
      rows.template operator()<kRows>(step, row);
    }
    for (; row < s.rows; row += kFold) {
      fetcher.some();
      rows.template operator()<1>(step, row);
    }
  }
}

template <typename T, End kEnd>
void fused_steps(const StepBlock<T>& s, const StepRounding& rounding) {
  all_steps<1>(s, [s, rounding]<int R>(std::int64_t step, std::int64_t row)
                      HWY_ATTR { fused_rows<T, kEnd, R>(s, rounding, step, row); });
}

template <typename T, End kEnd, int kFold, int kTerms>
void folded_steps(const StepBlock<T>& s, const StepRounding& rounding) {
  all_steps<kFold>(s, [s, rounding]<int R>(std::int64_t step, std::int64_t row) HWY_ATTR {
    folded_rows<T, kEnd, kFold, kTerms, R>(s, rounding, step, row);
  });
}

/// How many rows may share a panel: the exponents of each fill a block of 16 bytes at least, and of
/// binary64 two vectors.
template <typename T>
constexpr int kMostFold = sizeof(T) == 4        ? HWY_MAX_BYTES / 16
                          : HWY_MAX_BYTES >= 32 ? 2
                                                : 1;

template <typename T, End kEnd, int kFold>
void steps_of_fold(const StepBlock<T>& s, const StepRounding& rounding) {
  if constexpr (kFold == 1) {
    fused_steps<T, kEnd>(s, rounding);
  } else {
    if (s.fold != kFold) return steps_of_fold<T, kEnd, kFold / 2>(s, rounding);
    if (s.terms == 32)
      folded_steps<T, kEnd, kFold, 32>(s, rounding);
    else
      folded_steps<T, kEnd, kFold, 16>(s, rounding);
  }
}

template <typename T>
void fused(const StepBlock<T>& s, const StepRounding& rounding) {
  if (rounding.half_output)
    steps_of_fold<T, End::half, kMostFold<T>>(s, rounding);
  else if (sizeof(T) == 8 && rounding.in_place)
    steps_of_fold<T, End::in_place, kMostFold<T>>(s, rounding);
  else
    steps_of_fold<T, End::truncated, kMostFold<T>>(s, rounding);
}

const FusedKernels* fused_kernels() {
  static const FusedKernels kTable{static_cast<std::int64_t>(hn::Lanes(Tag<float>())) * kVectors,
                                   static_cast<std::int64_t>(hn::Lanes(Tag<double>())) * kVectors,
                                   kMostFold<float>,
                                   kMostFold<double>,
                                   fused<float>,
                                   fused<double>};
  return &kTable;
}

#else
const FusedKernels* fused_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(FusedKernels, fused_kernels)

}  // namespace fp8lab::gemm_detail
#endif
