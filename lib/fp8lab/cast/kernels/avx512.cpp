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
#include "fp8lab/cast/kernels/general_kernel.inc"

namespace fp8lab::cast_kernels {
namespace {

constexpr std::size_t kBlock = 64;
// Elements ahead: into the second-level cache, and from there into the first.
constexpr std::size_t kFarAhead = 4096;
constexpr std::size_t kNearAhead = 512;
constexpr std::size_t kDecodePrefetchDistance = 4096;

/// Ternary logic tables over (a, b, c).
constexpr int kAndOr = 0xea;   // (a & b) | c
constexpr int kChoose = 0xca;  // a ? b : c
constexpr int kXorAnd = 0x6a;  // (a & b) ^ c

FP8LAB_INLINE __m512i as_bits(__m512 v) { return _mm512_castps_si512(v); }
FP8LAB_INLINE __m512 as_floats(__m512i v) { return _mm512_castsi512_ps(v); }
FP8LAB_INLINE __m512i set1(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }

FP8LAB_INLINE __m512i words(std::uint16_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }

FP8LAB_INLINE __mmask64 join(__mmask16 a, __mmask16 b, __mmask16 c, __mmask16 d) {
  return _mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a));
}

/// Sign in bit 7 and magnitude code below, nothing above, of 16 elements.
template <int kMantissaBits>
FP8LAB_INLINE __m512i nearest_codes(const NearestPlan& plan, __m512 x) {
  constexpr int kSmallerMagnitude = 0b0010;  // the sign is that of the first operand
  constexpr int kLargerMagnitude = 0b0011;
  const __m512 clamped = _mm512_range_ps(x, _mm512_set1_ps(plan.clamp), kSmallerMagnitude);
  const __m512 normal = _mm512_range_ps(clamped, _mm512_set1_ps(plan.min_normal), kLargerMagnitude);
  const __m512i magic =
      _mm512_ternarylogic_epi32(as_bits(normal), set1(0xff800000), set1(plan.code_offset), kAndOr);
  const __m512 sum = _mm512_fmadd_ps(clamped, _mm512_set1_ps(plan.unit), as_floats(magic));
  const __m512i code = _mm512_add_epi32(as_bits(sum), _mm512_srli_epi32(magic, 23 - kMantissaBits));
  return _mm512_ternarylogic_epi32(set1(0x7f), code, _mm512_srli_epi32(as_bits(x), 24), kChoose);
}

/// Moves signs to where narrow formats have them and drops those of FNUZ zeros.
FP8LAB_INLINE __m512i adjust_codes(const NearestPlan& plan, __m512i codes) {
  const __m512i magnitude =
      _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(plan.sign_mask - 1)));
  const unsigned shift = static_cast<unsigned>(std::countl_zero(plan.sign_mask));
  const __m512i moved = _mm512_srl_epi16(codes, _mm_cvtsi32_si128(static_cast<int>(shift)));
  __m512i sign = _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(plan.sign_mask)));
  if (plan.no_negative_zero)
    sign = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(magnitude, magnitude), sign);
  return _mm512_or_si512(magnitude, sign);
}

struct NearestCounts {
  __m512i amax;
  __m512i over;   ///< NaN elements are in it
  __m512i small;  ///< zeros are in it
  __m512i zero;
  std::uint64_t nan;
};

FP8LAB_INLINE void count_lanes(const NearestPlan& plan, __m512 unscaled, __m512 x,
                               NearestCounts& counts) {
  const __m512i magnitude = _mm512_and_si512(as_bits(x), set1(0x7fffffff));
  counts.over =
      Ops::count(counts.over, _mm512_cmpge_epu32_mask(magnitude, set1(plan.overflow_from)));
  counts.small =
      Ops::count(counts.small, _mm512_cmplt_epu32_mask(magnitude, set1(plan.zero_below)));
  counts.zero =
      Ops::count(counts.zero, _mm512_testn_epi32_mask(as_bits(unscaled), set1(0x7fffffff)));
}

