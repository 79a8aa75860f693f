#include "emulated_tiles.hpp"

#include "check.cuh"
#include "device_load.cuh"
#include "tiles.hpp"

namespace fp8lab::cuda {
namespace {

__global__ void __launch_bounds__(256)
    emulate(EmulatedModel model, EmulatedFormat a_format, EmulatedFormat b_format, Halves halves,
            const std::uint8_t* a, const std::uint8_t* b, const float* c, float* d, int steps) {
  const int row_bytes = steps * kStepBytes;
  const int terms = row_bytes * 8 / a_format.storage_bits;
  const auto tile = static_cast<std::size_t>(blockIdx.x);
  for (int output = static_cast<int>(threadIdx.x); output < kTileOutputs; output += 256) {
    const int row = output / kTile;
    const int column = output % kTile;
    const std::uint8_t* a_row = a + (tile * kTile + row) * row_bytes;
    const std::uint8_t* b_row = b + (tile * kTile + column) * row_bytes;
    d[tile * kTileOutputs + output] =
        output_by_integers(model, a_format, b_format, a_row, b_row, terms, halves,
                           c[tile * kTile + case_of_c(row, column)]);
  }
}

__global__ void count_differences(const std::uint32_t* x, const std::uint32_t* y, std::size_t size,
                                  unsigned long long* count) {
  unsigned long long mine = 0;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += stride)
    if (x[i] != y[i]) ++mine;
  if (mine != 0) atomicAdd(count, mine);
}

}  // namespace

void launch_emulated_tiles(const EmulatedModel& model, const EmulatedFormat& a_format,
                           const EmulatedFormat& b_format, Halves halves, const std::uint8_t* a,
                           const std::uint8_t* b, const float* c, float* d, int tiles, int steps) {
  emulate<<<tiles, 256>>>(model, a_format, b_format, halves, a, b, c, d, steps);
  FP8LAB_CUDA_CHECK_LAUNCH("emulate");
}

void launch_count_differences(const std::uint32_t* x, const std::uint32_t* y, std::size_t size,
                              unsigned long long* count) {
  count_differences<<<1024, 256>>>(x, y, size, count);
  FP8LAB_CUDA_CHECK_LAUNCH("count_differences");
}

}  // namespace fp8lab::cuda
