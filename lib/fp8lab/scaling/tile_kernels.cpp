#include "fp8lab/scaling/tile_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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
constexpr std::int32_t kNanWraps = 0x007fffff;

/// Magnitudes as numbers that order like them. Where NaN is ignored they wrap: those of NaN
/// become negative.
template <bool kIgnoreNan>
HWY_INLINE hn::Vec<Words> ordered(const float* x) {
  const Words d;
  const auto bits = hn::BitCast(d, hn::Abs(hn::LoadU(Floats(), x)));
  return kIgnoreNan ? hn::Add(bits, hn::Set(d, kNanWraps)) : bits;
}

template <bool kIgnoreNan>
constexpr std::int32_t ordered_zero() {
  return kIgnoreNan ? kNanWraps : 0;
}

/// The last elements of a tile, fewer than a vector, after zeros.
struct Padded {
  alignas(64) std::array<float, 16> values{};
  Padded(const float* x, std::size_t count) {
    std::memcpy(values.data(), x, count * sizeof(float));
  }
};

/// Into the second-level cache.
HWY_INLINE void prefetch_far(const float* from) { __builtin_prefetch(from, 0, 2); }

template <bool kIgnoreNan>
HWY_INLINE std::int32_t tile_amax(const float* x, std::size_t count, std::size_t ahead) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  auto first = hn::Set(d, ordered_zero<kIgnoreNan>());
  auto second = first;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    if (ahead != 0) {
      for (std::size_t line = 0; line < 4 * lanes; line += 16) {
        hwy::Prefetch(x + i + ahead + line);
        if constexpr (HWY_TARGET != HWY_AVX2 && HWY_ARCH_X86)
          prefetch_far(x + i + 2 * ahead + line);
      }
    }
    first = hn::Max(first, hn::Max(ordered<kIgnoreNan>(x + i), ordered<kIgnoreNan>(x + i + lanes)));
    second = hn::Max(second, hn::Max(ordered<kIgnoreNan>(x + i + 2 * lanes),
                                     ordered<kIgnoreNan>(x + i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) first = hn::Max(first, ordered<kIgnoreNan>(x + i));
  if (i < count)
    second = hn::Max(second, ordered<kIgnoreNan>(Padded(x + i, count - i).values.data()));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(first, second))) - ordered_zero<kIgnoreNan>();
}

