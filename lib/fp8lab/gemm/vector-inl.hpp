// Vectors as all kernels of this folder name them; included once for each target.

#include <cstdint>

#include "fp8lab/gemm/kernels.hpp"
#include "hwy/highway.h"

#if defined(FP8LAB_GEMM_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_GEMM_VECTOR_INL
#undef FP8LAB_GEMM_VECTOR_INL
#else
#define FP8LAB_GEMM_VECTOR_INL
#endif

// Kernels exist where Highway has real vectors.
#undef FP8LAB_HAS_KERNELS
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#define FP8LAB_HAS_KERNELS 1
#else
#define FP8LAB_HAS_KERNELS 0
#endif

#undef FP8LAB_UNROLL
#undef FP8LAB_UNROLL_BY_4
#if defined(__clang__)
#define FP8LAB_UNROLL _Pragma("clang loop unroll(full)")
#define FP8LAB_UNROLL_BY_4  // as Clang does better by itself
#else
#define FP8LAB_UNROLL _Pragma("GCC unroll 16")
#define FP8LAB_UNROLL_BY_4 _Pragma("GCC unroll 4")
#endif

#if FP8LAB_HAS_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A panel is four vectors wide, so that its exponents fill one vector. With 32
// registers four rows share each load of B; with 16 two do.
constexpr int kVectors = 4;
constexpr int kRows = HWY_TARGET == HWY_AVX2 ? 2 : 4;

template <typename T>
using Word = typename PackedTypes<T>::Word;
template <typename T>
using Exponent = typename PackedTypes<T>::Exponent;
template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vector = hn::Vec<Tag<T>>;

/// Fetches bytes that are read soon, into the second-level cache: in the first one rows that are a
/// power of two apart displace each other.
HWY_INLINE void fetch_soon(const unsigned char* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  constexpr int kSecondLevel = 2;
  for (std::int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, kSecondLevel);
}

template <typename T>
constexpr int kMantissaBits = sizeof(T) == 4 ? 23 : 52;
template <typename T>
constexpr int kExponentBias = sizeof(T) == 4 ? 127 : 1023;
template <typename T>
constexpr Word<T> kExponentMask = (Word<T>{1} << (8 * sizeof(T) - 1)) -
                                  (Word<T>{1} << kMantissaBits<T>);

/// acc += a . b over `terms` terms, R rows by one panel.
template <typename T, int R>
HWY_INLINE void multiply_add(std::int64_t terms, const T* a, const T* b,
                             Vector<T> (&acc)[R][kVectors]) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FP8LAB_UNROLL_BY_4
  for (std::int64_t k = 0; k < terms; ++k) {
    const T* row = b + k * lanes * kVectors;
    Vector<T> column[kVectors];
    FP8LAB_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = hn::Load(d, row + v * lanes);
    FP8LAB_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto value = hn::Set(d, a[r * terms + k]);
      FP8LAB_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value, column[v], acc[r][v]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_KERNELS
#endif  // once for each target
