#pragma once
// The device as backends of fp8lab/gemm/backend.hpp: what `--backend` and Python name.

#include <vector>

#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::cuda {

/// "cpu" and two more. Whatever those do not have is left to the library; what they
/// have throws `NoDevice` where no device is there to do it.
///   cuda:          products by wgmma, FP8 and BF16 (`has_tensor_core_product`) on 9.0, casts
///                  by cvt.rn.satfinite (`fits_satfinite`).
///   cuda-emulated: products without tensor cores, the bits of the problem's model, on compute
///                  capability 8.0 and later. No casts: the library makes them on the host.
std::vector<Backend> backends();

}  // namespace fp8lab::cuda
