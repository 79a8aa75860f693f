// All 2^32 binary32 inputs, or a share of them (sweep_share.hpp): the scalar cast against the host
// code of CUDA's cuda_fp8.h, the GPU-free oracle of the nvidia_* profiles.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "skip.hpp"
#include "sweep_share.hpp"

#if __has_include(<cuda_fp8.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda_fp8.h>
#pragma GCC diagnostic pop

using namespace fp8lab;

namespace {

struct Mismatch {
  std::int64_t count = 0;
  std::uint32_t input = 0;
  std::uint32_t expected = 0;
  std::uint32_t got = 0;

  void note(std::uint32_t bits, std::uint32_t expected_code, std::uint32_t got_code) {
    if (count++ == 0) *this = {1, bits, expected_code, got_code};
  }
  void join(const Mismatch& other) {
    const std::int64_t total = count + other.count;
    if (count == 0 || (other.count > 0 && other.input < input)) *this = other;
    count = total;
  }
};

/// Both saturations in one loop: they share most of the work.
template <FormatId kFormat, __nv_fp8_interpretation_t kInterpretation>
void compare_all(const SweepShare& share) {
  constexpr Format kTarget = format(kFormat);
  Mismatch saturating;
  Mismatch non_saturating;
#pragma omp parallel for schedule(dynamic, 16)
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    if (!share.takes(upper)) continue;
    Mismatch block_saturating;
    Mismatch block_non_saturating;
    for (std::uint32_t lower = 0; lower < 65536; ++lower) {
      const std::uint32_t bits = upper << 16 | lower;
      const float x = std::bit_cast<float>(bits);
      const std::uint32_t finite = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kInterpretation);
      const std::uint32_t open = __nv_cvt_float_to_fp8(x, __NV_NOSAT, kInterpretation);
      const std::uint32_t got_finite = encode(kTarget, kNvidiaSatfinite, x);
      const std::uint32_t got_open = encode(kTarget, kNvidiaNosat, x);
      if (got_finite != finite) block_saturating.note(bits, finite, got_finite);
      if (got_open != open) block_non_saturating.note(bits, open, got_open);
    }
#pragma omp critical
    {
      saturating.join(block_saturating);
      non_saturating.join(block_non_saturating);
    }
  }
  const auto check = [&](const char* name, const Mismatch& m) {
    INFO(fmt::format("{}, {}: {} wrong, first input 0x{:08x}, expected 0x{:02x}, got 0x{:02x}",
                     kTarget.name, name, m.count, m.input, m.expected, m.got));
    CHECK(m.count == 0);
  };
  check("nvidia_satfinite", saturating);
  check("nvidia_nosat", non_saturating);
}

}  // namespace

TEST_CASE("every binary32 input casts as cuda_fp8.h does", "[exhaustive][cuda-header][slow]") {
  const SweepShare share;
  compare_all<FormatId::e4m3fn, __NV_E4M3>(share);
  compare_all<FormatId::e5m2, __NV_E5M2>(share);
}

TEST_CASE("every code decodes as cuda_fp8.h does", "[exhaustive][cuda-header]") {
  for (std::uint32_t code = 0; code < 256; ++code) {
    for (const bool e5m2 : {false, true}) {
      const auto half_word = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code),
                                                     e5m2 ? __NV_E5M2 : __NV_E4M3);
      const double expected = decode(format(FormatId::f16), half_word.x);
      const double got = decode(format(e5m2 ? FormatId::e5m2 : FormatId::e4m3fn), code);
      INFO(fmt::format("code 0x{:02x}: expected {}, got {}", code, expected, got));
      CHECK((std::isnan(expected)
                 ? std::isnan(got)
                 : std::bit_cast<std::uint64_t>(expected) == std::bit_cast<std::uint64_t>(got)));
    }
  }
}

#else

TEST_CASE("every binary32 input casts as cuda_fp8.h does", "[exhaustive][cuda-header][slow]") {
  skip_test("cuda_fp8.h was not found when this test was compiled");
}

#endif
