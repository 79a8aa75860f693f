#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "check.cuh"
#include "command.hpp"
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
  return {fmt::format("{}, compute capability {}.{}, {} multiprocessors, {} MiB", properties.name,
                      properties.major, properties.minor, properties.multiProcessorCount,
                      properties.totalGlobalMem >> 20),
          fmt::format("{}{}for CUDA {}", own, own.empty() ? "" : ", ", version(driver)),
          fmt::format("runtime {}, nvcc {}.{}, cuBLASLt {}", version(runtime),
                      CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cublasLtGetVersion())};
}

int run_info() {
  require_device();
  const DeviceFacts facts = device_facts();
  fmt::print("gpu     {}\ndriver  {}\ncuda    {}\nprobes  {}\n", facts.gpu, facts.driver,
             facts.cuda, all_probes().size());
  return kPass;
}

int print_table(const std::vector<CheckRow>& rows) {
  if (rows.empty()) return kPass;
  fmt::print("\n{:<48}{:>14}{:>12}\n", "instruction", "cases", "mismatches");
  bool pass = true;
  for (const CheckRow& row : rows) {
    if (row.problem.empty())
      fmt::print("{:<48}{:>14}{:>12}\n", row.name, row.cases, row.mismatches);
    else
      fmt::print("{:<48}{:>14}{:>12}  {}\n", row.name, "-", "-", row.problem);
    pass &= row.mismatches == 0 && row.problem.empty();
  }
  return pass ? kPass : kMismatch;
}

}  // namespace fp8lab::cuda