/// What of a vector is left in its lowest four lanes: lane i has the largest of lanes i, i + 4, ...
template <class D>
HWY_INLINE hn::Vec128<std::int32_t> across_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return across_blocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Tiles of a few vectors, four at a time: their maxima are found together, as a transpose of their
/// lanes. Returns the number of tiles that it took.
template <bool kIgnoreNan, std::size_t kBlock>
std::size_t amax_of_fours(const float* x, std::size_t tiles, std::size_t ahead,
                          std::int32_t* largest) {
  const Words d;
  const hn::Repartition<std::int64_t, Words> pairs;
  const hn::FixedTag<std::int32_t, 4> four;
  const auto of_tile = [&](const float* from) HWY_ATTR {
    auto most = ordered<kIgnoreNan>(from);
    for (std::size_t i = hn::Lanes(d); i < kBlock; i += hn::Lanes(d))
      most = hn::Max(most, ordered<kIgnoreNan>(from + i));
    return most;
  };
  const auto of_two = [&](const float* from) HWY_ATTR {
    const auto a = of_tile(from);
    const auto b = of_tile(from + kBlock);
    return hn::BitCast(pairs, hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto zero = hn::Set(four, ordered_zero<kIgnoreNan>());
  std::size_t t = 0;
  for (; t + 4 <= tiles; t += 4, x += 4 * kBlock) {
    if (ahead != 0)
      for (std::size_t line = 0; line < 4 * kBlock; line += 16) hwy::Prefetch(x + ahead + line);
    const auto ab = of_two(x);
    const auto cd = of_two(x + 2 * kBlock);
    const auto lower = hn::BitCast(d, hn::InterleaveLower(pairs, ab, cd));
    const auto upper = hn::BitCast(d, hn::InterleaveUpper(pairs, ab, cd));
    const auto found = across_blocks(d, hn::Max(lower, upper));
    const auto bits = hn::Sub(hn::Max(found, zero), zero);
    hn::StoreU(hn::Max(bits, hn::LoadU(four, largest + t)), four, largest + t);
  }
  return t;
}

template <bool kIgnoreNan>
void amax_all(const float* x, std::size_t count, std::size_t block, std::size_t ahead,
              std::int32_t* largest) {
  std::size_t taken = 0;
  if (block == 16) taken = amax_of_fours<kIgnoreNan, 16>(x, count / block, ahead, largest);
  if (block == 32) taken = amax_of_fours<kIgnoreNan, 32>(x, count / block, ahead, largest);
  for (std::size_t begin = taken * block, t = taken; begin < count; begin += block, ++t)
    largest[t] = std::max(largest[t],
                          tile_amax<kIgnoreNan>(x + begin, std::min(block, count - begin), ahead));
}

void amax(const float* x, std::size_t count, std::size_t block, bool ignore_nan, std::size_t ahead,
          std::int32_t* largest) {
  ignore_nan ? amax_all<true>(x, count, block, ahead, largest)
             : amax_all<false>(x, count, block, ahead, largest);
}

template <bool kIgnoreNan>
void element_amax_all(const float* x, std::size_t count, std::size_t ahead, std::int32_t* largest) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Set(d, ordered_zero<kIgnoreNan>());
  const auto update = [&](const float* from, std::int32_t* to) HWY_ATTR {
    const auto bits = hn::Sub(hn::Max(ordered<kIgnoreNan>(from), zero), zero);
    hn::StoreU(hn::Max(bits, hn::LoadU(d, to)), d, to);
  };
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    hwy::Prefetch(x + i + ahead);
    for (std::size_t v = 0; v < 16; v += lanes) update(x + i + v, largest + i + v);
  }
  if (i == count) return;
  const Padded rest(x + i, count - i);
  alignas(64) std::array<std::int32_t, 16> old{};
  std::memcpy(old.data(), largest + i, (count - i) * sizeof(std::int32_t));
  for (std::size_t v = 0; v < 16; v += lanes) update(rest.values.data() + v, old.data() + v);
  std::memcpy(largest + i, old.data(), (count - i) * sizeof(std::int32_t));
}

void element_amax(const float* x, std::size_t count, bool ignore_nan, std::size_t ahead,
                  std::int32_t* largest) {
  ignore_nan ? element_amax_all<true>(x, count, ahead, largest)
             : element_amax_all<false>(x, count, ahead, largest);
}

/// `kRows` rows of a tile and of its columns.
template <std::size_t kRows>
HWY_INLINE void cross_tile(const CrossRows& rows, std::size_t begin, std::size_t end,
                           std::int32_t* row_largest, std::size_t tiles,
                           std::int32_t* column_largest) {
  const Words d;
  // What is stored might otherwise change the task.
  const float* const from = rows.from;
  float* const to = rows.to;
  const std::size_t from_stride = rows.from_stride;
  const std::size_t to_stride = rows.to_stride;
  hn::Vec<Words> largest[kRows];
  for (auto& row : largest) row = hn::Zero(d);
  for (std::size_t c = begin; c < end; c += hn::Lanes(d)) {
    auto column = hn::LoadU(d, column_largest + c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto x = hn::LoadU(Floats(), from + r * from_stride + c);
      hn::StoreU(x, Floats(), to + r * to_stride + c);
      const auto magnitude = hn::BitCast(d, hn::Abs(x));
      largest[r] = hn::Max(largest[r], magnitude);
      column = hn::Max(column, magnitude);
    }
    hn::StoreU(column, d, column_largest + c);
  }
  for (std::size_t r = 0; r < kRows; ++r)
    row_largest[r * tiles] = hn::GetLane(hn::MaxOfLanes(d, largest[r]));
}

template <std::size_t kRows>
void cross_rows(const CrossRows& rows, std::int32_t* row_largest, std::int32_t* column_largest) {
  const std::size_t tiles = (rows.columns + rows.block - 1) / rows.block;
  for (std::size_t t = 0; t < tiles; ++t)
    cross_tile<kRows>(rows, t * rows.block, std::min((t + 1) * rows.block, rows.columns),
                      row_largest + t, tiles, column_largest);
}

