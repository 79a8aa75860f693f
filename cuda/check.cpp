#include "check.cuh"

#include <fmt/format.h>

#include <filesystem>

#include "driver.hpp"

namespace fp8lab::cuda {

void fail(const char* call, const char* file, int line, std::string_view text,
          std::string_view name) {
  throw Error(fmt::format("{}:{}: {}: {} ({})", std::filesystem::path(file).filename().string(),
                          line, call, text, name));
}

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess)
    fail(call, file, line, cudaGetErrorString(status), cudaGetErrorName(status));
}

void require_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return;
  const DriverState state = driver_state(CUDART_VERSION);
  if (!state.problem.empty()) throw NoDevice("no CUDA device: " + state.problem);
  throw NoDevice(fmt::format("no CUDA device: {}",
                             status == cudaSuccess ? "0 found" : cudaGetErrorString(status)));
}

int require_capability(int least, int most) {
  require_device();
  int device = 0;
  int major = 0;
  int minor = 0;
  FP8LAB_CUDA_CHECK(cudaGetDevice(&device));
  // Asked before every product: the attributes cost nothing, all properties milliseconds.
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  const int capability = 10 * major + minor;
  if (capability >= least && capability <= most) return capability;
  cudaDeviceProp properties{};
  FP8LAB_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  throw NoDevice(fmt::format("this needs a device of compute capability {}.{}{}, got {} ({}.{})",
                             least / 10, least % 10, least == most ? "" : " or later",
                             properties.name, major, minor));
}

}  // namespace fp8lab::cuda
