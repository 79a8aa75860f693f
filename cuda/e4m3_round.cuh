#pragma once
// What gemm_e4m3_kernel.cuh reads from shared memory: 32 codes of each row of A and B
// as values, as powers of 256, and as bytes that tell a product's lowest bit and sign.

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <cstdint>

#include "emulated_core.hpp"

namespace fp8lab::cuda {

constexpr int kWarpRows = 64;     // of a warp; a thread has 8, one in each 8
constexpr int kWarpColumns = 32;  // a thread has 8, two neighbours in each 8
constexpr int kRoundCodes = 32;

// A power of 256: BF16 with exponent field 8 x + 64, for the exponent x of a code from 1 on.
// A product of two has 8 (x + y) + 1, and a sum up to 7 more.
constexpr std::uint32_t kPowerOffset = 0x20202020u;  // half of 64: bytes of half a field
constexpr std::uint32_t kLeastPower = 17u << 23;     // of the smallest exponents, 1 and 1
constexpr std::uint32_t kPowerField = 113u << 23;    // from x + y to the field of 2^(x + y - 14)

// The lowest bit of a code, 1 to 18 for 2^-9 to 2^8. The bytes of two operands and of
// the unit add up to less than 128 if the product has bits below the unit.
constexpr std::uint32_t kZeroLow = 0x3c3c3c3cu;  // never
constexpr std::uint32_t kUnitOffset = 258;

#if defined(__CUDACC__)
/// d += A B of 16 x 8 outputs and 16 terms, BF16, as fragments of a warp.
__device__ inline void multiply_powers(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                       std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Whether one thread of the warp says so.
__device__ inline bool nan_in_warp(bool nan) { return __any_sync(0xffffffffu, nan) != 0; }
#endif

/// a + b toward zero.
FP8LAB_HD inline float add_toward_zero(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rz(a, b);
#else
  return fma_toward_zero(a, 1.0F, b);
#endif
}

/// `count` and 128 for each byte of `low` below 128 whose sign bit is set.
FP8LAB_HD inline std::uint32_t count_lost(std::uint32_t low, std::uint32_t sign,
                                          std::uint32_t count) {
  const std::uint32_t lost = ~low & sign;
#if defined(__CUDA_ARCH__)
  return __dp4a(lost, 0x01010101u, count);
#else
  return count + (lost & 0xffu) + (lost >> 8 & 0xffu) + (lost >> 16 & 0xffu) + (lost >> 24);
#endif
}

/// Four bytes that say where the unit of an accumulator is.
FP8LAB_HD inline std::uint32_t unit_bytes(float accumulator) {
  return (kUnitOffset - (bits_of(accumulator) >> 23)) * 0x01010101u;
}

/// 255 in each byte whose highest bit is set, 0 in the others.
FP8LAB_HD inline std::uint32_t spread_signs(std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  std::uint32_t spread = 0;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(spread) : "r"(bytes));
  return spread;
#else
  return ((bytes & 0x80808080u) >> 7) * 255u;
#endif
}

/// Bytes `first` and `first` + 1 of `bytes` as the upper halves of two 16-bit words.
FP8LAB_HD inline std::uint32_t as_upper_halves(std::uint32_t bytes, int first) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(bytes, 0, first == 0 ? 0x1404 : 0x3424);
#else
  const std::uint32_t two = bytes >> (8 * first);
  return (two & 0xffu) << 8 | (two & 0xff00u) << 16;
#endif
}

/// Four codes of E4M3.
struct SplitCodes {
  std::uint32_t low = 0;
  std::uint32_t sign = 0;
  std::uint32_t power[2] = {};  ///< in BF16, two a word

  FP8LAB_HD explicit SplitCodes(std::uint32_t codes) {
    const std::uint32_t high = 0x80808080u;
    const std::uint32_t magnitude = codes & ~high;
    const std::uint32_t not_zero = spread_signs(magnitude + ~high);
    const std::uint32_t stored = codes & 0x78787878u;  // 8 times the exponent
    const std::uint32_t normal = (stored + 0x78787878u) & high;
    const std::uint32_t exponent = stored | ((~normal & high) >> 4);
    const std::uint32_t half_field = ((exponent >> 1) + kPowerOffset) & not_zero;
    power[0] = as_upper_halves(half_field, 0);
    power[1] = as_upper_halves(half_field, 2);
    const std::uint32_t no_1 = ~codes & 0x01010101u;
    const std::uint32_t no_2 = no_1 & (~codes >> 1);
    const std::uint32_t no_4 = no_2 & (~codes >> 2);
    const std::uint32_t lowest = (exponent >> 3) + no_1 + no_2 + no_4;
    low = (lowest & not_zero) | (kZeroLow & ~not_zero);
    sign = codes & high;
  }
};

