#pragma once
// Every CUDA call goes through these checks: the error names the call, where it
// stands, and CUDA's own text. cublaslt.hpp adds the check of cuBLASLt's calls.

#include <cuda_runtime_api.h>

#include <string_view>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {

/// No usable device: the tool says so and exits 2, as for any usage error.
class NoDevice : public Error {
 public:
  using Error::Error;
};

/// Throws `Error` with file:line, call, text and name of what went wrong.
[[noreturn]] void fail(const char* call, const char* file, int line, std::string_view text,
                       std::string_view name);

/// Throws `Error` as `fail` does unless the status is success.
void check(cudaError_t status, const char* call, const char* file, int line);

/// Throws `NoDevice` unless a CUDA device is there and answers.
void require_device();

/// Throws `NoDevice` unless the device's compute capability (90 is 9.0) is in that range; returns
/// it.
int require_capability(int least, int most);

/// The tensor-core product is made of Hopper's wgmma.
inline void require_hopper() { require_capability(90, 90); }

}  // namespace fp8lab::cuda

#define FP8LAB_CUDA_CHECK(call) ::fp8lab::cuda::check((call), #call, __FILE__, __LINE__)

/// After a launch: what the launch itself says. Asynchronous faults surface at
/// the next checked synchronising call.
#define FP8LAB_CUDA_CHECK_LAUNCH(kernel) \
  ::fp8lab::cuda::check(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)
