#pragma once
// The kernels around a product whose operands are tensors of a framework, apart from their launch
// so that a test can run them on the host.

#include <cstddef>
#include <cstdint>

#include "device_load.cuh"
#include "stream_gemm.hpp"

namespace fp8lab::cuda {

__device__ std::int64_t first_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t threads_of_grid() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// Rows of any strides as the kernels of products read them, four bytes a thread at a time.
__global__ void pack_rows(const PackArguments p) {
  const std::int64_t row_words = p.row_bytes / 4;
  auto* to = reinterpret_cast<std::uint32_t*>(p.to);
  for (std::int64_t i = first_of_thread(); i < row_words * p.padded_rows; i += threads_of_grid()) {
    const std::int64_t row = i / row_words;
    std::uint32_t word = 0;
    for (int byte = 0; byte < 4; byte += p.item_bytes) {
      const std::int64_t k = (4 * (i % row_words) + byte) / p.item_bytes;
      if (row >= p.rows || k >= p.k) continue;
      const std::uint8_t* from = p.from + (row * p.row_stride + k * p.k_stride) * p.item_bytes;
      word |= load_word(from, 0, 8 * p.item_bytes) << (8 * byte);
    }
    to[i] = word;
  }
}

/// Each column's sum in binary32, in the order of the rows.
__global__ void sum_columns(const ColumnSums s) {
  for (std::int64_t column = first_of_thread(); column < s.columns; column += threads_of_grid()) {
    float sum = 0.0F;
    for (std::int64_t row = 0; row < s.rows; ++row) sum += s.from[row * s.row_stride + column];
    s.to[column] = sum;
  }
}

}  // namespace fp8lab::cuda
