#include "apps/bench/copy_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "apps/bench/copy_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::bench {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());
constexpr std::size_t kBlock = 4 * kLanes;

template <CopyKind kKind>
HWY_INLINE void put(hn::Vec<Floats> v, float* to) {
  if constexpr (kKind == CopyKind::plain)
    hn::Store(v, Floats(), to);
  else
    hn::Stream(v, Floats(), to);
}

template <CopyKind kKind>
void narrow(const float* in, std::uint8_t* out, std::size_t count) {
  const Floats d;
  for (std::size_t i = 0; i < count; i += kBlock) {
    if constexpr (kKind == CopyKind::prefetched) {
      for (std::size_t line = 0; line < kBlock; line += 16) hwy::Prefetch(in + i + 2048 + line);
    }
    const auto mixed =
        hn::Xor(hn::Xor(hn::Load(d, in + i), hn::Load(d, in + i + kLanes)),
                hn::Xor(hn::Load(d, in + i + 2 * kLanes), hn::Load(d, in + i + 3 * kLanes)));
    put<kKind>(mixed, reinterpret_cast<float*>(out + i));
  }
  hwy::FlushStream();
}

template <CopyKind kKind>
void widen(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kBlock) {
    if constexpr (kKind == CopyKind::prefetched) hwy::Prefetch(in + i + 8192);
    const auto v = hn::Load(Floats(), reinterpret_cast<const float*>(in + i));
    for (std::size_t part = 0; part < kBlock; part += kLanes) put<kKind>(v, out + i + part);
  }
  hwy::FlushStream();
}

template <CopyKind kKind>
constexpr CopyKernels kKernels{narrow<kKind>, widen<kKind>};

const CopyTable* copy_kernels() {
  static constexpr CopyTable kTable{kKernels<CopyKind::plain>, kKernels<CopyKind::non_temporal>,
                                    kKernels<CopyKind::prefetched>};
  return &kTable;
}

#else
const CopyTable* copy_kernels() { return nullptr; }
#endif  // a target with vectors
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::bench {

FP8LAB_TABLE_OF_TARGET(CopyTable, copy_kernels)

}  // namespace fp8lab::bench
#endif
