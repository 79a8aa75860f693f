#include "stream_calls.hpp"

#include <fmt/format.h>

#include "check.cuh"
#include "gemm_launch.hpp"

namespace fp8lab::cuda {
namespace {

int current_device() {
  require_device();
  int device = 0;
  FP8LAB_CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

void set_device(int device) {
  int count = 0;
  FP8LAB_CUDA_CHECK(cudaGetDeviceCount(&count));
  require(device >= 0 && device < count, "device", fmt::format("0 to {}", count - 1), device);
  FP8LAB_CUDA_CHECK(cudaSetDevice(device));
}

int capability(int device) {
  int major = 0;
  int minor = 0;
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

}  // namespace

const DeviceCalls& device_calls() {
  static constexpr DeviceCalls kCalls{current_device,   set_device,           capability,
                                      launch_pack_rows, launch_gemm_emulated, launch_sum_columns};
  return kCalls;
}

}  // namespace fp8lab::cuda
