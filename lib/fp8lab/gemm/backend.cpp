#include "fp8lab/gemm/backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

bool gemm_on_cpu(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm(problem, d, threads);
  return true;
}

struct Registry {
  std::vector<Backend> backends{{"cpu", gemm_on_cpu, nullptr}};
  std::size_t selected = 0;

  [[nodiscard]] std::size_t find(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::find(backends, name, &Backend::name) -
                                    backends.begin());
  }
  [[nodiscard]] std::size_t require_known(std::string_view name) const {
    const std::size_t at = find(name);
    require(at < backends.size(), "backend",
            fmt::format("one of {}", fmt::join(backend_names(), ", ")), fmt::format("'{}'", name));
    return at;
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

const Backend& selected() { return registry().backends[registry().selected]; }

}  // namespace

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

void add_backend(Backend backend) {
  std::vector<Backend>& backends = registry().backends;
  const std::size_t at = registry().find(backend.name);
  if (at < backends.size())
    backends[at] = std::move(backend);
  else
    backends.push_back(std::move(backend));
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend& backend : registry().backends) names.push_back(backend.name);
  return names;
}

Backend find_backend(std::string_view name) {
  return registry().backends[registry().require_known(name)];
}

void select_backend(std::string_view name) { registry().selected = registry().require_known(name); }

void gemm_on_backend(const GemmProblem& problem, std::span<float> d, int threads) {
  if (!selected().gemm(problem, d, threads)) gemm(problem, d, threads);
}

bool backend_casts() { return selected().cast != nullptr; }

bool cast_on_backend(FormatId format, const CastPolicy& policy, std::span<const float> values,
                     std::span<std::uint8_t> codes) {
  require(values.size() == codes.size(), "codes", fmt::format("{} codes, as values", values.size()),
          fmt::format("{}", codes.size()));
  return backend_casts() && selected().cast(format, policy, values, codes);
}

}  // namespace fp8lab
