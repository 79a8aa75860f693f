#pragma once
// Tables whose rows have a `name`: one way to look a row up, and to say which there are.

#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/near_names.hpp"

namespace fp8lab {

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
