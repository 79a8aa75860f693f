#pragma once
// The loops of the copies that serve as ceilings, one set for each instruction set.

#include <array>
#include <cstddef>
#include <cstdint>

#include "apps/bench/copies.hpp"
#include "fp8lab/core/target.hpp"

namespace fp8lab::bench {

/// The two loops of one kind of copy. `in` and `out` begin on 64 bytes; `count` is a multiple
/// of 64.
struct CopyKernels {
  void (*narrow)(const float* in, std::uint8_t* out, std::size_t count);
  void (*widen)(const std::uint8_t* in, float* out, std::size_t count);
};

/// Indexed by `CopyKind`. The function returns null if the build has none for the target.
using CopyTable = std::array<CopyKernels, 3>;
const CopyTable* copy_kernels(Target target);

}  // namespace fp8lab::bench
