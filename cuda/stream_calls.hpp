#pragma once
// CUDA behind `DeviceCalls`.

#include "stream_gemm.hpp"

namespace fp8lab::cuda {

/// CUDA's own. `capability` throws `NoDevice` where there is no device, and `Error` for a number
/// that no device has.
const DeviceCalls& device_calls();

/// stream_kernels.cu: queue the kernels of stream_kernels.cuh.
void launch_pack_rows(const PackArguments& arguments, Stream stream);
void launch_sum_columns(const ColumnSums& arguments, Stream stream);

}  // namespace fp8lab::cuda
