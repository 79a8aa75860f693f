// Reductions of eight vectors at once, one word each; included once for each target.

#include <cstdint>

#include "fp8lab/gemm/vector-inl.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_REDUCE_INL
#undef FP8LAB_GEMM_REDUCE_INL
#else
#define FP8LAB_GEMM_REDUCE_INL
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {

// Eight columns are reduced together: a word of each fills 32 bytes, or two vectors of 16.
constexpr int kColumns = 8;
using Words = hn::CappedTag<std::uint32_t, kColumns>;
using Floats = hn::Rebind<float, Words>;
constexpr int kWords = static_cast<int>(hn::MaxLanes(Words()));
constexpr int kParts = kColumns / kWords;

struct Larger {
  template <class V>
  static HWY_INLINE V of(V x, V y) {
    return hn::Max(x, y);
  }
};
struct Sum {
  template <class V>
  static HWY_INLINE V of(V x, V y) {
    return hn::Add(x, y);
  }
};

/// Combines words of two places of eight columns' vectors, two columns in a vector.
template <class Combine, class D>
HWY_INLINE void combine_pairs(D d, const hn::Vec<D> (&columns)[kColumns], hn::Vec<D> (&pairs)[4]) {
  const hn::Repartition<std::uint32_t, D> d32;
  FP8LAB_UNROLL
  for (int i = 0; i < 4; ++i) {
    const auto x = hn::BitCast(d32, columns[2 * i]);
    const auto y = hn::BitCast(d32, columns[2 * i + 1]);
    pairs[i] = Combine::of(hn::BitCast(d, hn::InterleaveLower(d32, x, y)),
                           hn::BitCast(d, hn::InterleaveUpper(d32, x, y)));
  }
}

/// Combines the 32-bit words of each block of 16 bytes of eight columns' vectors: to one word a
/// column, of the first four and of the last four.
template <class Combine, class D>
HWY_INLINE void reduce_blocks(D d, const hn::Vec<D> (&columns)[kColumns], hn::Vec<D> (&fours)[2]) {
  const hn::Repartition<std::uint64_t, D> d64;
  hn::Vec<D> pairs[4];
  combine_pairs<Combine>(d, columns, pairs);
  FP8LAB_UNROLL
  for (int i = 0; i < 2; ++i) {
    const auto x = hn::BitCast(d64, pairs[2 * i]);
    const auto y = hn::BitCast(d64, pairs[2 * i + 1]);
    fours[i] = Combine::of(hn::BitCast(d, hn::InterleaveLower(d64, x, y)),
                           hn::BitCast(d, hn::InterleaveUpper(d64, x, y)));
  }
}

/// Combines the 32-bit words of each of eight columns' vectors to one word a column, in the
/// columns' order.
template <class Combine, class D>
HWY_INLINE void reduce_columns(D d, const hn::Vec<D> (&columns)[kColumns],
                               hn::Vec<Words> (&to)[kParts]) {
  hn::Vec<D> fours[2];
  reduce_blocks<Combine>(d, columns, fours);
  if constexpr (kWords == kColumns) {
    to[0] = hn::BitCast(Words(), Combine::of(hn::ConcatLowerLower(d, fours[1], fours[0]),
                                             hn::ConcatUpperUpper(d, fours[1], fours[0])));
  } else {
    to[0] = hn::BitCast(Words(), fours[0]);
    to[1] = hn::BitCast(Words(), fours[1]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
