#include "driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace fp8lab::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// CUDA's name of an error, or its number.
std::string error_name(void* library, int error) {
  using GetName = int (*)(int, const char**);
  const auto get = reinterpret_cast<GetName>(dlsym(library, "cuGetErrorName"));
  const char* name = nullptr;
  if (get != nullptr && get(error, &name) == 0 && name != nullptr) return name;
  return fmt::format("error {}", error);
}

}  // namespace

DriverState driver_state(int needed) {
  DriverState state;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    state.problem = fmt::format(
        "the NVIDIA driver is missing: {}. Install it; in a container, make the GPU visible "
        "(docker run --gpus all)",
        dlerror());
    return state;
  }
  state.library = kLibrary;
  using Init = int (*)(unsigned);
  using GetInt = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(library, "cuInit"));
  const auto get_version = reinterpret_cast<GetInt>(dlsym(library, "cuDriverGetVersion"));
  const auto get_count = reinterpret_cast<GetInt>(dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    state.problem = fmt::format("{} is not a CUDA driver: it has no cuInit", kLibrary);
    return state;
  }
  if (get_version(&state.version) != 0) state.version = 0;
  if (state.version != 0 && state.version / 1000 < needed / 1000) {
    state.problem = fmt::format(
        "the driver supports CUDA {}, but this program needs {}: update the driver, or build with "
        "an older toolkit (12.4 or later)",
        version_text(state.version), version_text(needed));
    return state;
  }
  const int started = init(0);
  if (started != 0) {
    state.problem = fmt::format(
        "the driver finds no usable device ({}{})", error_name(library, started),
        started == kNoDevice ? ": no NVIDIA GPU, or none visible in the container" : "");
    return state;
  }
  if (get_count(&state.devices) != 0 || state.devices == 0)
    state.problem = "the driver lists no device";
  return state;
}

}  // namespace fp8lab::cuda
