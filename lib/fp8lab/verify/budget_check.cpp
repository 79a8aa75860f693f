#include "fp8lab/verify/budget_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>

#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"

namespace fp8lab {
namespace {

constexpr std::uint64_t kMostMismatches = 4096;  // that are looked at one by one
constexpr double kBudgetWork = 1e7;              // terms, over all budgets, where they decide
constexpr double kBudgetWorkTold = 2e6;          // and where they are told only

/// Indices of `count` mismatches (payloads of NaN too), evenly spread: every so many-th one.
template <typename Word>
std::vector<std::int64_t> some_mismatches(std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count) {
  std::vector<std::int64_t> indices;
  const std::uint64_t step = std::max<std::uint64_t>(1, count / kMostMismatches);
  std::uint64_t left = 1;
  for (std::size_t at = 0; at < expected.size(); at += sizeof(Word)) {
    Word x = 0;
    Word y = 0;
    std::memcpy(&x, &expected[at], sizeof(Word));
    std::memcpy(&y, &got[at], sizeof(Word));
    left -= x != y ? 1 : 0;
    if (left != 0) continue;
    indices.push_back(static_cast<std::int64_t>(at / sizeof(Word)));
    left = step;
  }
  return indices;
}

double norm_of_row(const CodeMatrix& m, const ScaleLookup& scales, std::int64_t row) {
  double sum = 0.0;
  for (std::int64_t k = 0; k < m.k; ++k) {
    const double x =
        decode(format(m.format), code_at(m, row, k)) * static_cast<double>(scales.at(row, k));
    sum += x * x;
  }
  return std::sqrt(sum);
}

std::vector<double> norms_of_rows(const CodeMatrix& m, const InverseScales& scales, int threads) {
  const ScaleLookup lookup(scales, m);
  std::vector<double> norms(static_cast<std::size_t>(m.rows));
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t row = 0; row < m.rows; ++row)
    error.guard([&] {
      const FloatEnvironment environment;
      norms[static_cast<std::size_t>(row)] = norm_of_row(m, lookup, row);
    });
  error.rethrow();
  return norms;
}

/// The elements that are farthest from the golden ones, beside the norms of what they sum up:
/// of all elements these are the likeliest to lie outside of their budgets.
std::vector<std::int64_t> farthest_off(const Product& product, std::span<const std::byte> golden,
                                       std::span<const std::byte> got, std::int64_t most,
                                       int threads) {
  const GemmProblem& p = product.problem;
  const FormatId id = product.output.format;
  const std::vector<double> a = norms_of_rows(p.a, p.scale_a, threads);
  const std::vector<double> b = norms_of_rows(p.b, p.scale_b, threads);
  using Entry = std::pair<double, std::int64_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> kept;
  for (std::int64_t row = 0; row < product.rows(); ++row)
    for (std::int64_t column = 0; column < product.columns(); ++column) {
      const std::int64_t at = row * product.columns() + column;
      const std::uint32_t x_code = code_at(id, golden, static_cast<std::size_t>(at));
      const std::uint32_t y_code = code_at(id, got, static_cast<std::size_t>(at));
      if (x_code == y_code) continue;
      const double x = decode(format(id), x_code);
      const double y = decode(format(id), y_code);
      if (x == y) continue;  // zeros of both signs
      const double reach =
          a[static_cast<std::size_t>(row)] * b[static_cast<std::size_t>(column)] + std::abs(x);
      double off = std::abs(y - x) / reach;
      if (std::isnan(off)) off = std::isnan(x) && std::isnan(y) ? 0.0 : INFINITY;
      if (kept.size() == static_cast<std::size_t>(most)) {
        if (kept.top().first >= off) continue;
        kept.pop();
      }
      kept.emplace(off, at);
    }
  std::vector<std::int64_t> places;
  for (; !kept.empty(); kept.pop()) places.push_back(kept.top().second);
  return places;
}

}  // namespace

std::vector<std::int64_t> some_mismatches(FormatId id, std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count) {
  switch (format(id).storage_bits) {
    case 8:
      return some_mismatches<std::uint8_t>(expected, got, count);
    case 16:
      return some_mismatches<std::uint16_t>(expected, got, count);
    default:
      return some_mismatches<std::uint32_t>(expected, got, count);
  }
}

BudgetSummary check_budgets(const Product& product, const CodePair& codes,
                            std::span<const std::int64_t> mismatches, bool decides,
                            int wanted_threads) {
  const std::span<const std::byte> golden = codes.golden;
  const std::span<const std::byte> got = codes.got;
  const int threads = team_size(wanted_threads);
  const double terms = static_cast<double>(std::max<std::int64_t>(product.problem.a.k, 1));
  const double work = decides ? kBudgetWork : kBudgetWorkTold;
  const auto most = static_cast<std::int64_t>(std::clamp(work / terms, 64.0, 4096.0));
  const FormatId id = product.output.format;
  std::vector<std::int64_t> chosen;
  if (decides) chosen = farthest_off(product, golden, got, most, threads);
  for (const std::int64_t i : spread(static_cast<std::int64_t>(mismatches.size()), most))
    chosen.push_back(mismatches[static_cast<std::size_t>(i)]);
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<double> relative(chosen.size());
  std::vector<char> inside(chosen.size());
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < chosen.size(); ++i)
    error.guard([&] {
      const FloatEnvironment environment;
      const std::int64_t at = chosen[i];
      const ErrorBudget budget =
          error_budget(product, at / product.columns(), at % product.columns());
      const auto index = static_cast<std::size_t>(at);
      const bool fits =
          allowed(budget, product.output, code_at(id, golden, index), code_at(id, got, index));
      inside[i] = fits ? 1 : 0;
      relative[i] = budget.exact == 0.0 ? INFINITY : budget.total() / std::abs(budget.exact);
    });
  error.rethrow();
  BudgetSummary summary{.checked = chosen.size()};
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (inside[i] == 0) summary.outside.push_back(chosen[i]);
  summary.within = chosen.size() - summary.outside.size();
  if (!relative.empty()) {
    const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(relative.size() / 2);
    std::nth_element(relative.begin(), middle, relative.end());
    summary.median = *middle;
  }
  return summary;
}

}  // namespace fp8lab
