#include "casts.hpp"

#include "check.cuh"
#include "host_device.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kBlocks = 1056;  // eight for each of an H100's or H200's 132 multiprocessors
constexpr int kThreads = 256;

/// Two codes, the first operand's in the low byte.
template <Fp8 kTo>
__device__ std::uint16_t pair_from_floats(float low, float high) {
  std::uint16_t pair;
  if constexpr (kTo == Fp8::e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ std::size_t first_index() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::size_t stride() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

template <Fp8 kTo>
__global__ void from_float(std::uint32_t first, std::size_t pairs, std::uint16_t* codes) {
  for (std::size_t i = first_index(); i < pairs; i += stride()) {
    const std::uint32_t bits = first + 2 * static_cast<std::uint32_t>(i);
    codes[i] = pair_from_floats<kTo>(float_of(bits), float_of(bits + 1));
  }
}

template <Fp8 kTo>
__global__ void from_values(const float2* values, std::size_t pairs, std::uint16_t* codes) {
  for (std::size_t i = first_index(); i < pairs; i += stride())
    codes[i] = pair_from_floats<kTo>(values[i].x, values[i].y);
}

template <Fp8 kTo>
__global__ void from_half(std::uint16_t* codes) {
  for (std::size_t i = first_index(); i < 1u << 15; i += stride()) {
    const auto low = static_cast<std::uint32_t>(2 * i);
    const std::uint32_t halves = low | ((low + 1) << 16);
    std::uint16_t pair;
    if constexpr (kTo == Fp8::e4m3)
      asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(pair) : "r"(halves));
    else
      asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(pair) : "r"(halves));
    codes[i] = pair;
  }
}

template <Fp8 kFrom>
__global__ void to_half(std::uint32_t* halves) {
  for (std::size_t i = first_index(); i < 1u << 7; i += stride()) {
    const auto low = static_cast<std::uint16_t>(2 * i);
    const auto pair = static_cast<std::uint16_t>(low | ((low + 1) << 8));
    std::uint32_t both;
    if constexpr (kFrom == Fp8::e4m3)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(pair));
    else
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(both) : "h"(pair));
    halves[i] = both;
  }
}

/// Four codes of four scaled floats.
__device__ std::uint32_t quantize(float4 x, float scale) {
  const std::uint32_t low = pair_from_floats<Fp8::e4m3>(x.x * scale, x.y * scale);
  const std::uint32_t high = pair_from_floats<Fp8::e4m3>(x.z * scale, x.w * scale);
  return low | (high << 16);
}

__device__ float largest(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

/// Magnitudes order like their bits, so the maximum is an integer one.
__device__ void raise_amax(float mine, float* amax) {
  const unsigned warp_max = __reduce_max_sync(~0u, bits_of(mine));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(amax), warp_max);
}

template <bool kQuantize, bool kAmax>
__global__ void one_read(const float4* x, std::size_t quads, float scale, std::uint32_t* codes,
                         float* amax) {
  float mine = 0.0F;
  for (std::size_t i = first_index(); i < quads; i += stride()) {
    const float4 values = x[i];
    if constexpr (kAmax) mine = fmaxf(mine, largest(values));
    if constexpr (kQuantize) codes[i] = quantize(values, scale);
  }
  if constexpr (kAmax) raise_amax(mine, amax);
}

__global__ void second_read(const float4* x, std::size_t quads, const float* amax,
                            std::uint32_t* codes) {
  const float scale = __fdiv_rn(448.0F, *amax);
  for (std::size_t i = first_index(); i < quads; i += stride()) codes[i] = quantize(x[i], scale);
}

const float4* quads_of(const float* x) { return reinterpret_cast<const float4*>(x); }
std::uint32_t* words_of(std::uint8_t* codes) { return reinterpret_cast<std::uint32_t*>(codes); }

}  // namespace

void launch_cast_from_float(Fp8 to, std::uint64_t first, std::size_t count, std::uint8_t* codes) {
  const auto kernel = to == Fp8::e4m3 ? from_float<Fp8::e4m3> : from_float<Fp8::e5m2>;
  kernel<<<kBlocks, kThreads>>>(static_cast<std::uint32_t>(first), count / 2,
                                reinterpret_cast<std::uint16_t*>(codes));
  FP8LAB_CUDA_CHECK_LAUNCH("from_float");
}

void launch_cast_of_values(Fp8 to, const float* values, std::size_t count, std::uint8_t* codes) {
  const auto kernel = to == Fp8::e4m3 ? from_values<Fp8::e4m3> : from_values<Fp8::e5m2>;
  kernel<<<kBlocks, kThreads>>>(reinterpret_cast<const float2*>(values), count / 2,
                                reinterpret_cast<std::uint16_t*>(codes));
  FP8LAB_CUDA_CHECK_LAUNCH("from_values");
}

void launch_cast_from_half(Fp8 to, std::uint8_t* codes) {
  const auto kernel = to == Fp8::e4m3 ? from_half<Fp8::e4m3> : from_half<Fp8::e5m2>;
  kernel<<<kBlocks, kThreads>>>(reinterpret_cast<std::uint16_t*>(codes));
  FP8LAB_CUDA_CHECK_LAUNCH("from_half");
}

void launch_cast_to_half(Fp8 from, std::uint16_t* halves) {
  const auto kernel = from == Fp8::e4m3 ? to_half<Fp8::e4m3> : to_half<Fp8::e5m2>;
  kernel<<<kBlocks, kThreads>>>(reinterpret_cast<std::uint32_t*>(halves));
  FP8LAB_CUDA_CHECK_LAUNCH("to_half");
}

void launch_quantize_one_read(const float* x, std::size_t size, float scale, std::uint8_t* codes,
                              float* amax) {
  one_read<true, true><<<kBlocks, kThreads>>>(quads_of(x), size / 4, scale, words_of(codes), amax);
  FP8LAB_CUDA_CHECK_LAUNCH("one_read");
}

void launch_amax(const float* x, std::size_t size, float* amax) {
  one_read<false, true><<<kBlocks, kThreads>>>(quads_of(x), size / 4, 1.0F, nullptr, amax);
  FP8LAB_CUDA_CHECK_LAUNCH("amax");
}

void launch_quantize_with_amax(const float* x, std::size_t size, const float* amax,
                               std::uint8_t* codes) {
  second_read<<<kBlocks, kThreads>>>(quads_of(x), size / 4, amax, words_of(codes));
  FP8LAB_CUDA_CHECK_LAUNCH("second_read");
}

}  // namespace fp8lab::cuda
