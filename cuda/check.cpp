#include "check.cuh"

#include <fmt/format.h>

#include <filesystem>

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
  if (status != cudaSuccess || count == 0)
    throw NoDevice(fmt::format("no CUDA device: {}",
                               status == cudaSuccess ? "0 found" : cudaGetErrorString(status)));
}

void require_hopper() {
  require_device();
  int device = 0;
  cudaDeviceProp properties{};
  FP8LAB_CUDA_CHECK(cudaGetDevice(&device));
  FP8LAB_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  if (properties.major != 9 || properties.minor != 0)
    throw NoDevice(
        fmt::format("this command needs a device of compute capability 9.0, got {} "
                    "({}.{})",
                    properties.name, properties.major, properties.minor));
}

}  // namespace fp8lab::cuda
