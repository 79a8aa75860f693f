#pragma once
// Tables for people, as wide as the terminal at most.

#include <cstddef>
#include <string>
#include <vector>

#include "lab/experiment/table.hpp"

namespace fp8lab::cli {

/// A column of a table, and what to call it.
struct ShownColumn {
  std::string name;
  std::string heading;
};

/// These columns of the table in lines of at most `columns`: long texts have several lines, the
/// widest column first; the first column is never broken. Numbers stand at the right.
std::string fitted(const Table& table, const std::vector<ShownColumn>& shown, std::size_t columns);

/// All columns of the table's rows, a line each, or as many as its text needs.
std::string details(const Table& table, std::size_t columns);

}  // namespace fp8lab::cli
