// Kernels for AVX-512 (F, BW, DQ, VL).

#include "fp8lab/cast/kernels/kernels.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/target_region.hpp"

#if defined(__GNUC__) && !defined(__clang__)
// GCC's own intrinsics use a vector that they leave undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

FP8LAB_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")

#include "fp8lab/cast/kernels/avx512_ops.inc"

#include "fp8lab/cast/kernels/philox.inc"

#include "fp8lab/cast/kernels/general_kernel.inc"

#include "fp8lab/cast/kernels/rounding_kernel.inc"

#include "fp8lab/cast/kernels/tile_cursor.inc"

namespace fp8lab::cast_kernels {
namespace {

constexpr std::size_t kBlock = 64;
// Elements ahead: into the second-level cache, and from there into the first.
constexpr std::size_t kFarAhead = 4096;
constexpr std::size_t kNearAhead = 512;

/// Ternary logic tables over (a, b, c).
constexpr int kAndOr = 0xea;   // (a & b) | c
constexpr int kChoose = 0xca;  // a ? b : c
constexpr int kXorAnd = 0x6a;  // (a & b) ^ c

FP8LAB_INLINE __m512i as_bits(__m512 v) { return _mm512_castps_si512(v); }
FP8LAB_INLINE __m512 as_floats(__m512i v) { return _mm512_castsi512_ps(v); }
FP8LAB_INLINE __m512i set1(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
FP8LAB_INLINE __m512i bytes(std::uint32_t v) { return _mm512_set1_epi8(static_cast<char>(v)); }
FP8LAB_INLINE __m512i words(std::uint32_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }

FP8LAB_INLINE __mmask64 join(const __mmask16 (&v)[4]) {
  return _mm512_kunpackd(_mm512_kunpackw(v[3], v[2]), _mm512_kunpackw(v[1], v[0]));
}

/// The plan in registers.
struct NearestConstants {
  __m512 scale;
  __m512 clamp;
  __m512 min_normal;
  __m512 unit;
  __m512i code_offset;  ///< turns exponent fields into codes; it sits below the sum's integer
  __m512i field_shift;  ///< brings an exponent field to its place in the code
  __m512i nonzero_from;
  __m512i nan_above;
  __m512i overflow_from;
  __m512i zero_below;
  __m512i nan_code;
  __m512i nan_sign_mask;
  __m512i sign_mask;
  __m512i magnitude_mask;
  __m128i sign_shift;
  bool no_negative_zero;

  FP8LAB_INLINE NearestConstants(const NearestPlan& plan, float factor)
      : NearestConstants(plan, factor, static_cast<std::uint32_t>(kept_bits(plan))) {}

 private:
  /// Mantissa bits that the sum keeps; one more than the format's where ties go down.
  static FP8LAB_INLINE int kept_bits(const NearestPlan& plan) {
    return plan.mantissa_bits + (plan.small_numbers == SmallNumbers::raised ? 1 : 0);
  }
  FP8LAB_INLINE NearestConstants(const NearestPlan& plan, float factor, std::uint32_t kept)
      : scale(_mm512_set1_ps(factor)),
        clamp(_mm512_set1_ps(plan.clamp)),
        min_normal(_mm512_set1_ps(plan.min_normal)),
        unit(as_floats(set1((127 - 23 + kept) << 23))),
        code_offset(set1((0u - (plan.min_field << kept)) & 0x1ff)),
        field_shift(set1(23 - kept)),
        nonzero_from(set1(plan.nonzero_from)),
        nan_above(set1(plan.nan_above)),
        overflow_from(set1(plan.overflow_from)),
        zero_below(set1(plan.zero_below)),
        nan_code(bytes(plan.nan_code)),
        nan_sign_mask(bytes(plan.nan_sign_mask)),
        sign_mask(bytes(plan.sign_mask)),
        magnitude_mask(bytes(plan.sign_mask - 1u)),
        sign_shift(_mm_cvtsi32_si128(std::countl_zero(plan.sign_mask))),
        no_negative_zero(plan.no_negative_zero) {}
};

/// Sign in bit 7 and magnitude code below, nothing above, of 16 elements.
template <SmallNumbers kSmallNumbers, bool kBounded>
FP8LAB_INLINE __m512i nearest_codes(const NearestConstants& c, __m512i unscaled, __m512 x) {
  constexpr int kSmallerMagnitude = 0b0010;  // the sign is that of the first operand
  constexpr int kLargerMagnitude = 0b0011;
  constexpr int kLargerWithoutSign = 0b1011;
  constexpr bool kRaised = kSmallNumbers == SmallNumbers::raised;
  const __m512 clamped = kBounded ? x : _mm512_range_ps(x, c.clamp, kSmallerMagnitude);
  const __m512 normal =
      _mm512_range_ps(clamped, c.min_normal, kRaised ? kLargerWithoutSign : kLargerMagnitude);
  const __m512i magic =
      _mm512_ternarylogic_epi32(as_bits(normal), set1(0xff800000), c.code_offset, kAndOr);
  const __m512i field = _mm512_srlv_epi32(magic, c.field_shift);
  __m512i code;
  if constexpr (kRaised) {
    // Ties go down: away from zero to one bit more, and that bit cut off.
    const __mmask16 nonzero = _mm512_cmpge_epu32_mask(unscaled, c.nonzero_from);
    const __m512 sum = _mm512_mask3_fmadd_round_ps(normal, c.unit, as_floats(magic), nonzero,
                                                   _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    code = _mm512_srli_epi32(_mm512_add_epi32(as_bits(sum), field), 1);
  } else if constexpr (kSmallNumbers == SmallNumbers::flushed) {
    const __mmask16 is_normal = _mm512_cmp_ps_mask(clamped, normal, _CMP_EQ_OQ);
    const __m512 sum = _mm512_mask3_fmadd_ps(clamped, c.unit, as_floats(magic), is_normal);
    code = _mm512_add_epi32(as_bits(sum), field);
  } else {
    code = _mm512_add_epi32(as_bits(_mm512_fmadd_ps(clamped, c.unit, as_floats(magic))), field);
  }
  return _mm512_ternarylogic_epi32(set1(0x7f), code, _mm512_srli_epi32(as_bits(x), 24), kChoose);
}

/// Moves signs to where narrow formats have them and drops those of FNUZ zeros.
FP8LAB_INLINE __m512i adjust_codes(const NearestConstants& c, __m512i codes) {
  const __m512i magnitude = _mm512_and_si512(codes, c.magnitude_mask);
  __m512i sign = _mm512_and_si512(_mm512_srl_epi16(codes, c.sign_shift), c.sign_mask);
  if (c.no_negative_zero)
    sign = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(magnitude, magnitude), sign);
  return _mm512_or_si512(magnitude, sign);
}

struct NearestCounts {
  __m512i amax;
  __m512i over;   ///< NaN elements are in it
  __m512i small;  ///< zeros, and what was flushed, are in it
  __m512i zero;
  std::uint64_t nan = 0;

  FP8LAB_INLINE NearestCounts() : amax(set1(0)), over(set1(0)), small(set1(0)), zero(set1(0)) {}

  template <typename Form>
  FP8LAB_INLINE void add(const NearestConstants& c, __m512i unscaled, __m512i magnitude,
                         __mmask16 number) {
    if constexpr (Form::kStatistics != GatherStatistics::none)
      amax = _mm512_mask_max_epu32(amax, number, amax, unscaled);
    if constexpr (Form::kStatistics == GatherStatistics::all) {
      const __mmask16 lost = Form::kSmallNumbers == SmallNumbers::raised
                                 ? _mm512_cmplt_epu32_mask(unscaled, c.nonzero_from)
                                 : _mm512_cmplt_epu32_mask(magnitude, c.zero_below);
      over = Ops::count(over, _mm512_cmpge_epu32_mask(magnitude, c.overflow_from));
      small = Ops::count(small, lost);
      zero = Ops::count(zero, _mm512_testn_epi32_mask(unscaled, unscaled));
    }
  }
  [[nodiscard]] float largest() const { return max_lanes(amax); }
  [[nodiscard]] std::uint64_t overflowed() const { return sum_lanes(over) - nan; }
  [[nodiscard]] std::uint64_t underflowed() const { return sum_lanes(small) - sum_lanes(zero); }
  [[nodiscard]] std::uint64_t nans() const { return nan; }
};

template <bool kDivide>
FP8LAB_INLINE __m512 scaled(__m512 value, __m512 factor) {
  return kDivide ? _mm512_div_ps(value, factor) : _mm512_mul_ps(value, factor);
}

/// The factor of a whole call, or none; element i of a block is in vector i / 16.
template <bool kScaled>
struct CallFactor {
  static constexpr bool kManyScales = false;
  __m512 factor;
  FP8LAB_INLINE explicit CallFactor(const NearestConstants& c) : factor(c.scale) {}
  FP8LAB_INLINE __m512 apply(__m512 value, int) const {
    return kScaled ? _mm512_mul_ps(value, factor) : value;
  }
};

/// Those of the tiles in which the halves of a block lie.
template <bool kDivide>
struct TileFactor {
  static constexpr bool kManyScales = true;
  __m512 first;
  __m512 second;
  FP8LAB_INLINE explicit TileFactor(TileCursor& cursor)
      : first(_mm512_set1_ps(*cursor.next_run())), second(_mm512_set1_ps(*cursor.next_run())) {}
  FP8LAB_INLINE __m512 apply(__m512 value, int v) const {
    return scaled<kDivide>(value, v < 2 ? first : second);
  }
};

/// One an element.
template <bool kDivide>
struct ElementFactors {
  static constexpr bool kManyScales = true;
  const float* factors;
  FP8LAB_INLINE explicit ElementFactors(TileCursor& cursor) : factors(cursor.next_block(kBlock)) {}
  FP8LAB_INLINE __m512 apply(__m512 value, int v) const {
    return scaled<kDivide>(value, _mm512_loadu_ps(factors + 16 * v));
  }
};

struct Block {
  __m512 values[4];
};

FP8LAB_INLINE Block load_block(const float* in) {
  return {{_mm512_loadu_ps(in), _mm512_loadu_ps(in + 16), _mm512_loadu_ps(in + 32),
           _mm512_loadu_ps(in + 48)}};
}

template <typename Form, typename Factor>
FP8LAB_INLINE __m512i nearest_block(const NearestConstants& c, const Factor& factor,
                                    const Block& block, NearestCounts& counts) {
  const __m512i no_sign = set1(0x7fffffff);
  __m512i codes[4];
  __mmask16 number[4];  // lanes that are not NaN
  __mmask16 keep[4];    // lanes whose code is not the NaN code
  for (int v = 0; v < 4; ++v) {
    const __m512 value = block.values[v];
    const __m512 x = factor.apply(value, v);
    const __m512i unscaled = _mm512_and_si512(as_bits(value), no_sign);
    const __m512i magnitude = _mm512_and_si512(as_bits(x), no_sign);
    codes[v] = nearest_codes<Form::kSmallNumbers, Form::kBounded>(
        c, Factor::kManyScales ? magnitude : unscaled, x);
    if constexpr (Form::kBounded) continue;
    number[v] = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    keep[v] = Form::kPlain ? number[v] : _mm512_cmple_epu32_mask(magnitude, c.nan_above);
    counts.template add<Form>(c, unscaled, magnitude, number[v]);
  }
  if constexpr (Form::kStatistics == GatherStatistics::all)
    counts.nan +=
        64 - static_cast<std::uint64_t>(std::popcount(static_cast<std::uint64_t>(join(number))));
  __m512i packed = Ops::in_order(_mm512_packus_epi16(_mm512_packus_epi32(codes[0], codes[1]),
                                                     _mm512_packus_epi32(codes[2], codes[3])));
  if constexpr (!Form::kPlain) packed = adjust_codes(c, packed);
  if constexpr (Form::kBounded) return packed;
  const __m512i nan_codes = _mm512_ternarylogic_epi32(packed, c.nan_sign_mask, c.nan_code, kXorAnd);
  return _mm512_mask_mov_epi8(nan_codes, join(keep), packed);
}

/// Encodes consecutive blocks under one factor: `put(in, codes)` takes the codes of each.
template <typename Form, typename Put>
FP8LAB_INLINE void nearest_blocks(const NearestConstants& c, const float* in, std::size_t blocks,
                                  NearestCounts& counts, const Put& put) {
  const CallFactor<Form::kScaled> factor(c);
  for (; blocks != 0; --blocks, in += kBlock)
    put(in, nearest_block<Form>(c, factor, load_block(in), counts));
}

/// The plan in registers: its address never leaves the loop, so that no store can change it.
struct HalfConstants {
  __m512i magnitude_mask;
  __m512i last_number;
  __m512i lone_nan;
  __m512i field_offset;
  __m512 factor;
  __m128i magnitude_shift;
  __m128i sign_shift;

  FP8LAB_INLINE explicit HalfConstants(const HalfPlan& plan)
      : magnitude_mask(words(plan.magnitude_mask)),
        last_number(words(plan.last_number)),
        lone_nan(words(plan.lone_nan)),
        field_offset(words(plan.field_offset)),
        factor(_mm512_set1_ps(plan.factor)),
        magnitude_shift(_mm_cvtsi32_si128(plan.magnitude_shift)),
        sign_shift(_mm_cvtsi32_si128(plan.sign_shift)) {}
};

/// 32 codes to binary32.
FP8LAB_INLINE void decode_half(const HalfConstants& plan, const std::uint8_t* in, __m512i& low,
                               __m512i& high) {
  const __m512i code =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
  const __m512i magnitude = _mm512_and_si512(code, plan.magnitude_mask);
  const __mmask32 nan = _kor_mask32(_mm512_cmpgt_epu16_mask(magnitude, plan.last_number),
                                    _mm512_cmpeq_epu16_mask(code, plan.lone_nan));
  const __m512i shifted = _mm512_sll_epi16(magnitude, plan.magnitude_shift);
  __m512i half =
      _mm512_max_epi16(_mm512_sub_epi16(shifted, plan.field_offset), _mm512_srli_epi16(shifted, 1));
  half = _mm512_mask_mov_epi16(half, nan, words(kHalfNan));
  half = _mm512_ternarylogic_epi32(_mm512_sll_epi16(code, plan.sign_shift), words(0x8000), half,
                                   kAndOr);
  low = as_bits(_mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), plan.factor));
  high = as_bits(_mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), plan.factor));
}

void widen(FormatId input, const std::uint16_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    const std::size_t lanes = std::min<std::size_t>(16, count - i);
    const auto mask = static_cast<__mmask16>((1u << lanes) - 1);
    const __m256i words = _mm256_maskz_loadu_epi16(mask, in + i);
    const __m512 values = input == FormatId::bf16
                              ? as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))
                              : _mm512_cvtph_ps(words);
    _mm512_mask_storeu_ps(out + i, mask, values);
  }
}

}  // namespace
}  // namespace fp8lab::cast_kernels

#include "fp8lab/cast/kernels/decode_kernel.inc"
#include "fp8lab/cast/kernels/nearest_kernel.inc"

#include "fp8lab/cast/kernels/tile_kernel.inc"

#include "fp8lab/cast/kernels/cross_kernel.inc"

namespace fp8lab::cast_kernels {

const Kernels kAvx512Kernels{encode_task, decode_task, widen, draw, encode_tiles, encode_crossed};

}  // namespace fp8lab::cast_kernels

FP8LAB_END_TARGET

#endif
