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

/// Element i is in vector i / 8.
struct Block {
  __m256 values[4];
};

FP8LAB_INLINE Block load_block(const float* in) {
  return {{_mm256_loadu_ps(in), _mm256_loadu_ps(in + 8), _mm256_loadu_ps(in + 16),
           _mm256_loadu_ps(in + 24)}};
}

/// 32-bit lanes as bytes, with saturation: zero, positive or negative as before. Lanes of 128 bits
/// are interleaved.
FP8LAB_INLINE __m256i pack_bytes(const __m256i (&v)[4]) {
  return _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
}
FP8LAB_INLINE __m256i pack_bytes(const Block& block) {
  return pack_bytes({as_bits(block.values[0]), as_bits(block.values[1]), as_bits(block.values[2]),
                     as_bits(block.values[3])});
}

/// The plan in registers.
struct NearestConstants {
  __m256 scale;
  __m256i min_normal;
  __m256i before_min_normal;
  __m256i before_nonzero;
  __m256i lower_for_zero;  ///< what zero is raised to where others are; its code is 0
  __m256 for_nan;          ///< below every magnitude; its code is -1
  __m256 magic;            ///< m times this, plus |x|: the rounded sum, from code 0 on
  __m256i weights;         ///< of the words of the rounded sum: its integer's and its exponent's
  __m256i tie_term;        ///< before a cut: to nearest, ties toward zero, from code 0
  __m256i code_mask;       ///< that cut
  __m128i tie_shift;       ///< leaves 256 times the code
  __m256i overflow_code;
  __m256i last_word;       ///< the last number's word
  __m256i overflow_wraps;  ///< makes saturated words negative where overflow is FNUZ's NaN
  __m256i nan_limit;       ///< NaN's byte: the top bit is set where NaN has no sign
  __m256i nan_code;
  __m256i nan_sign_mask;
  __m256i sign_mask;
  __m128i sign_shift;
  bool no_negative_zero;

  FP8LAB_INLINE NearestConstants(const NearestPlan& plan, float factor)
      : NearestConstants(plan, factor, static_cast<std::uint32_t>(23 - plan.mantissa_bits)) {}

 private:
  FP8LAB_INLINE NearestConstants(const NearestPlan& plan, float factor, std::uint32_t cut)
      : scale(_mm256_set1_ps(factor)),
        min_normal(set1(plan.min_field << 23)),
        before_min_normal(set1((plan.min_field << 23) - 1)),
        before_nonzero(set1(plan.nonzero_from - 1)),
        lower_for_zero(set1((plan.min_field - 1) << 23)),
        for_nan(as_floats(set1(plan.small_numbers == SmallNumbers::raised
                                   ? ((plan.min_field - 1) << 23) - (1u << cut)
                                   : 0x80000000 | (plan.min_field + cut - 23) << 23))),
        magic(as_floats(
            set1(((127 + cut) << 23) + 0x10000 - ((plan.min_field + cut) << plan.mantissa_bits)))),
        weights(set1((2u << plan.mantissa_bits) << 16 | 0x100)),
        tie_term(set1((1u << (cut - 1)) - 1 - ((plan.min_field - 1) << 23))),
        code_mask(set1(0 - (1u << cut))),
        tie_shift(_mm_cvtsi32_si128(static_cast<int>(cut) - 8)),
        overflow_code(bytes(std::min<std::uint8_t>(plan.overflow_code, 0x7f))),
        last_word(words(plan.last_code * 0x100u)),
        overflow_wraps(words(plan.overflow_code == 0x80 ? 1 : 0)),
        nan_limit(bytes(static_cast<std::uint8_t>(plan.nan_sign_mask != 0 ? plan.nan_code
                                                                          : plan.nan_code | 0x80))),
        nan_code(bytes(plan.nan_code)),
        nan_sign_mask(bytes(plan.nan_sign_mask)),
        sign_mask(bytes(plan.sign_mask)),
        sign_shift(_mm_cvtsi32_si128(std::countl_zero(plan.sign_mask))),
        no_negative_zero(plan.no_negative_zero) {}
};

/// NaN becomes `for_nan`: the second operand is the result.
FP8LAB_INLINE __m256i replace_nan(const NearestConstants& c, __m256i magnitude) {
  return as_bits(_mm256_max_ps(as_floats(magnitude), c.for_nan));
}

