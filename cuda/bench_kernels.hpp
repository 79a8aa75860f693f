#pragma once
// Ceilings that rates are compared with.

#include <cstddef>

namespace fp8lab::cuda {

/// Binary32 FMAs in registers: `blocks` of 256 threads, each `rounds` times 64
/// FMAs. sink: one float a thread. Returns the FMAs launched.
double launch_fma_peak(int blocks, int rounds, float* sink);

}  // namespace fp8lab::cuda
