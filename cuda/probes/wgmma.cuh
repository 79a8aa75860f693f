#pragma once
// The wgmma probe kernel, and the macros that define an instruction for it.

#include <cuda_fp16.h>

#include "layout.hpp"
#include "tiles.hpp"
#include "wgmma_sync.cuh"

namespace fp8lab::cuda {

/// Instructions in flight at once: chained ones see the accumulator as the
/// tensor core left it, without a trip through a wait.
inline constexpr int kChain = 4;

/// How accumulator registers hold values: binary32 one each, FP16 two.
template <typename Register>
struct AccumulatorRegisters;

template <>
struct AccumulatorRegisters<float> {
  static constexpr int kValues = 1;
  static __device__ void put(float& reg, int, float value) { reg = value; }
  static __device__ float get(float reg, int) { return reg; }
  static __device__ void pin(float& reg) { asm volatile("" : "+f"(reg)::"memory"); }
};

template <>
struct AccumulatorRegisters<std::uint32_t> {
  static constexpr int kValues = 2;
  static __device__ void put(std::uint32_t& reg, int half, float value) {
    const std::uint32_t code = __half_as_ushort(__float2half_rn(value));
    reg = half == 0 ? code : reg | (code << 16);
  }
  static __device__ float get(std::uint32_t reg, int half) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(reg >> (16 * half))));
  }
  static __device__ void pin(std::uint32_t& reg) { asm volatile("" : "+r"(reg)::"memory"); }
};

/// Op: kN columns, kRegisters accumulator registers of type Register, kAInRegisters, issue(...).
template <typename Op>
__global__ void __launch_bounds__(128)
    wgmma_probe(const std::uint8_t* a, const std::uint8_t* b, const float* c, float* d, int steps) {
  using Register = typename Op::Register;
  using Access = AccumulatorRegisters<Register>;
  constexpr int kGroups = kTile / Op::kN;
  constexpr int kTileBytes = kTile * kStepBytes;
  __shared__ alignas(128) std::uint8_t a_shared[kChain * kTileBytes];
  __shared__ alignas(128) std::uint8_t b_shared[kChain * kTileBytes];
  const int thread = static_cast<int>(threadIdx.x);
  const int row_bytes = steps * kStepBytes;
  const auto tile = static_cast<std::size_t>(blockIdx.x);
  a += tile * kTile * row_bytes;
  b += tile * kTile * row_bytes;
  c += tile * kTile;
  d += tile * kTileOutputs;

  Register sums[kGroups][Op::kRegisters];
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < Op::kRegisters * Access::kValues; ++i) {
      const Place at = accumulator(thread, i);
      Access::put(sums[group][i / Access::kValues], i % Access::kValues,
                  c[case_of_c(at.row, at.column + group * Op::kN)]);
    }

  for (int first = 0; first < steps; first += kChain) {
    const int count = min(kChain, steps - first);
    for (int word = thread; word < count * kTileBytes / 4; word += 128) {
      const int step = word / (kTileBytes / 4);
      const int row = word / (kStepBytes / 4) % kTile;
      const int byte = word % (kStepBytes / 4) * 4;
      const std::uint32_t to = step * kTileBytes + core_matrix_offset(row, byte);
      const int from = row * row_bytes + (first + step) * kStepBytes + byte;
      *reinterpret_cast<std::uint32_t*>(a_shared + to) =
          *reinterpret_cast<const std::uint32_t*>(a + from);
      *reinterpret_cast<std::uint32_t*>(b_shared + to) =
          *reinterpret_cast<const std::uint32_t*>(b + from);
    }
    shared_writes_before_wgmma();
    __syncthreads();

#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const std::uint32_t b_at = shared_address(b_shared) + step * kTileBytes;
      std::uint32_t a_registers[4];
      if constexpr (Op::kAInRegisters) {
#pragma unroll
        for (int reg = 0; reg < 4; ++reg) {
          const Place at = a_fragment(thread, reg);
          a_registers[reg] = *reinterpret_cast<const std::uint32_t*>(
              a + at.row * row_bytes + (first + step) * kStepBytes + at.column);
        }
      }
      wgmma_fence();
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        // N columns of B are N / 8 row groups of its tile.
        const std::uint64_t b_matrix =
            core_descriptor(b_at + group * (Op::kN / 8) * kCoreStrideBytes);
        if constexpr (Op::kAInRegisters)
          Op::issue(sums[group], a_registers, b_matrix);
        else
          Op::issue(sums[group], core_descriptor(shared_address(a_shared) + step * kTileBytes),
                    b_matrix);
      }
      wgmma_commit();
      // The registers of A may not change under an instruction in flight.
      if constexpr (Op::kAInRegisters) wgmma_wait();
    }
    wgmma_wait();
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < Op::kRegisters; ++i) Access::pin(sums[group][i]);
    __syncthreads();
  }

