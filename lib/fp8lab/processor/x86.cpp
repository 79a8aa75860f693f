// VDPBF16PS (AVX512-BF16), and tiles of AMX. Each function is compiled for its instruction by an
// attribute, and called only where CPUID has it.

#if defined(__x86_64__)

#include <cpuid.h>
#include <fmt/format.h>
#include <immintrin.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "fp8lab/processor/instructions.hpp"

namespace fp8lab {
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}
constexpr bool bit(unsigned word, int at) { return (word >> at & 1U) != 0; }

constexpr unsigned kFeatures = 7;

// `avx512f` is true only if the operating system saves its registers.
bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512f") != 0 && bit(cpuid(kFeatures, 1).eax, 5);
}

__attribute__((target("avx512f,avx512bf16"))) void vdpbf16ps(const std::uint16_t* a,
                                                             const std::uint16_t* b,
                                                             std::uint32_t* sums) {
  const __m512i x = _mm512_loadu_si512(a);
  const __m512i y = _mm512_loadu_si512(b);
  const __m512 c = _mm512_castsi512_ps(_mm512_loadu_si512(sums));
  const __m512 d = _mm512_dpbf16_ps(c, (__m512bh)x, (__m512bh)y);
  _mm512_storeu_si512(sums, _mm512_castps_si512(d));
}

constexpr CpuInstruction kVdpbf16{"vdpbf16ps", "x86.vdpbf16ps", 2, 16, has_avx512_bf16, vdpbf16ps};

#if defined(__linux__)

/// Linux gives a process the registers of tiles when it asks for them.
bool has_amx_tiles() {
  constexpr long kAskForPermission = 0x1023;
  constexpr long kTileData = 18;
  return bit(cpuid(kFeatures, 0).edx, 24) &&
         syscall(SYS_arch_prctl, kAskForPermission, kTileData) == 0;
}
bool has_amx_bf16() { return bit(cpuid(kFeatures, 0).edx, 22) && has_amx_tiles(); }

constexpr int kTileRows = 16;
constexpr int kTileTerms = 32;
constexpr int kTileBytes = 64;  // of a row

/// Palette 1: tile 0 the sums, tile 1 a, tile 2 b, all of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{kTileBytes, kTileBytes, kTileBytes};
  std::array<std::uint8_t, 16> rows{kTileRows, kTileRows, kTileRows};
};
static_assert(sizeof(TileConfig) == 64);

/// A tile product has an output for every row of a and column of b; independent ones are those of
/// its diagonal. b is stored with the two elements of a pair together.
struct Tiles {
  std::array<std::uint16_t, kTileRows * kTileTerms> b{};
  std::array<std::uint32_t, kTileRows * kTileRows> sums{};

  Tiles(const std::uint16_t* columns, const std::uint32_t* diagonal) {
    for (std::size_t n = 0; n < kTileRows; ++n) {
      for (std::size_t k = 0; k < kTileTerms; ++k)
        b[(k / 2 * kTileRows + n) * 2 + k % 2] = columns[n * kTileTerms + k];
      sums[n * kTileRows + n] = diagonal[n];
    }
  }
  void give(std::uint32_t* diagonal) const {
    for (std::size_t n = 0; n < kTileRows; ++n) diagonal[n] = sums[n * kTileRows + n];
  }
};

__attribute__((target("amx-tile,amx-bf16"))) void tdpbf16ps(const std::uint16_t* a,
                                                            const std::uint16_t* b,
                                                            std::uint32_t* sums) {
  const TileConfig config;
  Tiles tiles(b, sums);
  _tile_loadconfig(&config);
  _tile_loadd(0, tiles.sums.data(), kTileBytes);
  _tile_loadd(1, a, kTileBytes);
  _tile_loadd(2, tiles.b.data(), kTileBytes);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, tiles.sums.data(), kTileBytes);
  _tile_release();
  tiles.give(sums);
}

constexpr std::array kInstructions{
    kVdpbf16,
    CpuInstruction{"tdpbf16ps", "x86.tdpbf16ps", kTileTerms, kTileRows, has_amx_bf16, tdpbf16ps}};
#else
constexpr std::array kInstructions{kVdpbf16};
#endif

}  // namespace

std::span<const CpuInstruction> cpu_instructions() { return kInstructions; }

std::string processor_family() {
  const Registers vendor = cpuid(0, 0);
  std::array<char, 12> name{};
  std::memcpy(name.data(), &vendor.ebx, 4);
  std::memcpy(name.data() + 4, &vendor.edx, 4);
  std::memcpy(name.data() + 8, &vendor.ecx, 4);
  const unsigned signature = cpuid(1, 0).eax;
  const unsigned base = signature >> 8 & 0xf;
  const unsigned family = base == 0xf ? base + (signature >> 20 & 0xff) : base;
  const unsigned model = (signature >> 4 & 0xf) | (signature >> 12 & 0xf0);
  return fmt::format("{} family {} model {} stepping {}", std::string_view(name.data(), 12), family,
                     model, signature & 0xf);
}

}  // namespace fp8lab

#endif
