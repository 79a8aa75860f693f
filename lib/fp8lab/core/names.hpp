#pragma once
// Names: those of an enum's values and of a table's rows, how one is looked up, and what a person
// meant by a name that does not exist.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

/// Of `names` those that `given` may stand for, nearest first, three at most: names that a few
/// letters more, fewer, others or swapped make of it (one, or a third of its letters up to four),
/// and names that contain it, if it has three letters or more. Capitals do not matter.
std::vector<std::string_view> near_names(std::span<const std::string_view> names,
                                         std::string_view given);

/// " (did you mean a or b?)", or nothing where no name is near.
std::string did_you_mean(std::span<const std::string_view> names, std::string_view given);

/// What an `Error` says is expected in the place of `given`: all names where they are 16 or fewer,
/// else their number with a few examples; and those that may be meant.
std::string expected_name(std::span<const std::string_view> names, std::string_view given);

/// The place of `name` among `names`. Throws `Error` for `argument`, with all of them.
std::size_t find_name(std::span<const std::string_view> names, std::string_view argument,
                      std::string_view name);

/// The value of `Enum` that is called `name`; throws as above.
template <typename Enum, std::size_t N>
Enum find_enumerator(const std::array<std::string_view, N>& names, std::string_view argument,
                     std::string_view name) {
  return static_cast<Enum>(find_name(names, argument, name));
}

/// "a, b, c": the names of all rows, in their order.
template <typename Rows>
std::string names_of(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) {
    if (!names.empty()) names.append(", ");
    names.append(row.name);
  }
  return names;
}

/// The names of all rows, in their order.
template <typename Rows>
std::vector<std::string_view> name_list(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// The row of a table that outlives the call. Throws `Error` for `argument`, with the names.
template <typename Rows>
const auto& find_named(const Rows& rows, std::string_view argument, std::string_view name) {
  for (const auto& row : rows)
    if (row.name == name) return row;
  throw Error(argument, expected_name(name_list(rows), name),
              std::string("'").append(name).append("'"));
}

}  // namespace fp8lab
