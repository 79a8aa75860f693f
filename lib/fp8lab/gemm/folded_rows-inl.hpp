// Fused steps of folded panels, whose vectors several rows of A share: docs/lab/gemm.md, "Few
// columns and rows". Included once for each target.

#include <cstdint>

#include "fp8lab/gemm/fused_steps-inl.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_FOLDED_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_FOLDED_ROWS_INL
#undef FP8LAB_GEMM_FOLDED_ROWS_INL
#else
#define FP8LAB_GEMM_FOLDED_ROWS_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

/// The words of four terms of kFold rows, `stride` apart, each repeated to fill its part of a
/// vector.
template <int kFold, class D>
HWY_INLINE hn::Vec<D> load_rows(D d, const std::uint32_t* from, std::int64_t stride) {
  if constexpr (kFold == 1) {
    return hn::LoadDup128(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_rows<kFold / 2>(half, from + kFold / 2 * stride, stride),
                       load_rows<kFold / 2>(half, from, stride));
  }
}

/// Exponents of a folded panel's columns, in each of kFold parts of a vector.
template <int kFold, class D, typename E = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_columns(D d, const E* from) {
  if constexpr (hn::MaxLanes(d) * sizeof(E) == kFold * 16) {
    return hn::LoadDup128(d, from);
  } else {
    static_assert(kFold == 2);
    const hn::Half<D> half;
    const auto part = hn::LoadU(half, from);
    return hn::Combine(d, part, part);
  }
}

/// Raises largest exponents of R vectors of rows by those of term K of four, of which `words` has
/// the rows'.
template <typename T, int kFold, int K, int R>
HWY_INLINE void raise_exponents(const Exponent<T>* b, const Vector<std::uint32_t> (&words)[R],
                                Vector<Exponent<T>> (&m)[R]) {
  const Tag<Exponent<T>> d;
  const auto columns = static_cast<std::int64_t>(hn::Lanes(d)) / kFold;
  const auto e = load_columns<kFold>(d, b + K * columns);
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r)
    m[r] = hn::Max(m[r], hn::Add(e, hn::BitCast(d, hn::Broadcast<K>(words[r]))));
}

/// The largest exponents of kFold rows a vector.
template <typename T, int kFold, int kTerms, int R>
HWY_INLINE void folded_exponents(const std::uint32_t* a, const Exponent<T>* b, int exponent_floor,
                                 Exponent<T>* largest) {
  const Tag<Exponent<T>> d;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  Vector<Exponent<T>> m[R];
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) m[r] = hn::Set(d, static_cast<Exponent<T>>(exponent_floor));
  for (std::int64_t k = 0; k < kTerms; k += 4) {
    Vector<std::uint32_t> words[R];
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r)
      words[r] = load_rows<kFold>(Words(), a + r * kFold * kTerms + k, kTerms);
    const Exponent<T>* of_terms = b + k * width / kFold;
    raise_exponents<T, kFold, 0>(of_terms, words, m);
    raise_exponents<T, kFold, 1>(of_terms, words, m);
    raise_exponents<T, kFold, 2>(of_terms, words, m);
    raise_exponents<T, kFold, 3>(of_terms, words, m);
  }
  FP8LAB_UNROLL
  for (int r = 0; r < R; ++r) hn::Store(m[r], d, largest + r * width);
}

/// acc += a . b, R times kFold rows by one folded panel.
template <typename T, int kFold, int kTerms, int R>
HWY_INLINE void folded_multiply_add(const T* a, const T* b, Vector<T> (&acc)[R][kVectors]) {
  constexpr int kOfRow = kVectors / kFold;
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FP8LAB_UNROLL_BY_4
  for (int k = 0; k < kTerms; ++k) {
    Vector<T> column[kOfRow];
    FP8LAB_UNROLL
    for (int v = 0; v < kOfRow; ++v) column[v] = hn::Load(d, b + (k * kOfRow + v) * lanes);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = hn::MulAdd(hn::Set(d, a[(r * kFold + v / kOfRow) * kTerms + k]),
                               column[v % kOfRow], acc[r][v]);
    }
  }
}

/// The same of R vectors of rows: kFold rows share a vector of exponents, and each has a part of
/// the panel's vectors.
template <typename T, End kEnd, int kFold, int kTerms, int R>
HWY_INLINE void folded_rows(const StepBlock<T>& s, const StepRounding& rounding, std::int64_t step,
                            std::int64_t row) {
  const auto columns = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors / kFold;
  const std::int64_t at = (step * s.rows + row) * kTerms;
  const std::int64_t b_at = step * kTerms * columns;
  HWY_ALIGN Exponent<T> largest[R * kMaxWidth];
  HWY_ALIGN std::uint32_t magic[R * kMaxWidth];
  Vector<T> acc[R][kVectors];
  folded_exponents<T, kFold, kTerms, R>(s.a_exponents + at, s.b_exponents + b_at,
                                        rounding.exponent_floor, largest);
  start<kEnd == End::half, kFold, R>(s, rounding, step, row, largest, magic, acc);
  folded_multiply_add<T, kFold, kTerms, R>(s.a + at, s.b + b_at, acc);
  finish<T, kEnd, R>(acc, magic, rounding, s.state + row * columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
