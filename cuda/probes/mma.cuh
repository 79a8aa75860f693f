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

// 16 bytes of K.
#define FP8LAB_MMA_SHORT_F32(NAME, PTX)                                                         \
  struct NAME {                                                                                 \
    using State = FloatState;                                                                   \
    static __device__ void issue(float (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) { \
      asm volatile("mma.sync.aligned." PTX                                                      \
                   " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"                     \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                             \
                   : "r"(a[0]), "r"(a[1]), "r"(b));                                             \
    }                                                                                           \
  }
#define FP8LAB_MMA_SHORT_F16(NAME, PTX)                                              \
  struct NAME {                                                                      \
    using State = HalfState;                                                         \
    static __device__ void issue(std::uint32_t (&d)[2], const std::uint32_t (&a)[2], \
                                 std::uint32_t b) {                                  \
      asm volatile("mma.sync.aligned." PTX " {%0, %1}, {%2, %3}, {%4}, {%0, %1};\n"  \
                   : "+r"(d[0]), "+r"(d[1])                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(b));                                  \
    }                                                                                \
  }

// Metadata in the order of places came to mma.sp as a promise with PTX ISA 8.5.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define FP8LAB_MMA_SP "mma.sp::ordered_metadata.sync.aligned."
#else
#define FP8LAB_MMA_SP "mma.sp.sync.aligned."
#endif
#define FP8LAB_MMA_SPARSE_F32(NAME, PTX, ELEMENT, FILLER)                                         \
  struct NAME {                                                                                   \
    using State = FloatState;                                                                     \
    static constexpr int kElement = ELEMENT;                                                      \
    static constexpr std::uint32_t kFiller = FILLER;                                              \
    static __device__ void issue(float (&d)[4], const std::uint32_t (&a)[4],                      \
                                 const std::uint32_t (&b)[4], std::uint32_t metadata) {           \
      asm volatile(FP8LAB_MMA_SP PTX                                                              \
                   " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, "  \
                   "%12, 0x0;\n"                                                                  \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), \
                     "r"(b[3]), "r"(metadata));                                                   \
    }                                                                                             \
  }
