// cvt.rs: sm_100a, and toolkits that know it (CUDA 12.8).

#include "check.cuh"
#include "stochastic_casts.hpp"

#define FP8LAB_HAS_STOCHASTIC_CASTS \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))

namespace fp8lab::cuda {

#if FP8LAB_HAS_STOCHASTIC_CASTS
namespace {

constexpr int kBlocks = 256;
constexpr int kThreads = 256;

template <typename Op>
__global__ void cast_stochastically(const float* values, const std::uint32_t* random,
                                    std::size_t count, std::uint32_t* codes) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    codes[i] = Op::convert(values + 4 * i, random[i]);
}

template <typename Op>
void launch(const float* values, const std::uint32_t* random, std::size_t count,
            std::uint32_t* codes) {
  cast_stochastically<Op><<<kBlocks, kThreads>>>(values, random, count, codes);
  FP8LAB_CUDA_CHECK_LAUNCH("cast_stochastically");
}

// RESULT: the constraint and type of the destination.
#define FP8LAB_CAST_FOUR(NAME, PTX, TYPE, CONSTRAINT)                               \
  struct NAME {                                                                     \
    static __device__ std::uint32_t convert(const float* x, std::uint32_t random) { \
      TYPE codes;                                                                   \
      asm(PTX " %0, {%1, %2, %3, %4}, %5;"                                          \
          : CONSTRAINT(codes)                                                       \
          : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(random));               \
      return codes;                                                                 \
    }                                                                               \
  }
#define FP8LAB_CAST_TWO(NAME, PTX)                                                   \
  struct NAME {                                                                      \
    static __device__ std::uint32_t convert(const float* x, std::uint32_t random) {  \
      std::uint32_t codes;                                                           \
      asm(PTX " %0, %1, %2, %3;" : "=r"(codes) : "f"(x[0]), "f"(x[1]), "r"(random)); \
      return codes;                                                                  \
    }                                                                                \
  }
FP8LAB_CAST_FOUR(ToE4m3, "cvt.rs.satfinite.e4m3x4.f32", std::uint32_t, "=r");
FP8LAB_CAST_FOUR(ToE5m2, "cvt.rs.satfinite.e5m2x4.f32", std::uint32_t, "=r");
FP8LAB_CAST_FOUR(ToE2m3, "cvt.rs.satfinite.e2m3x4.f32", std::uint32_t, "=r");
FP8LAB_CAST_FOUR(ToE3m2, "cvt.rs.satfinite.e3m2x4.f32", std::uint32_t, "=r");
FP8LAB_CAST_FOUR(ToE2m1, "cvt.rs.satfinite.e2m1x4.f32", std::uint16_t, "=h");
FP8LAB_CAST_TWO(ToF16, "cvt.rs.f16x2.f32");
FP8LAB_CAST_TWO(ToBf16, "cvt.rs.bf16x2.f32");

const NamedStochasticCast kCasts[] = {
    {"cvt.rs.satfinite.e4m3x4.f32", launch<ToE4m3>},
    {"cvt.rs.satfinite.e5m2x4.f32", launch<ToE5m2>},
    {"cvt.rs.satfinite.e2m3x4.f32", launch<ToE2m3>},
    {"cvt.rs.satfinite.e3m2x4.f32", launch<ToE3m2>},
    {"cvt.rs.satfinite.e2m1x4.f32", launch<ToE2m1>},
    {"cvt.rs.f16x2.f32", launch<ToF16>},
    {"cvt.rs.bf16x2.f32", launch<ToBf16>},
};

}  // namespace

std::span<const NamedStochasticCast> stochastic_cast_kernels() { return kCasts; }
#else
std::span<const NamedStochasticCast> stochastic_cast_kernels() { return {}; }
#endif

}  // namespace fp8lab::cuda
