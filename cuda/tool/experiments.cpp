#include "tool/experiments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <sstream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::cuda {
namespace {

constexpr const char* kCounted = "counted";

/// How often a backend was asked, and how often it did what was asked.
struct Count {
  std::atomic<std::uint64_t> asked{0};
  std::atomic<std::uint64_t> done{0};

  bool add(bool did) {
    ++asked;
    if (did) ++done;
    return did;
  }
};
Backend inner;
Count products;
Count casts;

bool counted_gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  return products.add(inner.gemm != nullptr && inner.gemm(problem, d, threads));
}
bool counted_cast(FormatId format, const CastPolicy& policy, std::span<const float> values,
                  std::span<std::uint8_t> codes) {
  return casts.add(inner.cast(format, policy, values, codes));
}

std::vector<Table> tables_on(const char* backend, const Experiment& experiment, std::uint64_t seed,
                             bool quick) {
  select_backend(backend);
  const RunContext context{
      Parameters::from_toml(experiment.default_toml, quick), seed, 0, {}, nullptr};
  return experiment.run(context).tables;
}

std::vector<std::string> lines_of(const std::vector<Table>& tables) {
  std::vector<std::string> lines;
  for (const Table& table : tables) {
    std::istringstream text(table.csv());
    for (std::string line; std::getline(text, line);)
      lines.push_back(fmt::format("{}: {}", table.name(), line));
  }
  return lines;
}

}  // namespace

CheckRow compare_experiment(const Experiment& experiment, const std::string& backend,
                            std::uint64_t seed, bool quick) {
  inner = find_backend(backend);
  products.asked = products.done = casts.asked = casts.done = 0;
  add_backend({kCounted, counted_gemm, inner.cast == nullptr ? nullptr : counted_cast});
  const std::vector<std::string> there = lines_of(tables_on(kCounted, experiment, seed, quick));
  const std::vector<std::string> here = lines_of(tables_on("cpu", experiment, seed, quick));
  CheckRow row{fmt::format("{} on {}", experiment.name, backend), here.size(), 0};
  for (std::size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const std::string& expected = i < here.size() ? here[i] : "";
    const std::string& got = i < there.size() ? there[i] : "";
    if (expected == got) continue;
    if (++row.mismatches <= 3)
      fmt::print("{}: {}\n  the CPU: {}\n  {}: {}\n", experiment.name, i, expected, backend, got);
  }
  row.note = fmt::format("{} of {} products and {} of {} casts there", products.done.load(),
                         products.asked.load(), casts.done.load(), casts.asked.load());
  return row;
}

}  // namespace fp8lab::cuda