template <int kMantissaBits, bool kPlain, bool kScaled, GatherStatistics kStatistics>
FP8LAB_INLINE __m512i nearest_block(const NearestPlan& plan, const float* in, float scale,
                                    NearestCounts& counts) {
  __m512 x[4];
  __m512i codes[4];
  __mmask16 number[4];  // lanes that are not NaN
  __mmask16 keep[4];    // lanes whose code is not the NaN code
  for (int v = 0; v < 4; ++v) {
    const __m512 unscaled = _mm512_loadu_ps(in + 16 * v);
    x[v] = kScaled ? _mm512_mul_ps(unscaled, _mm512_set1_ps(scale)) : unscaled;
    codes[v] = nearest_codes<kMantissaBits>(plan, x[v]);
    number[v] = _mm512_cmp_ps_mask(x[v], x[v], _CMP_ORD_Q);
    if constexpr (kStatistics != GatherStatistics::none) {
      const __m512i magnitude = _mm512_and_si512(as_bits(unscaled), set1(0x7fffffff));
      counts.amax = _mm512_mask_max_epu32(counts.amax, number[v], counts.amax, magnitude);
    }
    if constexpr (kStatistics == GatherStatistics::all) count_lanes(plan, unscaled, x[v], counts);
    if constexpr (!kPlain) {
      const __m512i magnitude = _mm512_and_si512(as_bits(x[v]), set1(0x7fffffff));
      keep[v] = _mm512_cmple_epu32_mask(magnitude, set1(plan.nan_above));
    } else {
      keep[v] = number[v];
    }
  }
  if constexpr (kStatistics == GatherStatistics::all)
    counts.nan += 64 - static_cast<std::uint64_t>(std::popcount(static_cast<std::uint64_t>(
                           join(number[0], number[1], number[2], number[3]))));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i packed = _mm512_packus_epi16(_mm512_packus_epi32(codes[0], codes[1]),
                                       _mm512_packus_epi32(codes[2], codes[3]));
  packed = _mm512_permutexvar_epi32(order, packed);
  if constexpr (!kPlain) packed = adjust_codes(plan, packed);
  const __m512i nan_codes =
      _mm512_ternarylogic_epi32(packed, _mm512_set1_epi8(static_cast<char>(plan.nan_sign_mask)),
                                _mm512_set1_epi8(static_cast<char>(plan.nan_code)), kXorAnd);
  return _mm512_mask_mov_epi8(nan_codes, join(keep[0], keep[1], keep[2], keep[3]), packed);
}

/// Fewer than a block, through a padded copy.
template <int kMantissaBits, bool kPlain, bool kScaled, GatherStatistics kStatistics>
void nearest_part(const EncodeTask& task, const float* in, std::uint8_t* out, std::size_t count,
                  NearestCounts& counts) {
  alignas(64) std::array<float, kBlock> padded{};
  alignas(64) std::array<std::uint8_t, kBlock> codes;
  std::memcpy(padded.data(), in, count * sizeof(float));
  _mm512_store_si512(codes.data(), nearest_block<kMantissaBits, kPlain, kScaled, kStatistics>(
                                       task.plan->nearest_plan, padded.data(), task.scale, counts));
  std::memcpy(out, codes.data(), count);
}

template <int kMantissaBits, bool kPlain, bool kScaled, GatherStatistics kStatistics>
void nearest_all(const EncodeTask& task, NearestCounts& counts) {
  const NearestPlan plan = task.plan->nearest_plan;
  const float scale = task.scale;
  const float* in = task.in;
  auto* out = static_cast<std::uint8_t*>(task.out);
  std::size_t left = task.count;
  if (task.stream) {
    const std::size_t head = std::min((0 - std::bit_cast<std::uintptr_t>(out)) % kBlock, left);
    if (head != 0)
      nearest_part<kMantissaBits, kPlain, kScaled, kStatistics>(task, in, out, head, counts);
    in += head;
    out += head;
    left -= head;
    for (; left >= kBlock; left -= kBlock, in += kBlock, out += kBlock) {
      for (std::size_t line = 0; line < kBlock; line += 16) {
        _mm_prefetch(reinterpret_cast<const char*>(in + kFarAhead + line), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(in + kNearAhead + line), _MM_HINT_T0);
      }
      _mm512_stream_si512(
          reinterpret_cast<__m512i*>(out),
          nearest_block<kMantissaBits, kPlain, kScaled, kStatistics>(plan, in, scale, counts));
    }
    _mm_sfence();
  } else {
    for (; left >= kBlock; left -= kBlock, in += kBlock, out += kBlock)
      _mm512_storeu_si512(
          out, nearest_block<kMantissaBits, kPlain, kScaled, kStatistics>(plan, in, scale, counts));
  }
  if (left != 0)
    nearest_part<kMantissaBits, kPlain, kScaled, kStatistics>(task, in, out, left, counts);
}

template <int kMantissaBits, bool kPlain>
void nearest_variant(const EncodeTask& task, NearestCounts& counts) {
  switch (task.statistics) {
    case GatherStatistics::none:
      if (task.scale == 1.0f)
        nearest_all<kMantissaBits, kPlain, false, GatherStatistics::none>(task, counts);
      else
        nearest_all<kMantissaBits, kPlain, true, GatherStatistics::none>(task, counts);
      return;
    case GatherStatistics::amax:
      return nearest_all<kMantissaBits, kPlain, true, GatherStatistics::amax>(task, counts);
    case GatherStatistics::all:
      return nearest_all<kMantissaBits, kPlain, true, GatherStatistics::all>(task, counts);
  }
}

