#include "fp8lab/gemm/backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

struct Named {
  std::string name;
  GemmBackend run;
};

struct Registry {
  std::vector<Named> backends{{"cpu", gemm}};
  std::size_t selected = 0;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

auto find(std::string_view name) {
  return std::ranges::find(registry().backends, name, &Named::name);
}

}  // namespace

void add_gemm_backend(std::string name, GemmBackend run) {
  const auto found = find(name);
  if (found != registry().backends.end())
    found->run = run;
  else
    registry().backends.push_back({std::move(name), run});
}

void select_gemm_backend(std::string_view name) {
  const auto found = find(name);
  require(found != registry().backends.end(), "backend",
          fmt::format("one of {}", fmt::join(gemm_backends(), ", ")), fmt::format("'{}'", name));
  registry().selected = static_cast<std::size_t>(found - registry().backends.begin());
}

std::vector<std::string> gemm_backends() {
  std::vector<std::string> names;
  for (const Named& backend : registry().backends) names.push_back(backend.name);
  return names;
}

void gemm_on_backend(const GemmProblem& problem, std::span<float> d, int threads) {
  const Registry& r = registry();
  r.backends[r.selected].run(problem, d, threads);
}

}  // namespace fp8lab