#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < Op::kRegisters * Access::kValues; ++i) {
      const Place at = accumulator(thread, i);
      d[at.row * kTile + at.column + group * Op::kN] =
          Access::get(sums[group][i / Access::kValues], i % Access::kValues);
    }
}

}  // namespace fp8lab::cuda

#define FP8LAB_R16                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
  "%15"
#define FP8LAB_R32 \
  FP8LAB_R16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FP8LAB_O4(c, d, i) c((d)[i]), c((d)[i + 1]), c((d)[i + 2]), c((d)[i + 3])
#define FP8LAB_O16(c, d, i) \
  FP8LAB_O4(c, d, i), FP8LAB_O4(c, d, i + 4), FP8LAB_O4(c, d, i + 8), FP8LAB_O4(c, d, i + 12)
#define FP8LAB_O32(c, d, i) FP8LAB_O16(c, d, i), FP8LAB_O16(c, d, i + 16)

// NAME: the struct. PTX: the instruction's name. REGISTERS/OPERANDS: the
// accumulator's placeholders and operands. A and B: placeholders that follow.
// TAIL: transposition flags where the instruction has them.
#define FP8LAB_WGMMA_SHARED(NAME, PTX, N, TYPE, COUNT, REGISTERS, OPERANDS, A, B, TAIL) \
  struct NAME {                                                                         \
    using Register = TYPE;                                                              \
    static constexpr int kN = N;                                                        \
    static constexpr int kRegisters = COUNT;                                            \
    static constexpr bool kAInRegisters = false;                                        \
    static __device__ void issue(TYPE (&d)[COUNT], std::uint64_t a, std::uint64_t b) {  \
      asm volatile("wgmma.mma_async.sync.aligned." PTX " {" REGISTERS "}, " A ", " B    \
                   ", 1, 1, "                                                           \
                   "1" TAIL ";\n"                                                       \
                   : OPERANDS                                                           \
                   : "l"(a), "l"(b));                                                   \
    }                                                                                   \
  }

#define FP8LAB_WGMMA_REGISTER(NAME, PTX, N, TYPE, COUNT, REGISTERS, OPERANDS, A, B, TAIL)          \
  struct NAME {                                                                                    \
    using Register = TYPE;                                                                         \
    static constexpr int kN = N;                                                                   \
    static constexpr int kRegisters = COUNT;                                                       \
    static constexpr bool kAInRegisters = true;                                                    \
    static __device__ void issue(TYPE (&d)[COUNT], const std::uint32_t (&a)[4], std::uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned." PTX " {" REGISTERS "}, {" A "}, " B             \
                   ", 1, 1, 1" TAIL ";\n"                                                          \
                   : OPERANDS                                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                          \
    }                                                                                              \
  }

// The three shapes in use: 64 columns with binary32 or FP16 sums, and 8 columns.
#define FP8LAB_OUT32(d) FP8LAB_O32("+f", d, 0)
#define FP8LAB_OUT16(d) FP8LAB_O16("+r", d, 0)
#define FP8LAB_OUT4(d) FP8LAB_O4("+f", d, 0)

#define FP8LAB_WGMMA_F32_SHARED(NAME, PTX, TAIL) \
  FP8LAB_WGMMA_SHARED(NAME, PTX, 64, float, 32, FP8LAB_R32, FP8LAB_OUT32(d), "%32", "%33", TAIL)
#define FP8LAB_WGMMA_F32_REGISTER(NAME, PTX, TAIL)                             \
  FP8LAB_WGMMA_REGISTER(NAME, PTX, 64, float, 32, FP8LAB_R32, FP8LAB_OUT32(d), \
                        "%32, %33, %34, %35", "%36", TAIL)
#define FP8LAB_WGMMA_F16_SHARED(NAME, PTX, TAIL)                                                   \
  FP8LAB_WGMMA_SHARED(NAME, PTX, 64, std::uint32_t, 16, FP8LAB_R16, FP8LAB_OUT16(d), "%16", "%17", \
                      TAIL)
#define FP8LAB_WGMMA_F16_REGISTER(NAME, PTX, TAIL)                                     \
  FP8LAB_WGMMA_REGISTER(NAME, PTX, 64, std::uint32_t, 16, FP8LAB_R16, FP8LAB_OUT16(d), \
                        "%16, %17, %18, %19", "%20", TAIL)
#define FP8LAB_WGMMA_N8_SHARED(NAME, PTX, TAIL) \
  FP8LAB_WGMMA_SHARED(NAME, PTX, 8, float, 4, "%0, %1, %2, %3", FP8LAB_OUT4(d), "%4", "%5", TAIL)
