#pragma once
// Macros that define an mma.sync instruction for the probe kernel.

#include "probes/mma_kernel.cuh"

#define FP8LAB_MMA_F32(NAME, PTX)                                                       \
  struct NAME {                                                                         \
    using State = FloatState;                                                           \
    static __device__ void issue(float (&d)[4], const std::uint32_t (&a)[4],            \
                                 const std::uint32_t (&b)[2]) {                         \
      asm volatile("mma.sync.aligned." PTX                                              \
                   " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n" \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }                                                                                   \
  }
#define FP8LAB_MMA_F16(NAME, PTX)                                                               \
  struct NAME {                                                                                 \
    using State = HalfState;                                                                    \
    static __device__ void issue(std::uint32_t (&d)[2], const std::uint32_t (&a)[4],            \
                                 const std::uint32_t (&b)[2]) {                                 \
      asm volatile("mma.sync.aligned." PTX " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n" \
                   : "+r"(d[0]), "+r"(d[1])                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));         \
    }                                                                                           \
  }
