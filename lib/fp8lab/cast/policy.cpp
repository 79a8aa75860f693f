#include "fp8lab/cast/policy.hpp"

#include <string>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::pair<std::string_view, RoundingMode>, 8> kRoundingNames{{
    {"nearest_even", RoundingMode::nearest_even},
    {"nearest_away", RoundingMode::nearest_away},
    {"nearest_toward_zero", RoundingMode::nearest_toward_zero},
    {"toward_zero", RoundingMode::toward_zero},
    {"upward", RoundingMode::upward},
    {"downward", RoundingMode::downward},
    {"stochastic", RoundingMode::stochastic},
    {"to_odd", RoundingMode::to_odd},
}};

constexpr std::array<std::pair<std::string_view, RoundingMode>, 6> kShortRoundingNames{{
    {"rne", RoundingMode::nearest_even},
    {"rna", RoundingMode::nearest_away},
    {"rz", RoundingMode::toward_zero},
    {"ru", RoundingMode::upward},
    {"rd", RoundingMode::downward},
    {"sr", RoundingMode::stochastic},
}};

constexpr std::array<std::string_view, 4> kOverflowNames{"saturate", "non_saturating",
                                                         "by_direction", "canonical_nan"};
constexpr std::array<std::string_view, 5> kInfinityNames{"saturate", "non_saturating", "propagate",
                                                         "canonical_nan", "fnuz_nan"};
constexpr std::array<std::string_view, 3> kSubnormalNames{"preserve", "flush_to_zero",
                                                          "raise_to_min_normal"};
constexpr std::array<std::string_view, 5> kNanNames{"positive_all_ones", "signed_all_ones",
                                                    "signed_quiet", "positive_max", "negative_max"};

}  // namespace

std::string_view to_string(OverflowPolicy policy) {
  return kOverflowNames[static_cast<std::size_t>(policy)];
}

std::string_view to_string(SubnormalPolicy policy) {
  return kSubnormalNames[static_cast<std::size_t>(policy)];
}

std::string_view to_string(InfinityPolicy policy) {
  return kInfinityNames[static_cast<std::size_t>(policy)];
}

std::string_view to_string(NanPolicy policy) { return kNanNames[static_cast<std::size_t>(policy)]; }

const CastProfile& find_cast_profile(std::string_view name) {
  return find_named(kCastProfiles, "profile", name);
}

RoundingMode find_rounding_mode(std::string_view name) {
  std::string known;
  for (const auto& [long_name, mode] : kRoundingNames) {
    if (long_name == name) return mode;
    known += (known.empty() ? "" : ", ") + std::string(long_name);
  }
  for (const auto& [short_name, mode] : kShortRoundingNames)
    if (short_name == name) return mode;
  throw Error("rounding", "one of " + known + " (or rne, rna, rz, ru, rd, sr)",
              "'" + std::string(name) + "'");
}

std::string_view to_string(RoundingMode mode) {
  return kRoundingNames[static_cast<std::size_t>(mode)].first;
}

}  // namespace fp8lab
