#pragma once
// The cases of a switch over Target that call `function` of each compiled
// target, and the switch whose targets return tables; for files that Highway compiles
// once for each.

#include "fp8lab/core/target.hpp"
#include "hwy/highway.h"

#if HWY_TARGETS & HWY_AVX2
#define FP8LAB_AVX2_CASE(function) \
  case Target::avx2:               \
    return N_AVX2::function();
#else
#define FP8LAB_AVX2_CASE(function)
#endif

// AVX-512 of Ice Lake and later counts bits in one instruction.
#if HWY_TARGETS & HWY_AVX3
#if HWY_TARGETS & HWY_AVX3_DL
#define FP8LAB_AVX512_CASE(function)                                            \
  case Target::avx512:                                                          \
    return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0 ? N_AVX3_DL::function() \
                                                        : N_AVX3::function();
#else
#define FP8LAB_AVX512_CASE(function) \
  case Target::avx512:               \
    return N_AVX3::function();
#endif
#else
#define FP8LAB_AVX512_CASE(function)
#endif

#if HWY_TARGETS & HWY_NEON
#define FP8LAB_NEON_CASE(function) \
  case Target::neon:               \
    return N_NEON::function();
#else
#define FP8LAB_NEON_CASE(function)
#endif

#define FP8LAB_TARGET_CASES(function) \
  FP8LAB_AVX2_CASE(function)          \
  FP8LAB_AVX512_CASE(function)        \
  FP8LAB_NEON_CASE(function)

/// Defines `const Table* function(Target)`: that of a compiled target, or null.
#define FP8LAB_TABLE_OF_TARGET(Table, function) \
  const Table* function(Target target) {        \
    switch (target) {                           \
      FP8LAB_TARGET_CASES(function)             \
      default:                                  \
        return nullptr;                         \
    }                                           \
  }
