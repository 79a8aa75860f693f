#include "fp8lab/bench/copies.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <ctime>
#include <string>

#include "fp8lab/cast/kernels/target_region.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/target.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fp8lab::bench {
namespace {

using Narrow = void (*)(const float* in, std::uint8_t* out, std::size_t count);
using Widen = void (*)(const std::uint8_t* in, float* out, std::size_t count);

void narrow_portable(const float* in, std::uint8_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(in[i]) >> 24);
}

void widen_portable(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(std::uint32_t{in[i]} << 24);
}

}  // namespace
}  // namespace fp8lab::bench

#if defined(__x86_64__)

FP8LAB_BEGIN_TARGET("avx2")

namespace fp8lab::bench {
namespace {

template <CopyKind kKind>
void narrow_avx2(const float* in, std::uint8_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 32) {
    const auto* from = reinterpret_cast<const __m256i*>(in + i);
    if constexpr (kKind == CopyKind::prefetched) {
      _mm_prefetch(reinterpret_cast<const char*>(in + i) + 8192, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(in + i) + 8256, _MM_HINT_T0);
    }
    const __m256i mixed = _mm256_xor_si256(
        _mm256_xor_si256(_mm256_load_si256(from), _mm256_load_si256(from + 1)),
        _mm256_xor_si256(_mm256_load_si256(from + 2), _mm256_load_si256(from + 3)));
    if constexpr (kKind == CopyKind::plain)
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), mixed);
    else
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i), mixed);
  }
  _mm_sfence();
}

template <CopyKind kKind>
void widen_avx2(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 32) {
    if constexpr (kKind == CopyKind::prefetched)
      _mm_prefetch(reinterpret_cast<const char*>(in + i) + 8192, _MM_HINT_T0);
    const __m256 v = _mm256_load_ps(reinterpret_cast<const float*>(in + i));
    for (std::size_t part = 0; part < 32; part += 8) {
      if constexpr (kKind == CopyKind::plain)
        _mm256_store_ps(out + i + part, v);
      else
        _mm256_stream_ps(out + i + part, v);
    }
  }
  _mm_sfence();
}

}  // namespace
}  // namespace fp8lab::bench

FP8LAB_END_TARGET

FP8LAB_BEGIN_TARGET("avx512f")

namespace fp8lab::bench {
namespace {

template <CopyKind kKind>
void narrow_avx512(const float* in, std::uint8_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64) {
    if constexpr (kKind == CopyKind::prefetched) {
      for (std::size_t line = 0; line < 256; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(in + i) + 8192 + line, _MM_HINT_T0);
    }
    const __m512i mixed = _mm512_xor_si512(
        _mm512_xor_si512(_mm512_load_si512(in + i), _mm512_load_si512(in + i + 16)),
        _mm512_xor_si512(_mm512_load_si512(in + i + 32), _mm512_load_si512(in + i + 48)));
    if constexpr (kKind == CopyKind::plain)
      _mm512_store_si512(out + i, mixed);
    else
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), mixed);
  }
  _mm_sfence();
}

template <CopyKind kKind>
void widen_avx512(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64) {
    if constexpr (kKind == CopyKind::prefetched)
      _mm_prefetch(reinterpret_cast<const char*>(in + i) + 8192, _MM_HINT_T0);
    const __m512 v = _mm512_load_ps(in + i);
    for (std::size_t part = 0; part < 64; part += 16) {
      if constexpr (kKind == CopyKind::plain)
        _mm512_store_ps(out + i + part, v);
      else
        _mm512_stream_ps(out + i + part, v);
    }
  }
  _mm_sfence();
}

}  // namespace
}  // namespace fp8lab::bench

FP8LAB_END_TARGET

#endif

namespace fp8lab::bench {
namespace {

template <CopyKind kKind>
std::pair<Narrow, Widen> copies_of(Target target) {
#if defined(__x86_64__)
  if (target == Target::avx512) return {narrow_avx512<kKind>, widen_avx512<kKind>};
  if (target == Target::avx2) return {narrow_avx2<kKind>, widen_avx2<kKind>};
#endif
  (void)target;
  return {narrow_portable, widen_portable};
}

std::pair<Narrow, Widen> copies_of(CopyKind kind) {
  const Target target = current_target();
  if (kind == CopyKind::plain) return copies_of<CopyKind::plain>(target);
  if (kind == CopyKind::non_temporal) return copies_of<CopyKind::non_temporal>(target);
  return copies_of<CopyKind::prefetched>(target);
}

template <typename From, typename To>
void copy(void (*run)(const From*, To*, std::size_t), std::span<const From> in, std::span<To> out,
          int threads) {
  require(in.size() == out.size() && in.size() % 64 == 0, "out",
          "as many elements as in, a multiple of 64", std::to_string(out.size()));
  const auto bits =
      std::bit_cast<std::uintptr_t>(in.data()) | std::bit_cast<std::uintptr_t>(out.data());
  require(bits % 64 == 0, "in, out", "memory that begins on 64 bytes", "other memory");
  const std::size_t blocks = in.size() / 64;
  const auto parts = static_cast<std::size_t>(threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = blocks * part / parts * 64;
    const std::size_t end = blocks * (part + 1) / parts * 64;
    run(in.data() + begin, out.data() + begin, end - begin);
  }
}

}  // namespace

void narrowing_copy(CopyKind kind, std::span<const float> in, std::span<std::uint8_t> out,
                    int threads) {
  copy(copies_of(kind).first, in, out, threads);
}

void widening_copy(CopyKind kind, std::span<const std::uint8_t> in, std::span<float> out,
                   int threads) {
  copy(copies_of(kind).second, in, out, threads);
}

double measure_clock() {
  // Multiplications, three cycles each on every x86-64 of the last decade: newer processors fold
  // chains of small additions.
  constexpr std::uint64_t kMultiplications = 10'000'000;
  constexpr double kLatency = 3.0;
  double best = 0.0;
  for (int repetition = 0; repetition < 7; ++repetition) {
    std::uint64_t product = 3;
    const std::clock_t start = std::clock();
    for (std::uint64_t i = 0; i < kMultiplications; ++i) {
      product *= 0x9e3779b97f4a7c15u;
      asm volatile("" : "+r"(product));
    }
    const double seconds =
        static_cast<double>(std::clock() - start) / static_cast<double>(CLOCKS_PER_SEC);
    best = std::max(best, static_cast<double>(kMultiplications) * kLatency / seconds);
  }
  return best * 1e-9;
}

std::string_view to_string(CopyKind kind) {
  constexpr std::array<std::string_view, 3> kNames{"plain", "non-temporal", "prefetched"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace fp8lab::bench