void cross_amax(const CrossRows& rows, std::int32_t* row_largest, std::int32_t* column_largest) {
  constexpr std::size_t kTogether = 4;
  const std::size_t tiles = (rows.columns + rows.block - 1) / rows.block;
  CrossRows part = rows;
  for (std::size_t r = 0; r < rows.rows;) {
    const bool together = r + kTogether <= rows.rows;
    part.from = rows.from + r * rows.from_stride;
    part.to = rows.to + r * rows.to_stride;
    (together ? cross_rows<kTogether> : cross_rows<1>)(part, row_largest + r * tiles,
                                                       column_largest);
    r += together ? kTogether : 1;
  }
}

constexpr bool is_torchao_mx(ScaleRule rule) {
  return rule == ScaleRule::torchao_mx_floor || rule == ScaleRule::torchao_mx_ceil ||
         rule == ScaleRule::torchao_mx_even;
}

/// The E8M0 code of a tile's inverse scale: `mx_code` and `torchao_mx_scale` of
/// scale_rule.cpp in lanes.
template <ScaleRule kRule>
HWY_INLINE hn::Vec<Words> mx_codes(const Format& f, hn::Vec<Words> amax) {
  const Words d;
  const auto nan_code = hn::Set(d, 255);
  const auto mantissa_mask = hn::Set(d, 0x007fffff);
  const auto one = hn::Set(d, 1);
  if constexpr (kRule == ScaleRule::mx_rceil || kRule == ScaleRule::te_mx) {
    const auto inverse_max = hn::Set(Floats(), 1.0F / static_cast<float>(f.max_finite()));
    const auto descale = hn::BitCast(d, hn::Mul(hn::BitCast(Floats(), amax), inverse_max));
    // Rounds the exponent up where there is a mantissa; code 0 is half of the smallest normal
    // number.
    const auto below = hn::IfThenElse(hn::Lt(descale, hn::Set(d, 0x00800000)),
                                      hn::Set(d, 0x003fffff), mantissa_mask);
    const hn::RebindToUnsigned<Words> u;
    const auto up = hn::ShiftRight<23>(hn::BitCast(u, hn::Add(descale, below)));
    const auto code = hn::Min(hn::BitCast(d, up), nan_code);
    if constexpr (kRule == ScaleRule::mx_rceil) return code;
    return hn::IfThenElse(hn::Eq(descale, hn::Set(d, kInfinity)), hn::Set(d, 254), code);
  } else {
    const auto is_nan = hn::Gt(amax, hn::Set(d, kInfinity));
    auto bits = amax;
    if constexpr (kRule == ScaleRule::mx_even || kRule == ScaleRule::torchao_mx_even)
      bits = hn::Add(bits, hn::Set(d, std::int32_t{1} << (22 - f.mantissa_bits)));
    auto exponent = hn::ShiftRight<23>(bits);
    const auto special = is_torchao_mx(kRule) ? is_nan : hn::Or(is_nan, hn::Eq(exponent, nan_code));
    if constexpr (kRule == ScaleRule::mx_ceil || kRule == ScaleRule::torchao_mx_ceil)
      exponent = hn::Add(
          exponent, hn::IfThenElseZero(hn::Gt(hn::And(bits, mantissa_mask), hn::Zero(d)), one));
    const int element_exponent = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
    const auto code = hn::Max(hn::Sub(exponent, hn::Set(d, element_exponent)), hn::Zero(d));
    return hn::IfThenElse(special, nan_code, code);
  }
}

/// 2^(code - 127); code 0 is a subnormal, code 255 NaN.
HWY_INLINE hn::Vec<Words> e8m0_values(hn::Vec<Words> code) {
  const Words d;
  const auto subnormal = hn::Set(d, 0x00400000);  // in an infinity's mantissa: NaN
  const auto number = hn::Max(hn::ShiftLeft<23>(code), subnormal);
  return hn::Or(number, hn::IfThenElseZero(hn::Eq(code, hn::Set(d, 255)), subnormal));
}

/// The reciprocals, as bits.
template <ScaleRule kRule>
HWY_INLINE hn::Vec<Words> mx_multipliers(hn::Vec<Words> code) {
  const Words d;
  const auto opposite = hn::Sub(hn::Set(d, 254), code);
  if constexpr (kRule == ScaleRule::te_mx)
    return hn::IfThenElse(hn::Eq(code, hn::Zero(d)), hn::Set(d, 0x3f800000),
                          hn::ShiftLeft<23>(opposite));
  const auto is_nan = hn::Eq(code, hn::Set(d, 255));
  if constexpr (is_torchao_mx(kRule))
    return hn::IfThenZeroElse(is_nan, e8m0_values(hn::Min(opposite, hn::Set(d, 253))));
  return e8m0_values(hn::IfThenElse(is_nan, code, opposite));
}

