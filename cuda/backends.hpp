#pragma once
// The device as backends of fp8lab/gemm/backend.hpp: what `--backend` and Python name.

#include <vector>

#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::cuda {

/// Whether the tensor cores have the product: E4M3 or E5M2, in any pairing, summed
/// as `sm90.wgmma.e4m3`. Products under any other model are references.
bool has_tensor_core_product(const GemmProblem& problem);

/// "cpu" and two more. Whatever those do not have is left to the library; what they
/// have throws `NoDevice` where no device is there to do it.
///   cuda           products by wgmma, casts by cvt.rn.satfinite (`fits_satfinite`); compute
///   capability 9.0 cuda-emulated  products without tensor cores, the bits of the problem's model,
///                  on compute capability 8.0 and later; no casts, which the
///                  library makes on the host with the same bits
std::vector<Backend> backends();

}  // namespace fp8lab::cuda
