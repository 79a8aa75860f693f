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

}  // namespace
}  // namespace fp8lab::cast_kernels

#include "fp8lab/cast/kernels/avx2_nearest.inc"

namespace fp8lab::cast_kernels {
namespace {

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
