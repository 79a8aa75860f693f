// Launches of the kernels around a product on a framework's stream.

#include "stream_kernels.cuh"

#include "check.cuh"
#include "stream_calls.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

void launch_pack_rows(const PackArguments& p, Stream stream) {
  pack_rows<<<blocks_for(p.padded_rows * (p.row_bytes / 4)), kThreads, 0, stream>>>(p);
  FP8LAB_CUDA_CHECK_LAUNCH("pack_rows");
}

void launch_sum_columns(const ColumnSums& s, Stream stream) {
  sum_columns<<<blocks_for(s.columns), kThreads, 0, stream>>>(s);
  FP8LAB_CUDA_CHECK_LAUNCH("sum_columns");
}

}  // namespace fp8lab::cuda