/// 256 times the magnitude code, above every number's where that overflows; NaN has code -1.
template <typename Form>
FP8LAB_INLINE __m256i nearest_words(const NearestConstants& c, __m256i unscaled,
                                    __m256i magnitude) {
  if constexpr (Form::kSmallNumbers == SmallNumbers::raised) {
    const __m256i lower = _mm256_blendv_epi8(c.lower_for_zero, c.min_normal,
                                             _mm256_cmpgt_epi32(unscaled, c.before_nonzero));
    const __m256i raised = replace_nan(c, _mm256_max_epi32(magnitude, lower));
    __m256i sum = _mm256_add_epi32(raised, c.tie_term);
    if constexpr (!Form::kPlain || Form::kStatistics == GatherStatistics::all)
      sum = _mm256_and_si256(sum, c.code_mask);
    return _mm256_sra_epi32(sum, c.tie_shift);
  }
  if constexpr (Form::kSmallNumbers == SmallNumbers::flushed)
    magnitude = _mm256_and_si256(magnitude, _mm256_cmpgt_epi32(magnitude, c.before_min_normal));
  if constexpr (!Form::kBounded) magnitude = replace_nan(c, magnitude);
  const __m256i normal = _mm256_max_epi32(magnitude, c.min_normal);
  const __m256 binade = as_floats(_mm256_and_si256(normal, set1(0x7f800000)));
  const __m256 sum = _mm256_fmadd_ps(binade, c.magic, as_floats(magnitude));
  return _mm256_madd_epi16(as_bits(sum), c.weights);
}

/// Where narrow formats have their sign, and none for FNUZ zeros.
FP8LAB_INLINE __m256i adjust_signs(const NearestConstants& c, __m256i magnitude, __m256i sign) {
  sign = _mm256_and_si256(_mm256_srl_epi16(sign, c.sign_shift), c.sign_mask);
  if (!c.no_negative_zero) return sign;
  return _mm256_andnot_si256(_mm256_cmpeq_epi8(magnitude, _mm256_setzero_si256()), sign);
}

/// Codes from magnitude codes, of which those of NaN, and of FNUZ's overflow, are negative, and
/// from bytes with the signs.
template <typename Form>
FP8LAB_INLINE __m256i add_signs(const NearestConstants& c, __m256i magnitude, __m256i sign) {
  const __m256i top = bytes(0x80);
  if constexpr (Form::kPlain) {
    // NaN that has no sign comes with the top bit set, and gets it flipped whatever its sign.
    if constexpr (!Form::kBounded) {
      magnitude = _mm256_min_epu8(magnitude, c.nan_limit);
      sign = _mm256_or_si256(sign, magnitude);
    }
    return _mm256_xor_si256(magnitude, _mm256_and_si256(sign, top));
  }
  sign = adjust_signs(c, magnitude, _mm256_and_si256(sign, top));
  const __m256i code = _mm256_or_si256(magnitude, sign);
  if constexpr (Form::kBounded) return code;
  const __m256i nan_code = _mm256_xor_si256(_mm256_and_si256(sign, c.nan_sign_mask), c.nan_code);
  return _mm256_blendv_epi8(code, nan_code, magnitude);
}

/// Counts bytes that are all ones, 255 vectors of them before lanes must widen.
class ByteCounter {
 public:
  FP8LAB_INLINE ByteCounter() : narrow_(set1(0)), wide_(set1(0)) {}
  FP8LAB_INLINE void add(__m256i mask) { narrow_ = _mm256_sub_epi8(narrow_, mask); }
  FP8LAB_INLINE void widen() {
    wide_ = _mm256_add_epi64(wide_, _mm256_sad_epu8(narrow_, set1(0)));
    narrow_ = set1(0);
  }
  [[nodiscard]] std::uint64_t total() const {
    alignas(32) std::array<std::uint64_t, 4> sums;
    Ops::store(sums.data(), _mm256_add_epi64(wide_, _mm256_sad_epu8(narrow_, set1(0))));
    return sums[0] + sums[1] + sums[2] + sums[3];
  }

 private:
  __m256i narrow_;
  __m256i wide_;
};

struct NearestCounts {
  /// Added to magnitudes, it makes those of NaN negative.
  static constexpr std::uint32_t kNanWraps = 0x007fffff;

  __m256i amax;
  ByteCounter over;
  ByteCounter small;  ///< not zeros
  ByteCounter nan;
  int room = 255;  ///< blocks until the counters are full

  FP8LAB_INLINE NearestCounts() : amax(set1(kNanWraps)) {}

