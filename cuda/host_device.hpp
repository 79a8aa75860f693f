#pragma once
// What lets one header serve the device and the host's tests, which bring their
// own FP8LAB_DYNAMIC_SHARED.

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FP8LAB_HD __host__ __device__
#define FP8LAB_UNROLL _Pragma("unroll")
#define FP8LAB_UNROLL_BY_2 _Pragma("unroll 2")
#define FP8LAB_NO_UNROLL _Pragma("unroll 1")
#define FP8LAB_DYNAMIC_SHARED(name) extern __shared__ __align__(16) std::uint8_t name[]
#else
#define FP8LAB_HD
#define FP8LAB_UNROLL
#define FP8LAB_UNROLL_BY_2
#define FP8LAB_NO_UNROLL
#endif

namespace fp8lab::cuda {

FP8LAB_HD inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

FP8LAB_HD inline float float_of(std::uint32_t bits) {
  float x = 0.0F;
  memcpy(&x, &bits, sizeof x);
  return x;
}

FP8LAB_HD inline int leading_zeros(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(x));
#else
  return x == 0 ? 64 : __builtin_clzll(x);
#endif
}

}  // namespace fp8lab::cuda
