#pragma once
// Which products `--backend cuda` computes on the chip. Needs no CUDA.

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::cuda {

/// Whether the tensor cores have the product: E4M3 or E5M2, in any pairing, summed as
/// `sm90.wgmma.e4m3`, or BF16 summed as `sm90.wgmma.bf16`, with c where the kernel takes it.
/// Products under any other model are references.
bool has_tensor_core_product(const GemmProblem& problem);

}  // namespace fp8lab::cuda
