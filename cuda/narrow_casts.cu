// cvt to and from FP4, FP6 and UE8M0: sm_100a and sm_120a, and toolkits that know them (CUDA 12.8).

#include "narrow_casts.hpp"

#include "check.cuh"
#include "host_device.hpp"

#define FP8LAB_HAS_NARROW_CASTS \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))

namespace fp8lab::cuda {

#if FP8LAB_HAS_NARROW_CASTS
namespace {

constexpr int kBlocks = 1056;
constexpr int kThreads = 256;

/// Op::convert(x, low, high): the results for the codes x and x + 1.
template <typename Op>
__global__ void convert_codes(std::uint32_t first, std::size_t pairs, std::uint16_t* codes) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs;
       i += stride) {
    std::uint32_t low;
    std::uint32_t high;
    Op::convert(first + 2 * static_cast<std::uint32_t>(i), low, high);
    codes[2 * i] = static_cast<std::uint16_t>(low);
    codes[2 * i + 1] = static_cast<std::uint16_t>(high);
  }
}

template <typename Op>
void launch(std::uint64_t first, std::size_t count, std::uint16_t* codes) {
  convert_codes<Op><<<kBlocks, kThreads>>>(static_cast<std::uint32_t>(first), count / 2, codes);
  FP8LAB_CUDA_CHECK_LAUNCH("convert_codes");
}

// Two results in the halves of a word of 16 or 32 bits, or in the halves of a byte.
#define FP8LAB_FROM_F32(NAME, PTX)                                                             \
  struct NAME {                                                                                \
    static __device__ void convert(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) { \
      std::uint16_t pair;                                                                      \
      asm(PTX " %0, %1, %2;" : "=h"(pair) : "f"(float_of(x + 1)), "f"(float_of(x)));           \
      low = pair & 0xffu;                                                                      \
      high = pair >> 8;                                                                        \
    }                                                                                          \
  }
#define FP8LAB_FROM_BF16(NAME, PTX)                                                            \
  struct NAME {                                                                                \
    static __device__ void convert(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) { \
      std::uint16_t pair;                                                                      \
      asm(PTX " %0, %1;" : "=h"(pair) : "r"(x | ((x + 1) << 16)));                             \
      low = pair & 0xffu;                                                                      \
      high = pair >> 8;                                                                        \
    }                                                                                          \
  }
#define FP8LAB_WIDENED(NAME, PTX)                                                              \
  struct NAME {                                                                                \
    static __device__ void convert(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) { \
      std::uint32_t both;                                                                      \
      asm(PTX " %0, %1;" : "=r"(both) : "h"(static_cast<std::uint16_t>(x | ((x + 1) << 8))));  \
      low = both & 0xffffu;                                                                    \
      high = both >> 16;                                                                       \
    }                                                                                          \
  }

struct ToE2m1 {
  static __device__ void convert(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) {
    std::uint16_t pair;
    asm("{\n.reg .b8 codes;\ncvt.rn.satfinite.e2m1x2.f32 codes, %1, %2;\n"
        "mov.b16 %0, {codes, 0};\n}"
        : "=h"(pair)
        : "f"(float_of(x + 1)), "f"(float_of(x)));
    low = pair & 0xfu;
    high = pair >> 4;
  }
};
struct FromE2m1 {
  static __device__ void convert(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) {
    std::uint32_t both;
    asm("{\n.reg .b8 codes, none;\nmov.b16 {codes, none}, %1;\n"
        "cvt.rn.f16x2.e2m1x2 %0, codes;\n}"
        : "=r"(both)
        : "h"(static_cast<std::uint16_t>(x | ((x + 1) << 4))));
    low = both & 0xffffu;
    high = both >> 16;
  }
};
FP8LAB_FROM_F32(ToE2m3, "cvt.rn.satfinite.e2m3x2.f32");
FP8LAB_FROM_F32(ToE3m2, "cvt.rn.satfinite.e3m2x2.f32");
FP8LAB_FROM_F32(DownSat, "cvt.rz.satfinite.ue8m0x2.f32");
FP8LAB_FROM_BF16(DownSatBf16, "cvt.rz.satfinite.ue8m0x2.bf16x2");
FP8LAB_FROM_F32(Down, "cvt.rz.ue8m0x2.f32");
FP8LAB_FROM_BF16(DownBf16, "cvt.rz.ue8m0x2.bf16x2");
FP8LAB_FROM_F32(UpSat, "cvt.rp.satfinite.ue8m0x2.f32");
FP8LAB_FROM_BF16(UpSatBf16, "cvt.rp.satfinite.ue8m0x2.bf16x2");
FP8LAB_FROM_F32(Up, "cvt.rp.ue8m0x2.f32");
FP8LAB_FROM_BF16(UpBf16, "cvt.rp.ue8m0x2.bf16x2");
FP8LAB_WIDENED(FromE2m3, "cvt.rn.f16x2.e2m3x2");
FP8LAB_WIDENED(FromE3m2, "cvt.rn.f16x2.e3m2x2");
FP8LAB_WIDENED(FromScale, "cvt.rn.bf16x2.ue8m0x2");

const NamedCast kCasts[] = {
    {"cvt.rn.satfinite.e2m1x2.f32", launch<ToE2m1>},
    {"cvt.rn.f16x2.e2m1x2", launch<FromE2m1>},
    {"cvt.rn.satfinite.e2m3x2.f32", launch<ToE2m3>},
    {"cvt.rn.satfinite.e3m2x2.f32", launch<ToE3m2>},
    {"cvt.rz.satfinite.ue8m0x2.f32", launch<DownSat>},
    {"cvt.rz.satfinite.ue8m0x2.bf16x2", launch<DownSatBf16>},
    {"cvt.rz.ue8m0x2.f32", launch<Down>},
    {"cvt.rz.ue8m0x2.bf16x2", launch<DownBf16>},
    {"cvt.rp.satfinite.ue8m0x2.f32", launch<UpSat>},
    {"cvt.rp.satfinite.ue8m0x2.bf16x2", launch<UpSatBf16>},
    {"cvt.rp.ue8m0x2.f32", launch<Up>},
    {"cvt.rp.ue8m0x2.bf16x2", launch<UpBf16>},
    {"cvt.rn.f16x2.e2m3x2", launch<FromE2m3>},
    {"cvt.rn.f16x2.e3m2x2", launch<FromE3m2>},
    {"cvt.rn.bf16x2.ue8m0x2", launch<FromScale>},
};

}  // namespace

std::span<const NamedCast> narrow_cast_kernels() { return kCasts; }
#else
std::span<const NamedCast> narrow_cast_kernels() { return {}; }
#endif

}  // namespace fp8lab::cuda
