#include "fp8lab/verify/judge.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {

namespace {

constexpr std::int64_t kProbeSide = 4;  // rows and columns that a hypothesis is tried on first
// Of the mismatches, so many must be decided by FP64 values for a cause.
constexpr double kDecidedShare = 0.02;
constexpr double kFewestDecided = 4.0;

}  // namespace

std::vector<std::uint32_t> code_words(FormatId id, std::span<const std::byte> codes) {
  const auto width = static_cast<std::size_t>(format(id).bytes());
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

void Judge::allow(std::vector<CastInterval> reach) {
  reach_ = std::move(reach);
  diagnosis_.right = diagnosis_.mismatches = 0;
  for (std::size_t i = 0; i < golden_.size(); ++i)
    (right(i, got_[i]) ? diagnosis_.right : diagnosis_.mismatches) += 1;
}

bool Judge::consider(std::string name, std::string text, std::span<const std::uint32_t> codes) {
  ++diagnosis_.tried;
  Cause cause{std::move(name), std::move(text), 0, 0};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (right(i, got_[i]))
      cause.contradicted += contradicts(i, codes[i]) ? 1 : 0;
    else
      cause.explained += explains(i, codes[i]) ? 1 : 0;
  }
  return keep(std::move(cause), diagnosis_.mismatches);
}

void Judge::consider_in_fp64(std::string name, std::string text, std::span<const double> values,
                             std::span<const double> tolerances) {
  ++diagnosis_.tried;
  Cause cause{std::move(name), std::move(text), 0, 0, true};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (right(i, got_[i])) {
      cause.contradicted += near(got_[i], values[i], tolerances[i]) ? 0 : 1;
      continue;
    }
    const Evidence found = evidence(i, values[i], tolerances[i]);
    cause.explained += found == Evidence::explains ? 1 : 0;
    cause.undecided += found == Evidence::undecided ? 1 : 0;
  }
  const double enough = kDecidedShare * static_cast<double>(diagnosis_.mismatches);
  if (static_cast<double>(cause.explained) < std::max(enough, kFewestDecided)) return;
  const std::uint64_t decided = diagnosis_.mismatches - cause.undecided;
  keep(std::move(cause), decided);
}

Judge::Evidence Judge::evidence(std::size_t place, double value, double tolerance) const {
  if (!near(got_[place], value, tolerance)) return Evidence::denies;
  return near(golden_[place], value, tolerance) ? Evidence::undecided : Evidence::explains;
}

bool Judge::near(std::uint32_t code, double value, double tolerance) const {
  const double x = decode(format(output_.format), code);
  if (std::isnan(x) || std::isnan(value)) return std::isnan(x) && std::isnan(value);
  const double largest = format(output_.format).max_finite();
  const bool saturates = output_.policy.overflow == OverflowPolicy::saturate;
  if (std::abs(value) > largest)
    return std::signbit(x) == std::signbit(value) &&
           (std::isinf(x) || (saturates && std::abs(x) == largest));
  return std::abs(x - value) <= tolerance;
}

bool Judge::keep(Cause cause, std::uint64_t mismatches) {
  const auto share = [](std::uint64_t part, double of, std::uint64_t all) {
    return static_cast<double>(part) - of * static_cast<double>(all);
  };
  const bool by_nearness = cause.in_fp64 || !budgets_.empty();
  const double contradicted = by_nearness ? kContradictedShare : 0.0;
  const bool enough = cause.explained > 0 &&
                      share(cause.explained, kExplainedShare, mismatches) >= 0.0 &&
                      share(cause.contradicted, contradicted, diagnosis_.right) <= 0.0;
  const bool again = std::ranges::any_of(diagnosis_.causes, [&](const Cause& known) {
    return known.name == cause.name && known.explained == cause.explained &&
           known.contradicted == cause.contradicted;
  });
  if (enough && !again) diagnosis_.causes.push_back(std::move(cause));
  return enough;
}

bool Judge::explains(std::size_t place, std::uint32_t code) const {
  if (same(got_[place], code)) return true;
  if (!reach_.empty() && !is_nan(code) && !is_nan(got_[place])) {
    const Format& f = format(output_.format);
    const double wide = decode(f, reach_[place].high) - decode(f, reach_[place].low);
    return std::abs(decode(f, got_[place]) - decode(f, code)) <= wide;
  }
  if (budgets_.empty() || is_nan(code) || is_nan(got_[place])) return false;
  // Both may be off by as much as the budget allows.
  const ErrorBudget& budget = budgets_[place];
  const Format& f = format(output_.format);
  const double off = std::abs(decode(f, got_[place]) - decode(f, code));
  return !budget.special && off <= 2.0 * budget.total();
}

std::size_t Judge::worst() const {
  const Format& f = format(output_.format);
  std::size_t worst = 0;
  double largest = -1.0;
  for (std::size_t i = 0; i < got_.size(); ++i) {
    if (is_right(i)) continue;
    const double got = decode(f, got_[i]);
    const double golden = decode(f, golden_[i]);
    double off = std::abs(got - golden) / std::max(std::abs(golden), f.min_subnormal());
    if (std::isnan(off)) off = INFINITY;
    if (off <= largest) continue;
    worst = i;
    largest = off;
  }
  return worst;
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
  const auto some = [](const std::vector<std::int64_t>& from, std::int64_t worst) {
    std::set<std::int64_t> chosen{worst};
    for (const std::int64_t i : spread(static_cast<std::int64_t>(from.size()), kProbeSide))
      if (std::ssize(chosen) < kProbeSide) chosen.insert(from[static_cast<std::size_t>(i)]);
    return std::vector<std::int64_t>(chosen.begin(), chosen.end());
  };
  if (all.rows.empty()) return {};
  const auto place = static_cast<std::int64_t>(worst());
  return {some(all.rows, place / columns), some(all.columns, place % columns)};
}

Diagnosis Judge::finish() {
  std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                   [](const Cause& a, const Cause& b) {
                     if (a.in_fp64 != b.in_fp64) return b.in_fp64;
                     return a.explained != b.explained ? a.explained > b.explained
                                                       : a.contradicted < b.contradicted;
                   });
  return std::move(diagnosis_);
}

bool Judge::is_nan(std::uint32_t code) const {
  return unpack(format(output_.format), code).value_class == ValueClass::nan;
}

bool Judge::right(std::size_t place, std::uint32_t code) const {
  if (!reach_.empty() && lies_in(reach_[place], output_.format, code)) return true;
  return budgets_.empty() ? same(golden_[place], code)
                          : allowed(budgets_[place], output_, golden_[place], code);
}

}  // namespace fp8lab
