#include "probes/probe.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "check.cuh"

namespace fp8lab::cuda {
namespace {

/// What this program holds machine code for.
constexpr std::array kCubins{FP8LAB_CUBINS};

std::vector<NamedKernel> all_kernels() {
  std::vector<NamedKernel> kernels;
  for (const std::span<const NamedKernel> part :
       {wgmma_fp8_kernels(), wgmma_half_output_kernels(), wgmma_wide_kernels(),
        wgmma_form_kernels(), mma_kernels(), mma_sparse_kernels(), mma_fp8_own_kernels(),
        mma_fp8_kernels(), mma_scaled_kernels(), tcgen05_kernels()})
    kernels.insert(kernels.end(), part.begin(), part.end());
  return kernels;
}

}  // namespace

Chip this_chip() {
  int device = 0;
  int major = 0;
  int minor = 0;
  int driver = 0;
  FP8LAB_CUDA_CHECK(cudaGetDevice(&device));
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FP8LAB_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  FP8LAB_CUDA_CHECK(cudaDriverGetVersion(&driver));
  const char* force = std::getenv("CUDA_FORCE_PTX_JIT");
  const bool forced = force != nullptr && std::strcmp(force, "0") != 0;
  const int capability = 10 * major + minor;
  return {capability, compiler_of(capability, kCubins, CUDART_VERSION, driver, forced)};
}

std::vector<Probe> probes_of(const Chip& chip) {
  const std::vector<NamedKernel> kernels = all_kernels();
  std::vector<Probe> probes;
  for (ProbedInstruction& instruction : instructions_of(chip)) {
    const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const NamedKernel& kernel) {
      return kernel.name == instruction.name;
    });
    // Older toolkits do not have every instruction.
    if (found != kernels.end()) probes.push_back({std::move(instruction), found->kernel});
  }
  return probes;
}

std::size_t kernels_built() { return all_kernels().size(); }

void launch_probe(const Probe& probe, TileArguments arguments, int tiles) {
  void* parameters[] = {&arguments};
  FP8LAB_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(probe.kernel),
                                     dim3(static_cast<unsigned>(tiles)), dim3(128), parameters, 0,
                                     nullptr));
}

}  // namespace fp8lab::cuda
