#include "apps/bench/copies.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <ctime>
#include <string>

#include "apps/bench/copy_kernels.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/target.hpp"

namespace fp8lab::bench {
namespace {

void narrow_portable(const float* in, std::uint8_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(in[i]) >> 24);
}

void widen_portable(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(std::uint32_t{in[i]} << 24);
}

CopyKernels copies_of(CopyKind kind) {
  const CopyTable* table = copy_kernels(current_target());
  return table != nullptr ? (*table)[static_cast<std::size_t>(kind)]
                          : CopyKernels{narrow_portable, widen_portable};
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
  copy(copies_of(kind).narrow, in, out, threads);
}

void widening_copy(CopyKind kind, std::span<const std::uint8_t> in, std::span<float> out,
                   int threads) {
  copy(copies_of(kind).widen, in, out, threads);
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
