#include "fp8lab/gemm/backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

bool fits_satfinite(FormatId id, const CastPolicy& policy, std::span<const float> values) {
  if (id != FormatId::e4m3fn && id != FormatId::e5m2) return false;
  if (policy.rounding != RoundingMode::nearest_even ||
      policy.subnormals != SubnormalPolicy::preserve || policy.max_magnitude != 0.0)
    return false;
  const bool saturates =
      policy.overflow == OverflowPolicy::saturate && policy.infinity == InfinityPolicy::saturate;
  const auto largest = static_cast<float>(format(id).max_finite());
  return std::ranges::all_of(values, [&](float x) {
    if (!std::isnan(x)) return saturates || std::abs(x) <= largest;
    if (policy.nan == NanPolicy::signed_all_ones) return !std::signbit(x);
    return policy.nan == NanPolicy::positive_all_ones;
  });
}

std::vector<std::string> backend_names(std::span<const Backend> backends) {
  std::vector<std::string> names;
  for (const Backend& backend : backends) names.push_back(backend.name);
  return names;
}

const Backend& find_backend(std::span<const Backend> backends, std::string_view name) {
  const auto found = std::ranges::find(backends, name, &Backend::name);
  require(found != backends.end(), "backend",
          fmt::format("one of {}", fmt::join(backend_names(backends), ", ")),
          fmt::format("'{}'", name));
  return *found;
}

void gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d, int threads) {
  if (!try_gemm_on(backend, problem, d, threads)) gemm(problem, d, threads);
}

bool try_gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d,
                 int threads) {
  if (backend.gemm) return backend.gemm(problem, d, threads);
  gemm(problem, d, threads);
  return true;
}

bool try_cast_on(const Backend& backend, FormatId format, const CastPolicy& policy,
                 std::span<const float> values, std::span<std::uint8_t> codes) {
  require(values.size() == codes.size(), "codes", fmt::format("{} codes, as values", values.size()),
          fmt::format("{}", codes.size()));
  return backend.cast && backend.cast(format, policy, values, codes);
}

}  // namespace fp8lab
