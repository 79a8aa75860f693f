// Vectors as all kernels of casts name them, and the few operations that Highway lacks; included
// once for each target.

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/cast/kernels/kernels.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if defined(FP8LAB_CAST_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_CAST_VECTOR_INL
#undef FP8LAB_CAST_VECTOR_INL
#else
#define FP8LAB_CAST_VECTOR_INL
#endif

// Kernels exist where Highway has real vectors.
#undef FP8LAB_HAS_CAST_KERNELS
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#define FP8LAB_HAS_CAST_KERNELS 1
#else
#define FP8LAB_HAS_CAST_KERNELS 0
#endif

// An intrinsic of whole vectors, and whether comparisons give masks in registers of their own.
#undef FP8LAB_X86
#undef FP8LAB_HAS_MASKS
#if HWY_TARGET == HWY_AVX2
#define FP8LAB_X86(operation) _mm256_##operation
#define FP8LAB_HAS_MASKS 0
#elif HWY_ARCH_X86
#define FP8LAB_X86(operation) _mm512_##operation
#define FP8LAB_HAS_MASKS 1
#else
#define FP8LAB_HAS_MASKS 0
#endif

#if FP8LAB_HAS_CAST_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vector = hn::Vec<Tag<T>>;
using F32 = Vector<float>;
using I32 = Vector<std::int32_t>;
using U32 = Vector<std::uint32_t>;
using I16 = Vector<std::int16_t>;
using U16 = Vector<std::uint16_t>;
using I8 = Vector<std::int8_t>;
using U8 = Vector<std::uint8_t>;
using U64 = Vector<std::uint64_t>;
using Mask = hn::Mask<Tag<std::uint32_t>>;

/// Elements of binary32 in a vector. Kernels take blocks of four such vectors, whose codes fill
/// one.
constexpr std::size_t kLanes = hn::MaxLanes(Tag<float>());
constexpr std::size_t kBlock = 4 * kLanes;

/// The same bits as lanes of another type.
template <typename T, class V>
HWY_INLINE Vector<T> as(V v) {
  return hn::BitCast(Tag<T>(), v);
}
/// `value` in all lanes, cut to their width.
template <typename T>
HWY_INLINE Vector<T> set(std::uint32_t value) {
  return hn::Set(Tag<T>(), static_cast<T>(value));
}
HWY_INLINE U32 set_words(std::uint32_t value) { return set<std::uint32_t>(value); }
template <typename T>
HWY_INLINE Vector<T> zeros() {
  return hn::Zero(Tag<T>());
}
/// `set_words` of a value that the compiler does not know: it stays in a register or in memory,
/// where known ones are put together anew in each block.
HWY_INLINE U32 opaque_words(std::uint32_t value) {
  U32 result = set_words(value);
#if HWY_ARCH_X86
  asm("" : "+v"(result.raw));
#endif
  return result;
}
HWY_INLINE U32 load_words(const float* from) {
  return as<std::uint32_t>(hn::LoadU(Tag<float>(), from));
}

/// Reads ahead into the first-level cache, or only into the second-level one.
HWY_INLINE void prefetch_near(const float* from) { __builtin_prefetch(from, 0, 3); }
HWY_INLINE void prefetch_far(const void* from) { __builtin_prefetch(from, 0, 2); }

/// `a` > `b`, of numbers below 2^31.
HWY_INLINE Mask greater(U32 a, U32 b) {
  return hn::RebindMask(Tag<std::uint32_t>(), hn::Gt(as<std::int32_t>(a), as<std::int32_t>(b)));
}
HWY_INLINE Mask no_lanes() {
#if FP8LAB_HAS_MASKS
  return Mask{0};
#else
  return hn::MaskFromVec(zeros<std::uint32_t>());
#endif
}
/// `counts` plus one in each lane of `mask`.
HWY_INLINE U32 count_lanes(U32 counts, Mask mask) {
#if FP8LAB_HAS_MASKS
  // Not by adding 1: GCC would then move vectors about.
  const U32 less = set_words(0xffffffff);
  return U32{FP8LAB_X86(mask_sub_epi32)(counts.raw, mask.raw, counts.raw, less.raw)};
#else
  return hn::Sub(counts, hn::VecFromMask(Tag<std::uint32_t>(), mask));
#endif
}
/// `v` less one in each lane of `mask`.
HWY_INLINE U32 less_one(U32 v, Mask mask) {
#if FP8LAB_HAS_MASKS
  return U32{FP8LAB_X86(mask_sub_epi32)(v.raw, mask.raw, v.raw, set_words(1).raw)};
#else
  return hn::Add(v, hn::VecFromMask(Tag<std::uint32_t>(), mask));
#endif
}
/// Zero from 32 bits on; negative counts are such.
HWY_INLINE U32 shift_right_or_zero(U32 v, U32 bits) {
#if HWY_ARCH_X86
  return hn::Shr(v, bits);
#else
  return hn::Shr(v, hn::Min(bits, set_words(32)));
#endif
}

/// Of binary32.
HWY_INLINE U32 multiply(U32 a, U32 b) {
  return as<std::uint32_t>(hn::Mul(as<float>(a), as<float>(b)));
}

HWY_INLINE std::uint64_t sum_lanes(U32 v) {
  std::array<std::uint32_t, kLanes> lanes;
  hn::StoreU(v, Tag<std::uint32_t>(), lanes.data());
  std::uint64_t sum = 0;
  for (const std::uint32_t lane : lanes) sum += lane;
  return sum;
}
/// The largest magnitude, of bits of binary32.
HWY_INLINE float max_lanes(I32 v) {
  const Tag<std::int32_t> d;
  return hn::GetLane(as<float>(hn::MaxOfLanes(d, v)));
}

// Binary32 of which the second operand is the result where one is NaN.

HWY_INLINE F32 max_or_second(F32 a, F32 b) {
#if HWY_ARCH_X86
  return hn::Max(a, b);
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}
HWY_INLINE F32 min_or_second(F32 a, F32 b) {
#if HWY_ARCH_X86
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

/// In each 32-bit lane, the sum of both words' products.
HWY_INLINE I32 weigh_words(I16 a, I16 weights) {
#if HWY_ARCH_X86
  return I32{FP8LAB_X86(madd_epi16)(a.raw, weights.raw)};
#else
  const auto low = [](I16 v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(as<std::int32_t>(v))); };
  const auto high = [](I16 v) { return hn::ShiftRight<16>(as<std::int32_t>(v)); };
  return hn::Add(hn::Mul(low(a), low(weights)), hn::Mul(high(a), high(weights)));
#endif
}

// Two vectors joined, with saturation. On x86 the parts of 128 bits are interleaved.

HWY_INLINE I16 join_words(I32 a, I32 b) { return hn::ReorderDemote2To(Tag<std::int16_t>(), a, b); }
/// As unsigned words.
HWY_INLINE U16 join_unsigned_words(I32 a, I32 b) {
#if HWY_ARCH_X86
  return U16{FP8LAB_X86(packus_epi32)(a.raw, b.raw)};
#else
  const hn::Half<Tag<std::uint16_t>> half;
  return hn::Combine(Tag<std::uint16_t>(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}
HWY_INLINE I8 join_bytes(I16 a, I16 b) {
#if HWY_ARCH_X86
  return I8{FP8LAB_X86(packs_epi16)(a.raw, b.raw)};
#else
  const hn::Half<Tag<std::int8_t>> half;
  return hn::Combine(Tag<std::int8_t>(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}
/// Signed words as unsigned bytes.
HWY_INLINE U8 join_unsigned_bytes(I16 a, I16 b) {
#if HWY_ARCH_X86
  return U8{FP8LAB_X86(packus_epi16)(a.raw, b.raw)};
#else
  const hn::Half<Tag<std::uint8_t>> half;
  return hn::Combine(Tag<std::uint8_t>(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// Where what stands in order is, in groups of four bytes, once `kVectors` (2, 4) were joined.
template <std::size_t kVectors>
constexpr std::array<std::int32_t, kLanes> joined_order() {
  constexpr std::size_t kParts = kLanes / 4;
  std::array<std::int32_t, kLanes> order{};
  for (std::size_t i = 0; i < kLanes; ++i) {
    // A part of a vector gives 4 / kVectors groups.
    const std::size_t group = i % (4 / kVectors);
    const std::size_t part = i / (4 / kVectors) % kParts;
    const std::size_t vector = i / (4 / kVectors) / kParts;
    order[i] = static_cast<std::int32_t>(part * 4 + vector * (4 / kVectors) + group);
  }
  return order;
}
template <std::size_t kVectors, class V>
HWY_INLINE U8 in_order(V v) {
  if constexpr (kLanes == 4) return as<std::uint8_t>(v);
  static constexpr std::array<std::int32_t, kLanes> kOrder = joined_order<kVectors>();
  const Tag<std::uint32_t> d;
  return as<std::uint8_t>(
      hn::TableLookupLanes(as<std::uint32_t>(v), hn::SetTableIndices(d, kOrder.data())));
}

/// Around the caches, where `to` begins on 16 bytes.
template <class D>
HWY_INLINE void stream_parts(D d, hn::Vec<D> v, std::uint8_t* to) {
  if constexpr (hn::MaxLanes(d) == 16) {
    hn::Stream(v, d, to);
  } else {
    const hn::Half<D> half;
    stream_parts(half, hn::LowerHalf(half, v), to);
    stream_parts(half, hn::UpperHalf(half, v), to + hn::MaxLanes(half));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CAST_KERNELS
#endif  // once for each target