/// The values of four codes, none of them a NaN.
FP8LAB_HD inline void e4m3_values(std::uint32_t codes, float (&values)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t halves[2];
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(halves[0]), "=r"(halves[1])
      : "r"(codes));
  for (int i = 0; i < 2; ++i) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&halves[i]));
    values[2 * i] = two.x;
    values[2 * i + 1] = two.y;
  }
#else
  for (int byte = 0; byte < 4; ++byte) {
    const auto on_top = static_cast<std::int32_t>(codes << (24 - 8 * byte));
    values[byte] = float_of(static_cast<std::uint32_t>(on_top >> 4) & 0x87f00000u) * 0x1p120F;
  }
#endif
}

/// One operand's part of a round.
template <int kCount>
struct alignas(16) RoundOperand {
  float value[kRoundCodes][kCount];
  uint4 power[kCount][4];
  std::uint32_t low[kRoundCodes / 4][kCount];
  std::uint32_t sign[kRoundCodes / 4][kCount];

  /// Where a row's powers of a thread are: rows in turn take another order, so that
  /// neighbours that write the same part meet in no bank.
  static __device__ int part(int row, int member) { return member ^ (row / 2 % 4); }
  /// Eight powers: terms 4 member to 4 member + 3, and 16 further on.
  __device__ uint4 powers(int row, int member) const { return power[row][part(row, member)]; }
};

template <int kRowCount, int kColumnCount>
struct RoundTile {
  RoundOperand<kRowCount> a;
  RoundOperand<kColumnCount> b;
};

/// The codes of a round that a thread brings: 16 of a row at a time.
template <int kCount, int kThreadCount, bool kIsA>
struct RoundCodes {
  static constexpr int kPieces = 2 * kCount / kThreadCount;
  static_assert(2 * kCount % kThreadCount == 0);
  uint4 piece[kPieces];

  __device__ static int index(int n) { return static_cast<int>(threadIdx.x) + n * kThreadCount; }

  /// From row `first_row` and code `k` on. Rows and their codes are padded.
  __device__ void load(const std::uint8_t* codes, int first_row, int row_bytes, int k) {
    FP8LAB_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const int row = first_row + index(n) % kCount;
      piece[n] = *reinterpret_cast<const uint4*>(codes + static_cast<std::size_t>(row) * row_bytes +
                                                 k + index(n) / kCount * 16);
    }
  }

  /// A row's place: those of a thread stand in fours, neighbouring threads' side by side.
  __device__ static int place(int row) {
    if (kIsA) return row / 32 * 32 + row % 8 * 4 + row / 8 % 4;
    return row / 32 * 32 + row / 16 % 2 * 16 + row / 2 % 4 * 4 + row / 8 % 2 * 2 + row % 2;
  }

  /// True if a code is a NaN.
  __device__ bool split_into(RoundOperand<kCount>& to) const {
    bool special = false;
    FP8LAB_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const int row = index(n) % kCount;
      const int half = index(n) / kCount;
      const int at = place(row);
      const std::uint32_t words[4] = {piece[n].x, piece[n].y, piece[n].z, piece[n].w};
      FP8LAB_UNROLL
      for (int w = 0; w < 4; ++w) {
        const std::uint32_t codes = words[w];
        special |= (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
        const SplitCodes split(codes);
        float values[4];
        e4m3_values(codes, values);
        FP8LAB_UNROLL
        for (int byte = 0; byte < 4; ++byte) to.value[16 * half + 4 * w + byte][at] = values[byte];
        to.low[4 * half + w][at] = split.low;
        to.sign[4 * half + w][at] = split.sign;
        uint2* parts = reinterpret_cast<uint2*>(&to.power[row][RoundOperand<kCount>::part(row, w)]);
        parts[half] = uint2{split.power[0], split.power[1]};
      }
    }
    return special;
  }
};

}  // namespace fp8lab::cuda
