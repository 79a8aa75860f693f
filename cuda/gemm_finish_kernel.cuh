#pragma once
// What follows the products on the tensor cores, apart from its launch so that a test can run it on
// the host.

#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

/// Scales that do not change along K, and c with them.
__global__ void finish_all(const GemmArguments g) {
  const std::size_t size = static_cast<std::size_t>(g.m) * g.n;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += stride)
    g.d[i] = finish(g, g.d[i], static_cast<int>(i / g.n), static_cast<int>(i % g.n));
}

}  // namespace fp8lab::cuda
