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
  struct NAME : WgmmaDefaults {                                                         \
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
  struct NAME : WgmmaDefaults {                                                                    \
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

// 256 columns with binary32 sums: the largest shape.
#define FP8LAB_R128                                                                              \
  FP8LAB_R32                                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "   \
  "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "   \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "     \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "   \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FP8LAB_OUT128(d) \
  FP8LAB_O32("+f", d, 0), FP8LAB_O32("+f", d, 32), FP8LAB_O32("+f", d, 64), FP8LAB_O32("+f", d, 96)
#define FP8LAB_WGMMA_N256_SHARED(NAME, PTX, TAIL)                                                \
  FP8LAB_WGMMA_SHARED(NAME, PTX, 256, float, 128, FP8LAB_R128, FP8LAB_OUT128(d), "%128", "%129", \
                      TAIL)

// 64 columns, binary32 sums, operands in shared memory, A or B negated. MASK_A and MASK_B: the sign
// bits of a word. FACTORS: what the instruction multiplies A and B with.
#define FP8LAB_WGMMA_NEGATED(NAME, PTX, MASK_A, MASK_B, FACTORS)                                  \
  struct NAME : WgmmaDefaults {                                                                   \
    using Register = float;                                                                       \
    static constexpr int kN = 64;                                                                 \
    static constexpr int kRegisters = 32;                                                         \
    static constexpr bool kAInRegisters = false;                                                  \
    static constexpr std::uint32_t kFlipA = MASK_A;                                               \
    static constexpr std::uint32_t kFlipB = MASK_B;                                               \
    static __device__ void issue(float (&d)[32], std::uint64_t a, std::uint64_t b) {              \
      asm volatile("wgmma.mma_async.sync.aligned." PTX " {" FP8LAB_R32 "}, %32, %33, 1, " FACTORS \
                   ";\n"                                                                          \
                   : FP8LAB_OUT32(d)                                                              \
                   : "l"(a), "l"(b));                                                             \
    }                                                                                             \
  }

// The same sparse. ELEMENT: bytes of an element; FILLER: of B where the instruction must not look.
#define FP8LAB_WGMMA_SPARSE(NAME, PTX, ELEMENT, FILLER, TAIL)                      \
  struct NAME : WgmmaDefaults {                                                    \
    using Register = float;                                                        \
    static constexpr int kN = 64;                                                  \
    static constexpr int kRegisters = 32;                                          \
    static constexpr bool kAInRegisters = false;                                   \
    static constexpr int kSparseElement = ELEMENT;                                 \
    static constexpr std::uint32_t kFiller = FILLER;                               \
    static __device__ void issue(float (&d)[32], std::uint64_t a, std::uint64_t b, \
                                 std::uint32_t metadata) {                         \
      asm volatile("wgmma.mma_async.sp.sync.aligned." PTX " {" FP8LAB_R32          \
                   "}, %32, %33, %34, 0, 1, 1, 1" TAIL ";\n"                       \
                   : FP8LAB_OUT32(d)                                               \
                   : "l"(a), "l"(b), "r"(metadata));                               \
    }                                                                              \
  }