  FP8LAB_INLINE void add_magnitude(__m256i unscaled) {
    amax = _mm256_max_epi32(amax, _mm256_add_epi32(unscaled, set1(kNanWraps)));
  }
  FP8LAB_INLINE void add_codes(__m256i zeros, __m256i codes, __m256i overflows) {
    const __m256i none = set1(0);
    over.add(overflows);
    small.add(_mm256_andnot_si256(_mm256_cmpeq_epi8(zeros, none), _mm256_cmpeq_epi8(codes, none)));
    nan.add(_mm256_cmpeq_epi8(codes, bytes(0xff)));
    if (--room == 0) widen();
  }
  FP8LAB_INLINE void widen() {
    over.widen();
    small.widen();
    nan.widen();
    room = 255;
  }
  [[nodiscard]] float largest() const { return max_lanes(_mm256_sub_epi32(amax, set1(kNanWraps))); }
  [[nodiscard]] std::uint64_t overflowed() const { return over.total(); }
  [[nodiscard]] std::uint64_t underflowed() const { return small.total(); }
  [[nodiscard]] std::uint64_t nans() const { return nan.total(); }
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

/// A block between its two stages.
struct NearestStage {
  __m256i words[2];  ///< 256 times the magnitude codes, saturated; lanes of 128 bits interleaved
  __m256i zeros;     ///< where the bytes are 0, for statistics
};

/// Sets `signs` to values with the signs of the products.
template <typename Form, typename Factor>
FP8LAB_INLINE NearestStage nearest_begin(const NearestConstants& c, const Factor& factor,
                                         const Block& block, Block& signs, NearestCounts& counts) {
  const __m256i no_sign = set1(0x7fffffff);
  __m256i unscaled[4];
  __m256i wide[4];
  signs = block;
  for (int v = 0; v < 4; ++v) {
    unscaled[v] = _mm256_and_si256(as_bits(block.values[v]), no_sign);
    __m256i product;
    if constexpr (Form::kBounded) {
      // No factor is negative. The sign is the same under every factor.
      product = as_bits(factor.apply(as_floats(unscaled[v]), v));
    } else {
      signs.values[v] = factor.apply(block.values[v], v);
      product = _mm256_and_si256(as_bits(signs.values[v]), no_sign);
    }
    wide[v] = nearest_words<Form>(c, Factor::kManyScales ? product : unscaled[v], product);
    if constexpr (Form::kStatistics != GatherStatistics::none) counts.add_magnitude(unscaled[v]);
  }
  NearestStage stage;
  stage.words[0] = _mm256_packs_epi32(wide[0], wide[1]);
  stage.words[1] = _mm256_packs_epi32(wide[2], wide[3]);
  if constexpr (Form::kStatistics == GatherStatistics::all) stage.zeros = pack_bytes(unscaled);
  return stage;
}

template <typename Form>
FP8LAB_INLINE __m256i nearest_end(const NearestConstants& c, const NearestStage& stage,
                                  const Block& signs, NearestCounts& counts) {
  __m256i low = stage.words[0];
  __m256i high = stage.words[1];
  if constexpr (!Form::kPlain && !Form::kBounded) {
    low = _mm256_add_epi16(low, c.overflow_wraps);
    high = _mm256_add_epi16(high, c.overflow_wraps);
  }
  __m256i magnitude = _mm256_packs_epi16(_mm256_srai_epi16(low, 8), _mm256_srai_epi16(high, 8));
  if constexpr (!Form::kBounded) magnitude = _mm256_min_epi8(magnitude, c.overflow_code);
  if constexpr (Form::kStatistics == GatherStatistics::all)
    counts.add_codes(stage.zeros, magnitude,
                     _mm256_packs_epi16(_mm256_cmpgt_epi16(stage.words[0], c.last_word),
                                        _mm256_cmpgt_epi16(stage.words[1], c.last_word)));
  const __m256i code = add_signs<Form>(c, magnitude, pack_bytes(signs));
  return _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <typename Form, typename Factor>
FP8LAB_INLINE __m256i nearest_block(const NearestConstants& c, const Factor& factor,
                                    const Block& block, NearestCounts& counts) {
  Block signs;
  const NearestStage stage = nearest_begin<Form>(c, factor, block, signs, counts);
  return nearest_end<Form>(c, stage, signs, counts);
}

/// Encodes consecutive blocks under one factor: `put(in, codes)` takes the codes of each. A block
/// ends beside the beginning of the next one: whole, it is a chain of which the processor's window
/// holds too few.
template <typename Form, typename Put>
FP8LAB_INLINE void nearest_blocks(const NearestConstants& c, const float* in, std::size_t blocks,
                                  NearestCounts& counts, const Put& put) {
  if (blocks == 0) return;
  const CallFactor<Form::kScaled> factor(c);
  Block products;  // their signs are those of the input
  NearestStage stage = nearest_begin<Form>(c, factor, load_block(in), products, counts);
  for (std::size_t i = 1; i < blocks; ++i, in += kBlock) {
    const NearestStage next =
        nearest_begin<Form>(c, factor, load_block(in + kBlock), products, counts);
    put(in, nearest_end<Form>(c, stage, load_block(in), counts));
    stage = next;
  }
  put(in, nearest_end<Form>(c, stage, load_block(in), counts));
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
