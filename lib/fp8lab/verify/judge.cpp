#include "fp8lab/verify/judge.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {

namespace {

constexpr std::int64_t kProbeSide = 4;  // rows and columns that a hypothesis is tried on first

}  // namespace

std::vector<std::uint32_t> code_words(FormatId id, std::span<const std::byte> codes) {
  const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
  std::vector<std::uint32_t> result(codes.size() / width);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = code_at(id, codes, i);
  return result;
}

Judge::Judge(const OutputCast& output, std::vector<std::uint32_t> golden,
             std::vector<std::uint32_t> got, std::vector<ErrorBudget> budgets)
    : output_(output),
      golden_(std::move(golden)),
      got_(std::move(got)),
      budgets_(std::move(budgets)) {
  for (std::size_t i = 0; i < golden_.size(); ++i)
    (right(i, got_[i]) ? diagnosis_.right : diagnosis_.mismatches) += 1;
}

void Judge::consider(std::string name, std::string text, std::span<const std::uint32_t> codes) {
  ++diagnosis_.tried;
  Cause cause{std::move(name), std::move(text), 0, 0};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (right(i, got_[i]))
      cause.contradicted += contradicts(i, codes[i]) ? 1 : 0;
    else
      cause.explained += explains(i, codes[i]) ? 1 : 0;
  }
  const auto share = [](std::uint64_t part, double of, std::uint64_t all) {
    return static_cast<double>(part) - of * static_cast<double>(all);
  };
  if (cause.explained > 0 &&
      share(cause.explained, kExplainedShare, diagnosis_.mismatches) >= 0.0 &&
      share(cause.contradicted, kContradictedShare, diagnosis_.right) <= 0.0)
    diagnosis_.causes.push_back(std::move(cause));
}

bool Judge::explains(std::size_t place, std::uint32_t code) const {
  if (same(got_[place], code)) return true;
  if (budgets_.empty() || is_nan(code) || is_nan(got_[place])) return false;
  // Both may be off by as much as the budget allows.
  const ErrorBudget& budget = budgets_[place];
  const Format& f = format(output_.format);
  const double off = std::abs(decode(f, got_[place]) - decode(f, code));
  return !budget.special && off <= 2.0 * budget.total();
}

Sample Judge::probe(std::int64_t rows, std::int64_t columns) const {
  Sample all;
  std::vector<bool> wrong_columns(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    bool any = false;
    for (std::int64_t column = 0; column < columns; ++column) {
      if (is_right(static_cast<std::size_t>(row * columns + column))) continue;
      any = true;
      wrong_columns[static_cast<std::size_t>(column)] = true;
    }
    if (any) all.rows.push_back(row);
  }
  for (std::int64_t column = 0; column < columns; ++column)
    if (wrong_columns[static_cast<std::size_t>(column)]) all.columns.push_back(column);
  const auto some = [](const std::vector<std::int64_t>& from) {
    std::vector<std::int64_t> chosen;
    for (const std::int64_t i : spread(static_cast<std::int64_t>(from.size()), kProbeSide))
      chosen.push_back(from[static_cast<std::size_t>(i)]);
    return chosen;
  };
  return {some(all.rows), some(all.columns)};
}

Diagnosis Judge::finish() {
  std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                   [](const Cause& a, const Cause& b) {
                     return a.explained != b.explained ? a.explained > b.explained
                                                       : a.contradicted < b.contradicted;
                   });
  return std::move(diagnosis_);
}

bool Judge::is_nan(std::uint32_t code) const {
  return unpack(format(output_.format), code).value_class == ValueClass::nan;
}

bool Judge::right(std::size_t place, std::uint32_t code) const {
  return budgets_.empty() ? same(golden_[place], code)
                          : allowed(budgets_[place], output_, golden_[place], code);
}

}  // namespace fp8lab
