#pragma once
// The product without tensor cores on operands that already lie on the device, such as a
// framework's tensors: queued on the caller's stream, without a copy to the host and without
// waiting. This part needs no CUDA: it checks arguments and plans; `DeviceCalls` does the rest.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gemm_arguments.hpp"

struct CUstream_st;

namespace fp8lab::cuda {

/// A stream as CUDA's functions take it.
using Stream = CUstream_st*;

/// Rows to copy: element (row, k) is at from[(row * row_stride + k * k_stride) * item_bytes]. They
/// become [padded_rows, row_bytes] with zeros past the matrix.
struct PackArguments {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_stride = 0;  ///< in elements
  std::int64_t k_stride = 1;
  std::int64_t padded_rows = 0;
  int row_bytes = 0;
  int item_bytes = 1;
};

/// to[column] = the sum of from[row * row_stride + column] over all rows.
struct ColumnSums {
  const float* from = nullptr;
  float* to = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
};

/// What a product asks of CUDA: `device_calls()` of stream_calls.hpp, or a test's own. All but the
/// first three are queued on the stream. They throw `Error`.
struct DeviceCalls {
  int (*current_device)() = nullptr;
  void (*set_device)(int device) = nullptr;
  int (*capability)(int device) = nullptr;  ///< 90 is 9.0
  void (*pack)(const PackArguments& arguments, Stream stream) = nullptr;
  void (*multiply)(const GemmArguments& arguments, const AccumulatorModel& model, FormatId a,
                   FormatId b, Stream stream) = nullptr;
  void (*sum_columns)(const ColumnSums& arguments, Stream stream) = nullptr;
};

/// The device of the tensors, and the stream as a framework names it: 0 is CUDA's legacy default
/// stream (`torch.cuda.current_stream().cuda_stream` of a thread that chose none).
struct StreamPlace {
  int device = 0;
  std::uintptr_t stream = 0;
};

/// The stream of a name. This folder is compiled with a default stream for each thread, for which
/// 0 would be another stream than for the framework.
Stream stream_of(std::uintptr_t name);

/// A product in device memory: in `problem` the data of A, B and their scales are device addresses.
/// C must be null. d: row-major [m, n]. workspace: `workspace_bytes`, which must stay until the
/// work is done (memory that the framework's allocator took for the same stream does).
struct StreamGemm {
  GemmProblem problem;
  std::span<float> d;
  std::span<std::uint8_t> workspace;
};

/// Bytes for the operands that are not read where they are. An operand is read in place if its rows
/// are contiguous and 16-byte aligned, their number a multiple of kPaddedRows and their bytes one
/// of kPaddedBytes; any other is copied, padded, on the device.
std::size_t workspace_bytes(const GemmProblem& problem);

/// Queues the product: the bits of fp8lab::gemm, where the model is one that `emulated_model`
/// covers. m or n may be 0. The current device is the caller's again afterwards. Throws `Error`
/// before anything is queued for a model, format, shape or scales that do not fit, k = 0, a C, a
/// workspace that is too small, and a device below compute capability 8.0.
void gemm_on_stream(const StreamGemm& gemm, const StreamPlace& place, const DeviceCalls& calls);

/// Queues the sums of columns: binary32, to nearest even, row after row. Throws `Error` for
/// negative sizes and for a row_stride below the number of columns.
void sum_columns_on_stream(const ColumnSums& sums, const StreamPlace& place,
                           const DeviceCalls& calls);

}  // namespace fp8lab::cuda
