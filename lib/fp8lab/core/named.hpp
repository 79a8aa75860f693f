#pragma once
// Tables whose rows have a `name`: one way to look a row up, and to say which there are.

#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"

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

/// The row of a table that outlives the call. Throws `Error` for `argument`, with all names.
template <typename Rows>
const auto& find_named(const Rows& rows, std::string_view argument, std::string_view name) {
  for (const auto& row : rows)
    if (row.name == name) return row;
  throw Error(argument, std::string("one of ").append(names_of(rows)),
              std::string("'").append(name).append("'"));
}

}  // namespace fp8lab
