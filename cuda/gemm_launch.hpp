#pragma once
// The two products on the device, as launches on prepared device memory.

#include "fp8lab/accumulate/model.hpp"
#include "gemm_arguments.hpp"

struct CUstream_st;

namespace fp8lab::cuda {

/// On the tensor cores, by wgmma: inputs of E4M3 or E5M2, or both of BF16, binary32 sums, a
/// promotion_interval of 0 or a multiple of 32 (BF16: 16). Launched, not synchronised.
void launch_gemm_wgmma(const GemmArguments& arguments, FormatId a, FormatId b);

/// Without tensor cores, bit for bit what the library's model gives. FP8 inputs
/// with 13 alignment bits take the FMA path, everything else integers. On `stream`; without one, on
/// this thread's.
void launch_gemm_emulated(const GemmArguments& arguments, const AccumulatorModel& model, FormatId a,
                          FormatId b, CUstream_st* stream = nullptr);

}  // namespace fp8lab::cuda
