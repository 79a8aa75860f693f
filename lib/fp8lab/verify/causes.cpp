#include "fp8lab/verify/causes.hpp"

#include <algorithm>
#include <set>

#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/cast_interval.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/misplaced.hpp"
#include "fp8lab/verify/product_causes.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kRows = 16;
constexpr std::size_t kOtherRows = 4;  // of them, that need have no mismatch
constexpr std::size_t kColumns = 256;

/// Rows and columns with mismatches in them, and some others.
Sample sample_of(const Product& product, std::span<const std::int64_t> mismatches) {
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  const std::int64_t n = product.columns();
  for (const std::int64_t i : spread(static_cast<std::int64_t>(mismatches.size()), kRows * 4)) {
    const std::int64_t at = mismatches[static_cast<std::size_t>(i)];
    if (rows.size() < kRows - kOtherRows) rows.insert(at / n);
    if (rows.contains(at / n) && columns.size() < kColumns / 2) columns.insert(at % n);
  }
  for (const std::int64_t row : spread(product.rows(), kOtherRows)) rows.insert(row);
  for (const std::int64_t column : spread(n, kColumns / 2)) columns.insert(column);
  return {{rows.begin(), rows.end()}, {columns.begin(), columns.end()}};
}

std::vector<ErrorBudget> budgets_of(const Product& product, int threads) {
  std::vector<ErrorBudget> budgets(product.size());
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads))
  for (std::size_t i = 0; i < budgets.size(); ++i)
    error.guard([&] {
      const auto at = static_cast<std::int64_t>(i);
      budgets[i] = error_budget(product, at / product.columns(), at % product.columns());
    });
  error.rethrow();
  return budgets;
}

/// The codes that the activation allows for each value; none where it has bits of its own.
std::vector<CastInterval> reach_of(const OutputCast& output, const Finished& finished) {
  std::vector<CastInterval> allowed;
  for (std::size_t i = 0; i < finished.reach.size(); ++i) {
    const auto value = static_cast<double>(finished.values[i]);
    allowed.push_back(cast_interval(output, value - finished.reach[i], value + finished.reach[i]));
  }
  return allowed;
}

}  // namespace

Diagnosis diagnose(const Product& product, std::span<const std::byte> got,
                   std::span<const std::int64_t> mismatches, const DiagnosisOptions& options) {
  if (mismatches.empty()) return {};
  return diagnose(product, got, sample_of(product, mismatches), options);
}

Diagnosis diagnose(const Product& product, std::span<const std::byte> got, const Sample& sample,
                   const DiagnosisOptions& options) {
  const FloatEnvironment environment;
  const Product sampled = take(product, sample);
  const FormatId id = product.output.format;
  const Finished finished = compute_finished(sampled, true, options.threads);
  const std::vector<float>& golden = finished.values;
  std::vector<std::uint32_t> got_codes;
  for (const std::int64_t row : sample.rows)
    for (const std::int64_t column : sample.columns)
      got_codes.push_back(
          code_at(id, got, static_cast<std::size_t>(row * product.columns() + column)));
  Judge judge(product.output, code_words(id, cast_output(golden, product.output, options.threads)),
              std::move(got_codes),
              options.closeness == Closeness::budget ? budgets_of(sampled, options.threads)
                                                     : std::vector<ErrorBudget>{});
  judge.allow(reach_of(product.output, finished));
  for (const WrongProduct& wrong : options.more) {
    const auto output =
        attempt([&] { return compute(take(wrong.product, sample), options.threads); });
    if (output)
      judge.consider(wrong.name, wrong.text,
                     code_words(id, cast_output(*output, product.output, options.threads)));
  }
  if (!options.golden.empty())
    try_misplacements({id, product.rows(), product.columns(), options.golden, got}, sample, judge);
  try_mistakes(product, sample, sampled, golden, judge, options.threads);
  std::vector<std::string> measured;
  if (!judge.any_whole_cause()) {
    const Sample area = options.area.value_or(Sample{spread(product.rows(), product.rows()),
                                                     spread(product.columns(), product.columns())});
    const MeasuredPart part{product, got, area, sample, options.threads};
    if (judge.any_cause())
      try_measured_beside(part, sampled, judge);
    else
      measured = try_measured(part, sampled, golden, judge);
  }
  Diagnosis diagnosis = judge.finish();
  diagnosis.measured = std::move(measured);
  return diagnosis;
}

}  // namespace fp8lab
