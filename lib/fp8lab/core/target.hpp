#pragma once
// The instruction set of the vector kernels. Every target gives the same bits; the
// choice changes only the speed.

#include <cstdint>
#include <span>
#include <string_view>

namespace fp8lab {

/// The instruction sets that kernels are written for.
enum class Target : std::uint8_t {
  scalar,  ///< the portable reference
  avx2,    ///< x86-64 with AVX2, FMA and F16C
  avx512,  ///< x86-64 with AVX-512 F, BW, CD, DQ and VL
  neon,    ///< 64-bit ARM
};

/// The targets that this processor and build can run, slowest first; the first is `scalar`.
std::span<const Target> available_targets();

/// The target that kernels use unless an argument says otherwise: the environment
/// variable FP8LAB_TARGET (`scalar`, `avx2`, `avx512`, `neon`), read once, else the
/// fastest available. Throws `Error` for a name that is unknown or not available here.
Target current_target();

/// The available target called `name`. Throws `Error`.
Target find_target(std::string_view name);

/// Throws `Error` unless `target` is available here.
void require_available(Target target);

std::string_view to_string(Target target);

}  // namespace fp8lab
