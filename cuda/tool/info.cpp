#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "check.cuh"
#include "command.hpp"
#include "cublaslt_library.hpp"
#include "driver.hpp"
#include "probes/probe.hpp"

namespace fp8lab::cuda {
namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

/// The driver's own version, which the runtime does not tell: from NVML, which comes
/// with the driver and is not linked; empty if it is not there.
std::string driver_version() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  using Call = int (*)();
  using GetText = int (*)(char*, unsigned);
  const auto init = reinterpret_cast<Call>(dlsym(library, "nvmlInit_v2"));
  const auto get = reinterpret_cast<GetText>(dlsym(library, "nvmlSystemGetDriverVersion"));
  const auto shutdown = reinterpret_cast<Call>(dlsym(library, "nvmlShutdown"));
  std::array<char, 96> text{};
  if (init != nullptr && get != nullptr && shutdown != nullptr && init() == 0) {
    if (get(text.data(), static_cast<unsigned>(text.size())) != 0) text[0] = '\0';
    shutdown();
  }
  dlclose(library);
  return text.data();
}

}  // namespace

DeviceFacts device_facts() {
  int device = 0;
  int driver = 0;
  int runtime = 0;
  cudaDeviceProp properties{};
  FP8LAB_CUDA_CHECK(cudaGetDevice(&device));
  FP8LAB_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  FP8LAB_CUDA_CHECK(cudaDriverGetVersion(&driver));
  FP8LAB_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const std::string own = driver_version();
  const LtLibrary& library = find_lt_library();
  return {fmt::format("{}, compute capability {}.{}, {} multiprocessors, {} MiB", properties.name,
                      properties.major, properties.minor, properties.multiProcessorCount,
                      properties.totalGlobalMem >> 20),
          fmt::format("{}{}for CUDA {}", own, own.empty() ? "" : ", ", version(driver)),
          fmt::format("runtime {}, nvcc {}.{}, cuBLASLt {}", version(runtime),
                      CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                      library.missing.empty() ? fmt::format("{}", library.cublasLtGetVersion())
                                              : std::string("missing"))};
}

namespace {

/// What there is and what is missing, where there is no device to ask.
void print_what_is_missing(const DriverState& state) {
  const LtLibrary& library = find_lt_library();
  fmt::print("driver   {}\n",
             state.library.empty() ? "missing: needed by every command except `pack`"
             : state.version == 0
                 ? state.library + ", version unknown"
                 : fmt::format("{}, for CUDA {}", state.library, version(state.version)));
  fmt::print("device   {}\n", state.devices);
  fmt::print("cuBLASLt {}\n",
             library.missing.empty()
                 ? library.file
                 : "missing: needed by `search` and two benchmarks: " + library.missing);
}

}  // namespace

int run_info() {
  if (const DriverState state = driver_state(CUDART_VERSION); !state.problem.empty())
    print_what_is_missing(state);
  require_device();
  const DeviceFacts facts = device_facts();
  const Chip chip = this_chip();
  fmt::print("gpu     {}\ndriver  {}\ncuda    {}\nprobes  {} of {} in this build\n", facts.gpu,
             facts.driver, facts.cuda, probes_of(chip).size(), kernels_built());
  return kPass;
}

}  // namespace fp8lab::cuda
