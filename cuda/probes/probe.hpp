#pragma once
// One probe is one instruction, wrapped in a kernel that feeds it batches of tiles.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "probes/instructions.hpp"

namespace fp8lab::cuda {

/// One block of 128 threads a tile. FP16 accumulators convert c to FP16 (nearest even) and give
/// back the FP16 value.
using ProbeKernel = void (*)(TileArguments arguments);

/// The kernel of an instruction, by its name in all_instructions().
struct NamedKernel {
  std::string_view name;
  ProbeKernel kernel;
};

struct Probe : ProbedInstruction {
  ProbeKernel kernel = nullptr;
};

/// The device at hand, as the probes' rules want to know it. Touches CUDA.
Chip this_chip();

/// Every probe that this build has for a chip; FP8 mma.sync with FP16 output needs CUDA 12.8,
/// tcgen05 12.9. Does not touch CUDA.
std::vector<Probe> probes_of(const Chip& chip);

/// How many instructions this build has kernels of, on whatever chip.
std::size_t kernels_built();

/// Launches a probe on device memory; checked, not synchronised.
void launch_probe(const Probe& probe, TileArguments arguments, int tiles);

// The parts of the table, each in its own source.
std::span<const NamedKernel> wgmma_fp8_kernels();
std::span<const NamedKernel> wgmma_half_output_kernels();
std::span<const NamedKernel> wgmma_wide_kernels();
std::span<const NamedKernel> wgmma_form_kernels();
std::span<const NamedKernel> mma_kernels();
std::span<const NamedKernel> mma_sparse_kernels();
std::span<const NamedKernel> mma_fp8_own_kernels();
std::span<const NamedKernel> mma_fp8_kernels();
std::span<const NamedKernel> mma_scaled_kernels();
std::span<const NamedKernel> tcgen05_kernels();

}  // namespace fp8lab::cuda
