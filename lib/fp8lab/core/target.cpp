#include "fp8lab/core/target.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 4> kTargetNames{"scalar", "avx2", "avx512", "neon"};

#if defined(__x86_64__)
/// Clang 14 does not know F16C as a feature to ask for.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<Target> detect_targets() {
  std::vector<Target> targets{Target::scalar};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
    targets.push_back(Target::avx2);
  if (targets.back() == Target::avx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    targets.push_back(Target::avx512);
#elif defined(__aarch64__)
  targets.push_back(Target::neon);
#endif
  return targets;
}

std::string available_names() {
  std::string names;
  for (const Target target : available_targets())
    names += (names.empty() ? "" : ", ") + std::string(to_string(target));
  return names;
}

Target choose_target() {
  const char* forced = std::getenv("FP8LAB_TARGET");
  return forced == nullptr || *forced == '\0' ? available_targets().back() : find_target(forced);
}

}  // namespace

std::span<const Target> available_targets() {
  static const std::vector<Target> kTargets = detect_targets();
  return kTargets;
}

Target current_target() {
  static const Target kTarget = choose_target();
  return kTarget;
}

Target find_target(std::string_view name) {
  for (const Target target : available_targets())
    if (to_string(target) == name) return target;
  const bool known = std::ranges::find(kTargetNames, name) != kTargetNames.end();
  throw Error(
      "FP8LAB_TARGET", "one of " + available_names(),
      "'" + std::string(name) + "'" + (known ? ", which this processor does not support" : ""));
}

void require_available(Target target) {
  if (std::ranges::find(available_targets(), target) == available_targets().end())
    throw Error("target", "one of " + available_names(), std::string(to_string(target)));
}

std::string_view to_string(Target target) { return kTargetNames[static_cast<std::size_t>(target)]; }

}  // namespace fp8lab