EncodeStatistics encode_nearest(const EncodeTask& task) {
  const NearestPlan& plan = task.plan->nearest_plan;
  const __m512i zero = _mm512_setzero_si512();
  NearestCounts counts{zero, zero, zero, zero, 0};
  switch (task.plan->format->mantissa_bits) {
    case 1:
      nearest_variant<1, false>(task, counts);
      break;
    case 2:
      plan.plain ? nearest_variant<2, true>(task, counts) : nearest_variant<2, false>(task, counts);
      break;
    default:
      plan.plain ? nearest_variant<3, true>(task, counts) : nearest_variant<3, false>(task, counts);
  }
  EncodeStatistics statistics;
  statistics.amax = max_lanes(counts.amax);
  if (task.statistics != GatherStatistics::all) return statistics;
  statistics.overflowed = sum_lanes(counts.over) - counts.nan;
  statistics.underflowed = sum_lanes(counts.small) - sum_lanes(counts.zero);
  statistics.nan = counts.nan + (plan.overflow_is_nan ? statistics.overflowed : 0);
  return statistics;
}

EncodeStatistics encode_task(const EncodeTask& task) {
  if (task.plan->nearest) return encode_nearest(task);
  return task.plan->format->code_bits() <= 8 ? encode_general<std::uint8_t>(task)
                                             : encode_general<std::uint16_t>(task);
}

constexpr std::size_t kDecodeBlock = 64;

/// 32 codes to binary32.
FP8LAB_INLINE void decode_half(const HalfPlan& plan, const std::uint8_t* in, __m512& low,
                               __m512& high) {
  const __m512i code =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
  const __m512i magnitude = _mm512_and_si512(code, words(plan.magnitude_mask));
  const __m128i magnitude_shift = _mm_cvtsi32_si128(plan.magnitude_shift);
  const __m128i sign_shift = _mm_cvtsi32_si128(plan.sign_shift);
  const __mmask32 nan = _kor_mask32(_mm512_cmpgt_epu16_mask(magnitude, words(plan.last_number)),
                                    _mm512_cmpeq_epu16_mask(code, words(plan.lone_nan)));
  const __m512i shifted = _mm512_sll_epi16(magnitude, magnitude_shift);
  __m512i half = _mm512_max_epi16(_mm512_sub_epi16(shifted, words(plan.field_offset)),
                                  _mm512_srli_epi16(shifted, 1));
  half = _mm512_mask_mov_epi16(half, nan, words(kHalfNan));
  half = _mm512_ternarylogic_epi32(_mm512_sll_epi16(code, sign_shift), words(0x8000), half, kAndOr);
  const __m512 factor = _mm512_set1_ps(plan.factor);
  low = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), factor);
  high = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), factor);
}

void decode_part(const HalfPlan& plan, const std::uint8_t* in, float* out, std::size_t count) {
  std::array<std::uint8_t, kDecodeBlock> padded{};
  alignas(64) std::array<float, kDecodeBlock> values;
  std::memcpy(padded.data(), in, count);
  for (std::size_t half = 0; half < 2; ++half) {
    __m512 low, high;
    decode_half(plan, padded.data() + 32 * half, low, high);
    _mm512_store_ps(values.data() + 32 * half, low);
    _mm512_store_ps(values.data() + 32 * half + 16, high);
  }
  std::memcpy(out, values.data(), count * sizeof(float));
}

void decode_halves(const DecodeTask& task) {
  const HalfPlan plan = make_half_plan(*task.format, task.inverse_scale);
  const std::uint8_t* in = task.in;
  float* out = task.out;
  std::size_t left = task.count;
  const auto address = std::bit_cast<std::uintptr_t>(out);
  if (task.stream && address % sizeof(float) == 0) {
    const std::size_t head = std::min((0 - address) % 64 / sizeof(float), left);
    decode_part(plan, in, out, head);
    in += head;
    out += head;
    left -= head;
    for (; left >= kDecodeBlock; left -= kDecodeBlock, in += kDecodeBlock, out += kDecodeBlock) {
      _mm_prefetch(reinterpret_cast<const char*>(in + kDecodePrefetchDistance), _MM_HINT_T0);
      for (std::size_t half = 0; half < kDecodeBlock; half += 32) {
        __m512 low, high;
        decode_half(plan, in + half, low, high);
        _mm512_stream_ps(out + half, low);
        _mm512_stream_ps(out + half + 16, high);
      }
    }
    _mm_sfence();
  }
  for (; left >= kDecodeBlock; left -= kDecodeBlock, in += kDecodeBlock, out += kDecodeBlock) {
    for (std::size_t half = 0; half < kDecodeBlock; half += 32) {
      __m512 low, high;
      decode_half(plan, in + half, low, high);
      _mm512_storeu_ps(out + half, low);
      _mm512_storeu_ps(out + half + 16, high);
    }
  }
  if (left != 0) decode_part(plan, in, out, left);
}

void decode_task(const DecodeTask& task) {
  if (half_plan_fits(*task.format, task.inverse_scale))
    decode_halves(task);
  else if (task.format->is_scale_only())
    kScalarKernels.decode(task);  // one a block of 32 elements at most: a table look-up does
  else
    decode_general(task);
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

const Kernels kAvx512Kernels{encode_task, decode_task, widen};

}  // namespace fp8lab::cast_kernels

FP8LAB_END_TARGET

#endif
