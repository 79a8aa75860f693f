#include "tool/experiments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::string_view kBf16Accumulator = "bf16_accumulator";

/// How often a backend was asked, and how often it did what was asked.
struct Count {
  std::atomic<std::uint64_t> asked{0};
  std::atomic<std::uint64_t> done{0};

  [[nodiscard]] std::string text(const char* what) const {
    return asked == 0 ? fmt::format("no {}", what)
                      : fmt::format("{} of {} {}", done.load(), asked.load(), what);
  }
  bool add(bool did) {
    ++asked;
    if (did) ++done;
    return did;
  }
};

/// `inner`, counted; the counts must outlive it.
Backend counted(const Backend& inner, Count& products, Count& casts) {
  Backend backend{"counted",
                  [&inner, &products](const GemmProblem& problem, std::span<float> d, int threads) {
                    return products.add(try_gemm_on(inner, problem, d, threads));
                  },
                  {}};
  if (inner.cast)
    backend.cast = [&inner, &casts](FormatId format, const CastPolicy& policy,
                                    std::span<const float> values, std::span<std::uint8_t> codes) {
      return casts.add(inner.cast(format, policy, values, codes));
    };
  return backend;
}

std::vector<Table> tables_on(const Backend& backend, const Experiment& experiment,
                             std::uint64_t seed, bool quick) {
  Parameters parameters = Parameters::from_toml(experiment.default_toml, quick);
  if (parameters.values().contains(kBf16Accumulator))
    parameters.set(fmt::format("{}=sm90.wgmma.bf16", kBf16Accumulator));
  const RunContext context{std::move(parameters), seed, 0, {}, nullptr, backend};
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

RanThere what_ran(const Experiment& experiment, const Backend& backend, std::uint64_t seed,
                  bool quick) {
  Count products;
  Count casts;
  static_cast<void>(tables_on(counted(backend, products, casts), experiment, seed, quick));
  return {products.asked, products.done, casts.asked, casts.done};
}

CheckRow compare_experiment(const Experiment& experiment, const Backend& backend,
                            std::uint64_t seed, bool quick) {
  Count products;
  Count casts;
  const std::vector<std::string> there =
      lines_of(tables_on(counted(backend, products, casts), experiment, seed, quick));
  const std::vector<std::string> here = lines_of(tables_on({}, experiment, seed, quick));
  CheckRow row{fmt::format("{} on {}", experiment.name, backend.name), here.size(), 0};
  for (std::size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const std::string& expected = i < here.size() ? here[i] : "";
    const std::string& got = i < there.size() ? there[i] : "";
    if (expected == got) continue;
    if (++row.mismatches <= 3)
      fmt::print("{}: {}\n  the CPU: {}\n  {}: {}\n", experiment.name, i, expected, backend.name,
                 got);
  }
  row.note =
      products.asked + casts.asked == 0
          ? "asks the backend for nothing"
          : fmt::format("{} and {} ran there", products.text("products"), casts.text("casts"));
  fmt::print("{}: {} lines of tables, {} differ; {}\n", row.name, row.cases, row.mismatches,
             row.note);
  return row;
}

}  // namespace fp8lab::cuda
