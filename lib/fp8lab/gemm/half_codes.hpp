#pragma once
// FP8 codes as FP16's in the order of an instruction's halves: what halves.cpp multiplies.

#include <cstdint>

#include "fp8lab/core/target.hpp"

namespace fp8lab::gemm_detail {

/// Terms of the instructions that kernels take.
inline constexpr int kTermsOfHalves = 32;

/// 8-bit codes with a sign whose finite values FP16 holds.
struct HalfCodeLayout {
  int shift = 0;              ///< from a code's fields to those of FP16
  float scale = 1.0F;         ///< of what these are then
  std::uint16_t largest = 0;  ///< magnitude that is no NaN; NaN becomes one of FP16
};

struct HalfCodeKernels {
  /// `count` codes, a multiple of kTermsOfHalves: of each instruction's terms first those with
  /// k mod 4 < 2.
  void (*copy)(const std::uint8_t* from, std::int64_t count, const HalfCodeLayout&,
               std::uint16_t* to);
};

/// Those of `target`; null for the scalar target.
const HalfCodeKernels* half_code_kernels(Target target);

}  // namespace fp8lab::gemm_detail
