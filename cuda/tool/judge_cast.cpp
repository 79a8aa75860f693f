#include "tool/judge_cast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::uint64_t kShown = 20;
constexpr std::size_t kKept = 10'000;

struct Difference {
  std::uint64_t input;
  std::uint16_t chip;
};

std::uint32_t result_of(const CastInstruction& one, const CastPolicy& policy, std::uint64_t input) {
  const Unpacked x = unpack(format(one.from), static_cast<std::uint32_t>(input));
  return cast(format(one.to), policy, x).code;
}

/// Another rounding or another treatment of what is too large that gives all results that differ.
std::string explained(const CastInstruction& one, const std::vector<Difference>& differences) {
  std::string names;
  for (const RoundingMode mode :
       {RoundingMode::nearest_even, RoundingMode::nearest_away, RoundingMode::nearest_toward_zero,
        RoundingMode::toward_zero, RoundingMode::upward, RoundingMode::downward})
    for (const CastProfile& profile : kCastProfiles) {
      CastPolicy policy = profile.policy;
      policy.rounding = mode;
      const bool all =
          std::all_of(differences.begin(), differences.end(), [&](const Difference& different) {
            return result_of(one, policy, different.input) == different.chip;
          });
      if (!all) continue;
      names += fmt::format("{}{} with {}", names.empty() ? "" : "; as good: ", profile.name,
                           to_string(mode));
    }
  return names.empty() ? "no rounding of the library explains them" : "explained by " + names;
}

}  // namespace

CheckRow judge_cast(const CastInstruction& one, const RunCast& run, std::uint64_t chunk) {
  CheckRow row{std::string(one.name), one.inputs(), 0};
  std::vector<Difference> kept;
  for (std::uint64_t first = 0; first < row.cases; first += chunk) {
    const std::uint64_t count = std::min(chunk, row.cases - first);
    const std::vector<std::uint16_t> chip = run(first, count);
    std::vector<Difference> wrong;
#pragma omp parallel for schedule(static)
    for (std::uint64_t i = 0; i < count; ++i) {
      if (result_of(one, one.policy, first + i) == chip[i]) continue;
#pragma omp critical
      wrong.push_back({first + i, chip[i]});
    }
    std::sort(wrong.begin(), wrong.end(),
              [](const Difference& x, const Difference& y) { return x.input < y.input; });
    for (const Difference& different : wrong) {
      if (++row.mismatches <= kShown)
        fmt::print("{}: input {:08x}: the chip gives {:04x}, the library {:04x}\n", row.name,
                   different.input, different.chip, result_of(one, one.policy, different.input));
      if (kept.size() < kKept) kept.push_back(different);
    }
  }
  if (row.mismatches > 0) row.note = explained(one, kept);
  return row;
}

}  // namespace fp8lab::cuda
