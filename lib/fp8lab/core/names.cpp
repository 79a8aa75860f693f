#include "fp8lab/core/names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostNear = 3;
constexpr std::size_t kMostListed = 16;
constexpr std::size_t kExamples = 3;
constexpr std::size_t kMostChanges = 4;
constexpr std::size_t kShortest = 3;  ///< of a part of a name

std::string folded(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// How many letters have to be added, left out, replaced or swapped with the next one.
std::size_t changes_between(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::vector<std::string_view> near_names(std::span<const std::string_view> names,
                                         std::string_view given) {
  const std::string typed = folded(given);
  const std::size_t most = std::clamp<std::size_t>(typed.size() / 3, 1, kMostChanges);
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const std::string_view name : names) {
    const std::string known = folded(name);
    const bool contains = typed.size() >= kShortest && known.find(typed) != std::string::npos;
    const std::size_t changes = changes_between(typed, known);
    if (typed.empty() || !(contains || (changes <= most && changes < typed.size()))) continue;
    near.emplace_back(contains ? std::min(changes, most) : changes, name);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> nearest;
  for (const auto& [changes, name] : near)
    if (nearest.size() < kMostNear && changes <= near.front().first + 1) nearest.push_back(name);
  return nearest;
}

std::string did_you_mean(std::span<const std::string_view> names, std::string_view given) {
  const std::vector<std::string_view> near = near_names(names, given);
  return near.empty() ? "" : fmt::format(" (did you mean {}?)", fmt::join(near, " or "));
}

std::string expected_name(std::span<const std::string_view> names, std::string_view given) {
  const std::string meant = did_you_mean(names, given);
  if (names.size() <= kMostListed) return fmt::format("one of {}{}", fmt::join(names, ", "), meant);
  if (!meant.empty()) return fmt::format("one of {} names{}", names.size(), meant);
  return fmt::format("one of {} names such as {}", names.size(),
                     fmt::join(names.first(kExamples), ", "));
}

std::size_t find_name(std::span<const std::string_view> names, std::string_view argument,
                      std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  throw Error(argument, expected_name(names, name), "'" + std::string(name) + "'");
}

}  // namespace fp8lab
