#pragma once
// The launches of the product on the tensor cores, one for each pair of inputs.

#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

/// Each in a source of its name, `gemm_wgmma_<inputs>.cu`. Launched, not synchronised.
void launch_wgmma_e4m3(const GemmArguments& arguments);
void launch_wgmma_e4m3_e5m2(const GemmArguments& arguments);
void launch_wgmma_e5m2_e4m3(const GemmArguments& arguments);
void launch_wgmma_e5m2(const GemmArguments& arguments);
void launch_wgmma_bf16(const GemmArguments& arguments);

}  // namespace fp8lab::cuda
