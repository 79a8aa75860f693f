#include "probes/probe.hpp"

#include "check.cuh"

namespace fp8lab::cuda {

const std::vector<Probe>& all_probes() {
  static const std::vector<Probe> kProbes = [] {
    std::vector<Probe> probes;
    for (const std::span<const Probe> part :
         {wgmma_fp8_probes(), wgmma_half_output_probes(), wgmma_wide_probes(), mma_probes()})
      probes.insert(probes.end(), part.begin(), part.end());
    return probes;
  }();
  return kProbes;
}

void launch_probe(const Probe& probe, const std::uint8_t* a, const std::uint8_t* b, const float* c,
                  float* d, int tiles, int steps) {
  void* arguments[] = {&a, &b, &c, &d, &steps};
  FP8LAB_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(probe.kernel),
                                     dim3(static_cast<unsigned>(tiles)), dim3(128), arguments, 0,
                                     nullptr));
}

}  // namespace fp8lab::cuda