template <ScaleRule kRule>
void mx_scales_of(const Format& f, const std::int32_t* largest, std::size_t count,
                  const ScaleArrays& to) {
  const Words d;
  const hn::Rebind<std::uint8_t, Words> bytes;
  for (std::size_t t = 0; t < count; t += hn::Lanes(d)) {
    const auto code = mx_codes<kRule>(f, hn::LoadU(d, largest + t));
    hn::StoreU(hn::BitCast(Floats(), mx_multipliers<kRule>(code)), Floats(), to.scale + t);
    hn::StoreU(hn::BitCast(Floats(), e8m0_values(code)), Floats(), to.inverse_scale + t);
    hn::StoreU(hn::DemoteTo(bytes, code), bytes, to.e8m0 + t);
  }
}

/// `te_scale`, `deepgemm_scale` and DeepSeek's rule of scale_rule.cpp in lanes.
template <ScaleRule kRule>
HWY_INLINE void quotient_scale(const ScaleOptions& options, hn::Vec<Floats> max_finite,
                               hn::Vec<Floats> amax, hn::Vec<Floats>& scale,
                               hn::Vec<Floats>& inverse) {
  const Floats d;
  const Words w;
  const auto one = hn::Set(d, 1.0F);
  const auto at_least = [&](float least) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(amax, hn::Set(d, least)), hn::Set(d, least), amax);
  };
  if constexpr (kRule == ScaleRule::te) {
    const auto floored = at_least(options.amax_floor);
    scale = hn::Div(max_finite, floored);
    scale = hn::IfThenElse(hn::IsInf(scale), hn::Set(d, std::numeric_limits<float>::max()), scale);
    if (options.power_of_two)
      scale = hn::BitCast(d, hn::And(hn::BitCast(w, scale), hn::Set(w, kInfinity)));
    const auto has_one = hn::And(hn::IsFinite(floored), hn::Ne(floored, hn::Zero(d)));
    scale = hn::IfThenElse(has_one, scale, one);
    inverse = hn::Div(one, scale);
  } else {
    const float least = kRule == ScaleRule::deepgemm ? 1e-4F : 0.0F;
    inverse = hn::Div(at_least(std::max(least, options.amax_floor)), max_finite);
    if (kRule == ScaleRule::deepgemm && options.power_of_two) {
      const auto bits = hn::BitCast(w, hn::Abs(inverse));
      const auto rest = hn::And(bits, hn::Set(w, 0x007fffff));
      const auto up = hn::Add(hn::ShiftRight<23>(bits),
                              hn::IfThenElseZero(hn::Gt(rest, hn::Zero(w)), hn::Set(w, 1)));
      const auto exponent = hn::Min(hn::Max(up, hn::Set(w, 1)), hn::Set(w, 254));
      inverse = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
    }
    scale = hn::Div(one, inverse);
  }
}

template <ScaleRule kRule>
void quotient_scales(const ScaleOptions& options, const std::int32_t* largest, std::size_t count,
                     const ScaleArrays& to) {
  const Floats d;
  const auto max_finite = hn::Set(d, static_cast<float>(format(options.format).max_finite()));
  for (std::size_t t = 0; t < count; t += hn::Lanes(d)) {
    auto scale = max_finite;
    auto inverse = max_finite;
    quotient_scale<kRule>(options, max_finite, hn::BitCast(d, hn::LoadU(Words(), largest + t)),
                          scale, inverse);
    hn::StoreU(scale, d, to.scale + t);
    hn::StoreU(inverse, d, to.inverse_scale + t);
  }
}

void scales(const ScaleOptions& options, const std::int32_t* largest, std::size_t count,
            const ScaleArrays& to) {
  using enum ScaleRule;
  if (options.rule == te) return quotient_scales<te>(options, largest, count, to);
  if (options.rule == deepgemm) return quotient_scales<deepgemm>(options, largest, count, to);
  if (options.rule == deepseek) return quotient_scales<deepseek>(options, largest, count, to);
  const Format& f = format(options.format);
  if (options.rule == mx_floor) return mx_scales_of<mx_floor>(f, largest, count, to);
  if (options.rule == mx_ceil) return mx_scales_of<mx_ceil>(f, largest, count, to);
  if (options.rule == mx_even) return mx_scales_of<mx_even>(f, largest, count, to);
  if (options.rule == mx_rceil) return mx_scales_of<mx_rceil>(f, largest, count, to);
  if (options.rule == torchao_mx_floor)
    return mx_scales_of<torchao_mx_floor>(f, largest, count, to);
  if (options.rule == torchao_mx_ceil) return mx_scales_of<torchao_mx_ceil>(f, largest, count, to);
  if (options.rule == torchao_mx_even) return mx_scales_of<torchao_mx_even>(f, largest, count, to);
  mx_scales_of<te_mx>(f, largest, count, to);
}

