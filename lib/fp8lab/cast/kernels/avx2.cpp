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
#include "fp8lab/cast/kernels/general_kernel.inc"

namespace fp8lab::cast_kernels {
namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kFarAhead = 4096;  ///< elements, into the second-level cache
constexpr std::size_t kDecodePrefetchDistance = 4096;

FP8LAB_INLINE __m256i as_bits(__m256 v) { return _mm256_castps_si256(v); }
FP8LAB_INLINE __m256 as_floats(__m256i v) { return _mm256_castsi256_ps(v); }
FP8LAB_INLINE __m256i set1(std::uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
FP8LAB_INLINE __m256i bytes(std::uint8_t v) { return _mm256_set1_epi8(static_cast<char>(v)); }
FP8LAB_INLINE __m256i words(std::uint16_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
FP8LAB_INLINE __m256i float_bits(float v) { return as_bits(_mm256_set1_ps(v)); }

/// The low bytes of four vectors of values below 256, lanes of 128 bits interleaved.
FP8LAB_INLINE __m256i pack_unsigned(const __m256i (&v)[4]) {
  return _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
}
/// Bytes that keep the sign (and where it is all ones, every bit) of each 32-bit lane.
FP8LAB_INLINE __m256i pack_signed(const __m256i (&v)[4]) {
  return _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
}

/// Magnitude code less the code offset, modulo 256.
template <int kMantissaBits>
FP8LAB_INLINE __m256i nearest_codes(const NearestPlan& plan, __m256i magnitude) {
  const __m256i clamped = _mm256_min_epi32(magnitude, float_bits(plan.clamp));
  const __m256i normal = _mm256_max_epi32(clamped, float_bits(plan.min_normal));
  const __m256i magic = _mm256_and_si256(normal, set1(0x7f800000));
  const __m256i sum =
      as_bits(_mm256_fmadd_ps(as_floats(clamped), _mm256_set1_ps(plan.unit), as_floats(magic)));
  const __m256i code = _mm256_add_epi32(sum, _mm256_srli_epi32(magic, 23 - kMantissaBits));
  return _mm256_and_si256(code, set1(0xff));
}

/// Where narrow formats have their sign, and none for FNUZ zeros.
FP8LAB_INLINE __m256i adjust_signs(const NearestPlan& plan, __m256i magnitude, __m256i sign) {
  const int shift = std::countl_zero(plan.sign_mask);
  sign = _mm256_and_si256(_mm256_srl_epi16(sign, _mm_cvtsi32_si128(shift)), bytes(plan.sign_mask));
  if (!plan.no_negative_zero) return sign;
  return _mm256_andnot_si256(_mm256_cmpeq_epi8(magnitude, _mm256_setzero_si256()), sign);
}

struct NearestCounts {
  __m256i amax;
  __m256i over;   ///< NaN elements are in it
  __m256i small;  ///< zeros are in it
  __m256i zero;
  __m256i nan;
};

FP8LAB_INLINE void count_lanes(const NearestPlan& plan, __m256i unscaled, __m256i magnitude,
                               __m256i nan, NearestCounts& counts) {
  counts.over =
      _mm256_sub_epi32(counts.over, _mm256_cmpgt_epi32(magnitude, set1(plan.overflow_from - 1)));
  counts.small =
      _mm256_sub_epi32(counts.small, _mm256_cmpgt_epi32(set1(plan.zero_below), magnitude));
  counts.zero = _mm256_sub_epi32(counts.zero, _mm256_cmpeq_epi32(unscaled, _mm256_setzero_si256()));
  counts.nan = _mm256_sub_epi32(counts.nan, nan);
}

template <int kMantissaBits, bool kPlain, bool kScaled, GatherStatistics kStatistics>
FP8LAB_INLINE __m256i nearest_block(const NearestPlan& plan, const float* in, float scale,
                                    NearestCounts& counts) {
  const __m256i no_sign = set1(0x7fffffff);
  __m256i x[4];
  __m256i codes[4];
  __m256i nan[4];
  for (int v = 0; v < 4; ++v) {
    const __m256 unscaled = _mm256_loadu_ps(in + 8 * v);
    x[v] = as_bits(kScaled ? _mm256_mul_ps(unscaled, _mm256_set1_ps(scale)) : unscaled);
    const __m256i magnitude = _mm256_and_si256(x[v], no_sign);
    codes[v] = nearest_codes<kMantissaBits>(plan, magnitude);
    nan[v] = _mm256_cmpgt_epi32(magnitude, set1(plan.nan_above));
    if constexpr (kStatistics != GatherStatistics::none) {
      const __m256i before = _mm256_and_si256(as_bits(unscaled), no_sign);
      const __m256i real_nan = _mm256_cmpgt_epi32(before, set1(0x7f800000));
      counts.amax = _mm256_max_epi32(counts.amax, _mm256_andnot_si256(real_nan, before));
      if constexpr (kStatistics == GatherStatistics::all)
        count_lanes(plan, before, magnitude, real_nan, counts);
    }
  }
  const __m256i magnitude = _mm256_and_si256(
      _mm256_add_epi8(pack_unsigned(codes), bytes(static_cast<std::uint8_t>(plan.code_offset))),
      bytes(0x7f));
  __m256i sign = _mm256_and_si256(pack_signed(x), bytes(0x80));
  if constexpr (!kPlain) sign = adjust_signs(plan, magnitude, sign);
  const __m256i nan_code =
      _mm256_xor_si256(_mm256_and_si256(sign, bytes(plan.nan_sign_mask)), bytes(plan.nan_code));
  const __m256i code =
      _mm256_blendv_epi8(_mm256_or_si256(magnitude, sign), nan_code, pack_signed(nan));
  return _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/// Fewer than a block, through a padded copy.
template <int kMantissaBits, bool kPlain, bool kScaled, GatherStatistics kStatistics>
void nearest_part(const EncodeTask& task, const float* in, std::uint8_t* out, std::size_t count,
                  NearestCounts& counts) {
  std::array<float, kBlock> padded{};
  std::array<std::uint8_t, kBlock> codes;
  std::memcpy(padded.data(), in, count * sizeof(float));
  Ops::store(codes.data(), nearest_block<kMantissaBits, kPlain, kScaled, kStatistics>(
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
      for (std::size_t line = 0; line < kBlock; line += 16)
        _mm_prefetch(reinterpret_cast<const char*>(in + kFarAhead + line), _MM_HINT_T1);
      _mm256_stream_si256(
          reinterpret_cast<__m256i*>(out),
          nearest_block<kMantissaBits, kPlain, kScaled, kStatistics>(plan, in, scale, counts));
    }
    _mm_sfence();
  } else {
    for (; left >= kBlock; left -= kBlock, in += kBlock, out += kBlock)
      Ops::store(
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
  const __m256i zero = _mm256_setzero_si256();
  NearestCounts counts{zero, zero, zero, zero, zero};
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
  const std::uint64_t nan = sum_lanes(counts.nan);
  statistics.overflowed = sum_lanes(counts.over) - nan;
  statistics.underflowed = sum_lanes(counts.small) - sum_lanes(counts.zero);
  statistics.nan = nan + (plan.overflow_is_nan ? statistics.overflowed : 0);
  return statistics;
}

EncodeStatistics encode_task(const EncodeTask& task) {
  if (task.plan->nearest) return encode_nearest(task);
  return task.plan->format->code_bits() <= 8 ? encode_general<std::uint8_t>(task)
                                             : encode_general<std::uint16_t>(task);
}

constexpr std::size_t kDecodeBlock = 32;

/// 16 codes to binary32.
FP8LAB_INLINE void decode_half(const HalfPlan& plan, const std::uint8_t* in, __m256& low,
                               __m256& high) {
  const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  const __m256i magnitude = _mm256_and_si256(code, words(plan.magnitude_mask));
  const __m256i nan = _mm256_or_si256(_mm256_cmpgt_epi16(magnitude, words(plan.last_number)),
                                      _mm256_cmpeq_epi16(code, words(plan.lone_nan)));
  const __m256i shifted = _mm256_sll_epi16(magnitude, _mm_cvtsi32_si128(plan.magnitude_shift));
  __m256i half = _mm256_max_epi16(_mm256_sub_epi16(shifted, words(plan.field_offset)),
                                  _mm256_srli_epi16(shifted, 1));
  half = _mm256_blendv_epi8(half, words(kHalfNan), nan);
  const __m256i sign = _mm256_sll_epi16(code, _mm_cvtsi32_si128(plan.sign_shift));
  half = _mm256_or_si256(half, _mm256_and_si256(sign, words(0x8000)));
  const __m256 factor = _mm256_set1_ps(plan.factor);
  low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), factor);
  high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), factor);
}

void decode_part(const HalfPlan& plan, const std::uint8_t* in, float* out, std::size_t count) {
  std::array<std::uint8_t, kDecodeBlock> padded{};
  std::array<float, kDecodeBlock> values;
  std::memcpy(padded.data(), in, count);
  for (std::size_t half = 0; half < kDecodeBlock; half += 16) {
    __m256 low, high;
    decode_half(plan, padded.data() + half, low, high);
    _mm256_storeu_ps(values.data() + half, low);
    _mm256_storeu_ps(values.data() + half + 8, high);
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
    for (std::size_t done = 0; done < head; done += kDecodeBlock)
      decode_part(plan, in + done, out + done, std::min(kDecodeBlock, head - done));
    in += head;
    out += head;
    left -= head;
    for (; left >= kDecodeBlock; left -= kDecodeBlock, in += kDecodeBlock, out += kDecodeBlock) {
      _mm_prefetch(reinterpret_cast<const char*>(in + kDecodePrefetchDistance), _MM_HINT_T0);
      for (std::size_t half = 0; half < kDecodeBlock; half += 16) {
        __m256 low, high;
        decode_half(plan, in + half, low, high);
        _mm256_stream_ps(out + half, low);
        _mm256_stream_ps(out + half + 8, high);
      }
    }
    _mm_sfence();
  }
  for (; left >= kDecodeBlock; left -= kDecodeBlock, in += kDecodeBlock, out += kDecodeBlock) {
    for (std::size_t half = 0; half < kDecodeBlock; half += 16) {
      __m256 low, high;
      decode_half(plan, in + half, low, high);
      _mm256_storeu_ps(out + half, low);
      _mm256_storeu_ps(out + half + 8, high);
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

const Kernels kAvx2Kernels{encode_task, decode_task, widen};

}  // namespace fp8lab::cast_kernels

FP8LAB_END_TARGET

#endif
