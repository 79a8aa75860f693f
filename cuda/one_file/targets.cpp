// Highway's only function that the library calls, for a program that brings it along:
// which instruction sets this processor and its system have.

#include "hwy/targets.h"

namespace hwy {

std::int64_t SupportedTargets() {
  std::int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  // As Highway asks for them: a set of which one part is missing is not there.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd");
  const bool avx3_dl =
      avx3 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
      __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx512vpopcntdq") &&
      __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("gfni");
  if (__builtin_cpu_supports("sse4.2")) targets |= HWY_SSE4 | HWY_SSSE3;
  if (avx2) targets |= HWY_AVX2;
  if (avx3) targets |= HWY_AVX3;
  if (avx3_dl) targets |= HWY_AVX3_DL;
#endif
  return targets;
}

}  // namespace hwy
