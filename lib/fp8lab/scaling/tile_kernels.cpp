#include "fp8lab/scaling/tile_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "fp8lab/gemm/scaling.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/scaling/tile_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::scaling_detail {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::int32_t>;
using Floats = hn::ScalableTag<float>;

constexpr std::int32_t kInfinity = 0x7f800000;

template <bool kIgnoreNan>
HWY_INLINE hn::Vec<Words> magnitude(const float* x) {
  const Words d;
  const auto bits = hn::BitCast(d, hn::Abs(hn::LoadU(Floats(), x)));
  if constexpr (!kIgnoreNan) return bits;
  return hn::IfThenZeroElse(hn::Gt(bits, hn::Set(d, kInfinity)), bits);
}

/// The last elements of a tile, fewer than a vector, after zeros.
struct Padded {
  alignas(64) std::array<float, 16> values{};
  Padded(const float* x, std::size_t count) {
    std::memcpy(values.data(), x, count * sizeof(float));
  }
};

template <bool kIgnoreNan>
HWY_INLINE std::int32_t tile_amax(const float* x, std::size_t count, std::size_t ahead) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (std::size_t line = 0; line < 4 * lanes; line += 16) hwy::Prefetch(x + i + ahead + line);
    first =
        hn::Max(first, hn::Max(magnitude<kIgnoreNan>(x + i), magnitude<kIgnoreNan>(x + i + lanes)));
    second = hn::Max(second, hn::Max(magnitude<kIgnoreNan>(x + i + 2 * lanes),
                                     magnitude<kIgnoreNan>(x + i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) first = hn::Max(first, magnitude<kIgnoreNan>(x + i));
  if (i < count)
    second = hn::Max(second, magnitude<kIgnoreNan>(Padded(x + i, count - i).values.data()));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(first, second)));
}

template <bool kIgnoreNan>
void amax_all(const float* x, std::size_t count, std::size_t block, std::size_t ahead,
              std::int32_t* largest) {
  for (std::size_t begin = 0, t = 0; begin < count; begin += block, ++t)
    largest[t] = std::max(largest[t],
                          tile_amax<kIgnoreNan>(x + begin, std::min(block, count - begin), ahead));
}

void amax(const float* x, std::size_t count, std::size_t block, bool ignore_nan, std::size_t ahead,
          std::int32_t* largest) {
  ignore_nan ? amax_all<true>(x, count, block, ahead, largest)
             : amax_all<false>(x, count, block, ahead, largest);
}

template <bool kDivide>
void scale(const float* x, std::size_t count, std::size_t block, const float* factors, float* to) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto nan = hn::BitCast(d, hn::Set(hn::ScalableTag<std::uint32_t>(), kCanonicalNan));
  for (std::size_t begin = 0, t = 0; begin < count; begin += block, ++t) {
    const std::size_t end = std::min(begin + block, count);
    const auto factor = hn::Set(d, factors[t]);
    const auto scaled = [&](const float* from) HWY_ATTR {
      const auto v = hn::LoadU(d, from);
      const auto product = kDivide ? hn::Div(v, factor) : hn::Mul(v, factor);
      return hn::IfThenElse(hn::IsNaN(product), nan, product);
    };
    std::size_t i = begin;
    for (; i + lanes <= end; i += lanes) hn::StoreU(scaled(x + i), d, to + i);
    if (i == end) continue;
    Padded rest(x + i, end - i);
    hn::StoreU(scaled(rest.values.data()), d, rest.values.data());
    std::memcpy(to + i, rest.values.data(), (end - i) * sizeof(float));
  }
}

void stream(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t head = std::min((0 - std::bit_cast<std::uintptr_t>(to)) % lanes, count);
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  std::memcpy(to + i, from + i, count - i);
  hwy::FlushStream();
}

const TileKernels& table() {
  static constexpr TileKernels kTable{amax, scale<false>, scale<true>, stream};
  return kTable;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::scaling_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab::scaling_detail {
namespace {

void reference_amax(const float* x, std::size_t count, std::size_t block, bool ignore_nan,
                    std::size_t /*ahead*/, std::int32_t* largest) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::int32_t>(std::abs(x[i]));
    if (ignore_nan && bits > kInfinity) continue;
    largest[i / block] = std::max(largest[i / block], bits);
  }
}

void reference_multiply(const float* x, std::size_t count, std::size_t block, const float* factors,
                        float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = canonical(x[i] * factors[i / block]);
}

void reference_divide(const float* x, std::size_t count, std::size_t block, const float* factors,
                      float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = canonical(x[i] / factors[i / block]);
}

void reference_stream(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  std::copy_n(from, count, to);
}

constexpr TileKernels kReference{reference_amax, reference_multiply, reference_divide,
                                 reference_stream};

}  // namespace

const TileKernels& tile_kernels(Target target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::table();
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
      return N_AVX3::table();
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::table();
#endif
    default:
      return kReference;
  }
}

}  // namespace fp8lab::scaling_detail
#endif
