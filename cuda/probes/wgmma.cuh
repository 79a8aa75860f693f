#pragma once
// Macros that define a wgmma instruction for the probe kernel.

#include "probes/wgmma_kernel.cuh"

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
