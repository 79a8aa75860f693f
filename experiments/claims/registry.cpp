#include <fmt/format.h>

#include <array>
#include <cmath>

#include "claims/groups.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab::experiments {
namespace {

std::vector<Claim> join_groups() {
  std::vector<Claim> claims;
  for (const auto group :
       {failure_mode_claims, accumulator_claims, listing_claims, guide_listing_claims,
        auto_scaling_claims, optimizer_claims, scaling_claims, system_claims, naive_run_claims,
        training_claims, state_claims, published_claims, chip_claims, watched_claims,
        conversion_claims, traffic_claims}) {
    const std::vector<Claim> more = group();
    claims.insert(claims.end(), more.begin(), more.end());
  }
  for (Claim& claim : claims) {
    const Quotation& quotation = find_quotation(claim.id);
    claim.line = quotation.line;
    claim.words = quotation.words;
  }
  return claims;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames{"holds", "holds with a correction",
                                                   "does not hold", "cannot tell"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view to_string(Basis basis) {
  constexpr std::array<std::string_view, 4> kNames{"measured", "recorded", "by reading",
                                                   "arithmetic"};
  return kNames[static_cast<std::size_t>(basis)];
}

double value_of(Values values, std::string_view name) {
  for (const MeasuredValue& v : values)
    if (v.name == name) return v.value;
  throw Error("values", "one called " + std::string(name), "none");
}

const std::vector<Claim>& all_claims() {
  static const std::vector<Claim> kClaims = join_groups();
  return kClaims;
}

const Claim& find_claim(std::string_view id) {
  std::vector<std::string_view> known;
  for (const Claim& claim : all_claims()) {
    if (claim.id == id) return claim;
    known.push_back(claim.id);
  }
  throw Error("claim", expected_name(known, id), "'" + std::string(id) + "'");
}

Measurement measure(const Claim& claim, const ClaimContext& context) {
  Measurement measurement = claim.measure(context);
  for (const MeasuredValue& v : measurement.values)
    require(std::isfinite(v.value), fmt::format("claim {}: {}", claim.id, v.name),
            "a finite measured value", fmt::format("{}", v.value));
  measurement.verdict = claim.judge(measurement.values);
  return measurement;
}

}  // namespace fp8lab::experiments
