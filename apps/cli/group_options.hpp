#pragma once
// The options that say that a product is batched or grouped.

#include <cstdint>
#include <optional>
#include <string>

#include "fp8lab/product/groups.hpp"
#include "parser.hpp"

namespace fp8lab::cli {

struct GroupOptions {
  bool batched = false;
  std::string row_ends;
  std::string row_indices;
  std::string row_counts;
  std::string k_ends;
  std::int64_t alignment = 0;
};

void add_group_options(Command& command, GroupOptions& options);

/// The groups that were named, if some were. Values: `128,256`, or a file of integers. Throws
/// `Error` for more than one kind.
std::optional<Groups> groups_of(const GroupOptions& options);

}  // namespace fp8lab::cli
