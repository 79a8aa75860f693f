#include "device_buffer.hpp"

#include <fmt/format.h>

#include "block_cache.hpp"

namespace fp8lab::cuda {
namespace {

void* allocate(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaSuccess) return block;
  if (status != cudaErrorMemoryAllocation) FP8LAB_CUDA_CHECK(status);
  cudaGetLastError();  // it is answered here
  return nullptr;
}

// Freeing cannot report: an earlier fault has surfaced at a checked call.
void release(void* block) { cudaFree(block); }

BlockCache& cache() {
  thread_local BlockCache cache(allocate, release);
  return cache;
}

}  // namespace

void* take_device_memory(std::size_t bytes) {
  void* const block = cache().take(bytes);
  if (block == nullptr)
    throw Error(fmt::format("{} bytes of device memory: not enough is left", bytes));
  return block;
}

void give_device_memory(void* block, std::size_t bytes) { cache().give(block, bytes); }

}  // namespace fp8lab::cuda