/// to[i] = f of x[i], a vector at a time; `to` may be `x`.
template <class F>
HWY_INLINE void transform(const float* x, std::size_t count, float* to, const F& f) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, to + i);
  if (i == count) return;
  Padded rest(x + i, count - i);
  hn::StoreU(f(hn::LoadU(d, rest.values.data())), d, rest.values.data());
  std::memcpy(to + i, rest.values.data(), (count - i) * sizeof(float));
}

template <bool kDivide>
void scale(const float* x, std::size_t count, std::size_t block, const float* factors, float* to) {
  const Floats d;
  const auto nan = hn::BitCast(d, hn::Set(hn::ScalableTag<std::uint32_t>(), kCanonicalNan));
  for (std::size_t begin = 0, t = 0; begin < count; begin += block, ++t) {
    const auto factor = hn::Set(d, factors[t]);
    transform(x + begin, std::min(block, count - begin), to + begin,
              [&](hn::Vec<Floats> v) HWY_ATTR {
                const auto product = kDivide ? hn::Div(v, factor) : hn::Mul(v, factor);
                return hn::IfThenElse(hn::IsNaN(product), nan, product);
              });
  }
}

void round_to_bf16(const float* x, std::size_t count, float* to) {
  const Floats d;
  const Words w;
  transform(x, count, to, [&](hn::Vec<Floats> v) HWY_ATTR {
    const auto bits = hn::BitCast(w, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(w, 1));
    const auto up = hn::Add(hn::Add(bits, hn::Set(w, 0x7fff)), odd);
    const auto number = hn::And(up, hn::Set(w, static_cast<std::int32_t>(0xffff0000)));
    return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, number));
  });
}

const TileKernels& table() {
  static constexpr TileKernels kTable{amax,         element_amax, cross_amax,   scales,
                                      scale<false>, scale<true>,  round_to_bf16};
  return kTable;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::scaling_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

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

void reference_element_amax(const float* x, std::size_t count, bool ignore_nan, std::size_t ahead,
                            std::int32_t* largest) {
  reference_amax(x, count, 1, ignore_nan, ahead, largest);
}

void reference_cross_amax(const CrossRows& rows, std::int32_t* row_largest,
                          std::int32_t* column_largest) {
  const std::size_t tiles = (rows.columns + rows.block - 1) / rows.block;
  std::fill_n(row_largest, rows.rows * tiles, 0);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const float* from = rows.from + r * rows.from_stride;
    if (rows.to != rows.from) std::copy_n(from, rows.columns, rows.to + r * rows.to_stride);
    reference_amax(from, rows.columns, rows.block, false, 0, row_largest + r * tiles);
    reference_amax(from, rows.columns, 1, false, 0, column_largest);
  }
}

void reference_scales(const ScaleOptions& options, const std::int32_t* largest, std::size_t count,
                      const ScaleArrays& to) {
  for (std::size_t t = 0; t < count; ++t) {
    const TileScale scale = tile_scale(options, std::bit_cast<float>(largest[t]));
    to.scale[t] = scale.scale;
    to.inverse_scale[t] = scale.inverse_scale;
    to.e8m0[t] = scale.e8m0;
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

void reference_round_to_bf16(const float* x, std::size_t count, float* to) {
  std::transform(x, x + count, to, rounded_to_bf16);
}

constexpr TileKernels kReference{
    reference_amax,     reference_element_amax, reference_cross_amax,   reference_scales,
    reference_multiply, reference_divide,       reference_round_to_bf16};

}  // namespace

const TileKernels& tile_kernels(Target target) {
  switch (target) {
    FP8LAB_TARGET_CASES(table)
    default:
      return kReference;
  }
}

}  // namespace fp8lab::scaling_detail
#endif
