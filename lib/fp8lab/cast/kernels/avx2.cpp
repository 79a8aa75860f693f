// Kernels for AVX2 with FMA and F16C.

#include "fp8lab/cast/kernels/kernels.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/target_region.hpp"

FP8LAB_BEGIN_TARGET("avx2,fma,f16c")

#include "fp8lab/cast/kernels/avx2_ops.inc"

#include "fp8lab/cast/kernels/philox.inc"

#include "fp8lab/cast/kernels/general_kernel.inc"

#include "fp8lab/cast/kernels/rounding_kernel.inc"

#include "fp8lab/cast/kernels/tile_cursor.inc"

namespace fp8lab::cast_kernels {
namespace {

constexpr std::size_t kBlock = 32;
// Elements ahead: into the second-level cache alone.
constexpr std::size_t kFarAhead = 1024;
constexpr std::size_t kNearAhead = 0;

FP8LAB_INLINE __m256i as_bits(__m256 v) { return _mm256_castps_si256(v); }
FP8LAB_INLINE __m256 as_floats(__m256i v) { return _mm256_castsi256_ps(v); }
FP8LAB_INLINE __m256i set1(std::uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
FP8LAB_INLINE __m256i bytes(std::uint8_t v) { return _mm256_set1_epi8(static_cast<char>(v)); }
FP8LAB_INLINE __m256i words(std::uint32_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }

/// Bytes that keep the sign of each 32-bit lane, lanes of 128 bits interleaved.
FP8LAB_INLINE __m256i pack_signs(const __m256i (&v)[4]) {
  return _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
}

/// The plan in registers.
struct NearestConstants {
  __m256 scale;
  __m256 clamp;
  __m256i min_normal;
  __m256i before_min_normal;
  __m256i before_nonzero;
  __m256 unit;
  __m256i weights;    ///< of the words of the rounded sum: its integer's and its exponent's
  __m256i tie_term;   ///< added before a cut that rounds to nearest, ties toward zero
  __m256i first;      ///< the word of code 0
  __m256i word_step;  ///< shifts a word down to its code as the upper half of a product
  __m256i overflow_after;
  __m256i zero_below;
  __m256i nan_code;
  __m256i nan_sign_mask;
  __m256i sign_mask;
  __m128i sign_shift;
  bool no_negative_zero;

  FP8LAB_INLINE NearestConstants(const NearestPlan& plan, float factor)
      : scale(_mm256_set1_ps(factor)),
        clamp(_mm256_set1_ps(plan.clamp)),
        min_normal(set1(plan.min_field << 23)),
        before_min_normal(set1((plan.min_field << 23) - 1)),
        before_nonzero(set1(plan.nonzero_from - 1)),
        unit(as_floats(set1(static_cast<std::uint32_t>(127 + plan.mantissa_bits - 23) << 23))),
        weights(set1(1u << 16 | 1u << (7 - plan.mantissa_bits))),
        tie_term(set1((1u << (22 - plan.mantissa_bits)) - 1)),
        // The rounded sum's integer holds the hidden bit, a cut magnitude does not.
        first(words((plan.min_field - (plan.small_numbers == SmallNumbers::raised ? 1 : 0)) << 7)),
        word_step(words(1u << (9 + plan.mantissa_bits))),
        overflow_after(set1(plan.overflow_from - 1)),
        zero_below(set1(plan.zero_below)),
        nan_code(bytes(plan.nan_code)),
        nan_sign_mask(bytes(plan.nan_sign_mask)),
        sign_mask(bytes(plan.sign_mask)),
        sign_shift(_mm_cvtsi32_si128(std::countl_zero(plan.sign_mask))),
        no_negative_zero(plan.no_negative_zero) {}
};

/// Flushes or raises what is below min normal.
template <SmallNumbers kSmallNumbers>
FP8LAB_INLINE __m256i without_small(const NearestConstants& c, __m256i unscaled,
                                    __m256i magnitude) {
  if constexpr (kSmallNumbers == SmallNumbers::flushed)
    return _mm256_and_si256(magnitude, _mm256_cmpgt_epi32(magnitude, c.before_min_normal));
  if constexpr (kSmallNumbers == SmallNumbers::raised)
    return _mm256_and_si256(_mm256_max_epi32(magnitude, c.min_normal),
                            _mm256_cmpgt_epi32(unscaled, c.before_nonzero));
  return magnitude;
}

/// The magnitude code, less that of code 0 and times 2^(7-M), which fits a word. NaN has the
/// exponent of an infinity, far above every code's; a zero that was flushed or not raised
/// has exponent 0, far below.
template <SmallNumbers kSmallNumbers, bool kBounded>
FP8LAB_INLINE __m256i nearest_words(const NearestConstants& c, __m256i magnitude) {
  // The second operand's NaN is the result: this clamp keeps NaN.
  const __m256i or_nan =
      kBounded ? magnitude : as_bits(_mm256_min_ps(c.clamp, as_floats(magnitude)));
  if constexpr (kSmallNumbers == SmallNumbers::raised)
    return _mm256_srli_epi32(_mm256_add_epi32(or_nan, c.tie_term), 16);
  const __m256i clamped = kBounded ? magnitude : _mm256_min_epi32(magnitude, as_bits(c.clamp));
  const __m256i normal =
      kSmallNumbers == SmallNumbers::gradual ? _mm256_max_epi32(or_nan, c.min_normal) : or_nan;
  const __m256 magic = as_floats(_mm256_and_si256(normal, set1(0x7f800000)));
  const __m256 sum = _mm256_fmadd_ps(as_floats(clamped), c.unit, magic);
  return _mm256_madd_epi16(as_bits(sum), c.weights);
}

/// The codes of 16 words, before they are cut to bytes: negative ones are 0, those of NaN large.
FP8LAB_INLINE __m256i wide_codes(const NearestConstants& c, __m256i a, __m256i b) {
  return _mm256_mulhi_epi16(_mm256_sub_epi16(_mm256_packs_epi32(a, b), c.first), c.word_step);
}

/// 32 magnitude codes from their words, lanes of 128 bits interleaved; NaN gives 0xff.
FP8LAB_INLINE __m256i pack_codes(const NearestConstants& c, const __m256i (&v)[4]) {
  return _mm256_packus_epi16(wide_codes(c, v[0], v[1]), wide_codes(c, v[2], v[3]));
}

/// Where narrow formats have their sign, and none for FNUZ zeros.
FP8LAB_INLINE __m256i adjust_signs(const NearestConstants& c, __m256i magnitude, __m256i sign) {
  sign = _mm256_and_si256(_mm256_srl_epi16(sign, c.sign_shift), c.sign_mask);
  if (!c.no_negative_zero) return sign;
  return _mm256_andnot_si256(_mm256_cmpeq_epi8(magnitude, _mm256_setzero_si256()), sign);
}

struct NearestCounts {
  /// Added to magnitudes, it makes those of NaN negative.
  static constexpr std::uint32_t kNanWraps = 0x007fffff;

  __m256i amax;
  __m256i over;   ///< NaN elements are in it
  __m256i small;  ///< zeros are in it
  __m256i zero;
  __m256i nan;

  FP8LAB_INLINE NearestCounts()
      : amax(set1(kNanWraps)), over(set1(0)), small(set1(0)), zero(set1(0)), nan(set1(0)) {}

  template <GatherStatistics kStatistics>
  FP8LAB_INLINE void add(const NearestConstants& c, __m256i unscaled, __m256i magnitude) {
    if constexpr (kStatistics != GatherStatistics::none) {
      const __m256i wrapped = _mm256_add_epi32(unscaled, set1(kNanWraps));
      amax = _mm256_max_epi32(amax, wrapped);
      if constexpr (kStatistics == GatherStatistics::all) {
        over = Ops::count(over, _mm256_cmpgt_epi32(magnitude, c.overflow_after));
        small = Ops::count(small, _mm256_cmpgt_epi32(c.zero_below, magnitude));
        zero = Ops::count(zero, _mm256_cmpeq_epi32(unscaled, set1(0)));
        nan = Ops::count(nan, _mm256_srai_epi32(wrapped, 31));
      }
    }
  }
  [[nodiscard]] float largest() const { return max_lanes(_mm256_sub_epi32(amax, set1(kNanWraps))); }
  [[nodiscard]] std::uint64_t nans() const { return sum_lanes(nan); }
};

template <bool kDivide>
FP8LAB_INLINE __m256 scaled(__m256 value, __m256 factor) {
  return kDivide ? _mm256_div_ps(value, factor) : _mm256_mul_ps(value, factor);
}

/// The factor of a whole call, or none; element i of a block is in vector i / 8.
template <bool kScaled>
struct CallFactor {
  static constexpr bool kManyScales = false;
  __m256 factor;
  FP8LAB_INLINE explicit CallFactor(const NearestConstants& c) : factor(c.scale) {}
  FP8LAB_INLINE __m256 apply(__m256 value, int) const {
    return kScaled ? _mm256_mul_ps(value, factor) : value;
  }
};

/// That of the tile in which a block lies.
template <bool kDivide>
struct TileFactor {
  static constexpr bool kManyScales = true;
  __m256 factor;
  FP8LAB_INLINE explicit TileFactor(TileCursor& cursor)
      : factor(_mm256_broadcast_ss(cursor.next_run())) {}
  FP8LAB_INLINE __m256 apply(__m256 value, int) const { return scaled<kDivide>(value, factor); }
};

/// One an element.
template <bool kDivide>
struct ElementFactors {
  static constexpr bool kManyScales = true;
  const float* factors;
  FP8LAB_INLINE explicit ElementFactors(TileCursor& cursor) : factors(cursor.next_block(kBlock)) {}
  FP8LAB_INLINE __m256 apply(__m256 value, int v) const {
    return scaled<kDivide>(value, _mm256_loadu_ps(factors + 8 * v));
  }
};

struct Block {
  __m256 values[4];
};

FP8LAB_INLINE Block load_block(const float* in) {
  return {{_mm256_loadu_ps(in), _mm256_loadu_ps(in + 8), _mm256_loadu_ps(in + 16),
           _mm256_loadu_ps(in + 24)}};
}

template <typename Form, typename Factor>
FP8LAB_INLINE __m256i nearest_block(const NearestConstants& c, const Factor& factor,
                                    const Block& block, NearestCounts& counts) {
  const __m256i no_sign = set1(0x7fffffff);
  __m256i x[4];
  __m256i codes[4];
  for (int v = 0; v < 4; ++v) {
    const __m256 value = block.values[v];
    const __m256i unscaled = _mm256_and_si256(as_bits(value), no_sign);
    __m256i product;
    if constexpr (Form::kBounded) {
      // The sign of a product with no negative factor: the same under every factor.
      x[v] = as_bits(value);
      product = as_bits(factor.apply(as_floats(unscaled), v));
    } else {
      x[v] = as_bits(factor.apply(value, v));
      product = _mm256_and_si256(x[v], no_sign);
    }
    const __m256i magnitude =
        without_small<Form::kSmallNumbers>(c, Factor::kManyScales ? product : unscaled, product);
    codes[v] = nearest_words<Form::kSmallNumbers, Form::kBounded>(c, magnitude);
    counts.template add<Form::kStatistics>(c, unscaled, magnitude);
  }
  const __m256i magnitude = pack_codes(c, codes);
  __m256i sign = _mm256_and_si256(pack_signs(x), bytes(0x80));
  if constexpr (!Form::kPlain) sign = adjust_signs(c, magnitude, sign);
  __m256i code = _mm256_or_si256(magnitude, sign);
  if constexpr (!Form::kBounded) {
    // Codes of NaN, and of FNUZ's overflow, have the top bit set.
    const __m256i nan_code = _mm256_xor_si256(_mm256_and_si256(sign, c.nan_sign_mask), c.nan_code);
    code = _mm256_blendv_epi8(code, nan_code, magnitude);
  }
  return _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/// The plan in registers: its address never leaves the loop, so that no store can change it.
struct HalfConstants {
  __m256i magnitude_mask;
  __m256i last_number;
  __m256i lone_nan;
  __m256i field_offset;
  __m256 factor;
  __m128i magnitude_shift;
  __m128i sign_shift;

  FP8LAB_INLINE explicit HalfConstants(const HalfPlan& plan)
      : magnitude_mask(words(plan.magnitude_mask)),
        last_number(words(plan.last_number)),
        lone_nan(words(plan.lone_nan)),
        field_offset(words(plan.field_offset)),
        factor(_mm256_set1_ps(plan.factor)),
        magnitude_shift(_mm_cvtsi32_si128(plan.magnitude_shift)),
        sign_shift(_mm_cvtsi32_si128(plan.sign_shift)) {}
};

/// 16 codes to binary32.
FP8LAB_INLINE void decode_half(const HalfConstants& plan, const std::uint8_t* in, __m256i& low,
                               __m256i& high) {
  const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  const __m256i magnitude = _mm256_and_si256(code, plan.magnitude_mask);
  const __m256i nan = _mm256_or_si256(_mm256_cmpgt_epi16(magnitude, plan.last_number),
                                      _mm256_cmpeq_epi16(code, plan.lone_nan));
  const __m256i shifted = _mm256_sll_epi16(magnitude, plan.magnitude_shift);
  __m256i half =
      _mm256_max_epi16(_mm256_sub_epi16(shifted, plan.field_offset), _mm256_srli_epi16(shifted, 1));
  half = _mm256_blendv_epi8(half, words(kHalfNan), nan);
  const __m256i sign = _mm256_sll_epi16(code, plan.sign_shift);
  half = _mm256_or_si256(half, _mm256_and_si256(sign, words(0x8000)));
  low = as_bits(_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), plan.factor));
  high = as_bits(_mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), plan.factor));
}

void widen(FormatId input, const std::uint16_t* in, float* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    const __m256 values = input == FormatId::bf16
                              ? as_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))
                              : _mm256_cvtph_ps(halves);
    _mm256_storeu_ps(out + i, values);
  }
  if (i != count) kScalarKernels.widen(input, in + i, out + i, count - i);
}

}  // namespace
}  // namespace fp8lab::cast_kernels

#include "fp8lab/cast/kernels/decode_kernel.inc"
#include "fp8lab/cast/kernels/nearest_kernel.inc"

#include "fp8lab/cast/kernels/tile_kernel.inc"

#include "fp8lab/cast/kernels/cross_kernel.inc"

namespace fp8lab::cast_kernels {

const Kernels kAvx2Kernels{encode_task, decode_task, widen, draw, encode_tiles, encode_crossed};

}  // namespace fp8lab::cast_kernels

FP8LAB_END_TARGET

#endif
