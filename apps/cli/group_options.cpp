#include "group_options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab::cli {
namespace {

std::vector<std::int64_t> integers_of(std::string_view option, const std::string& text) {
  if (text.find_first_not_of("-0123456789,") != std::string::npos) {
    const Operand loaded = load_operand(text);
    require(loaded.tensor().shape.size() == 1, option, "a vector of integers",
            shape_text(loaded.tensor().shape));
    return to_integers(loaded.tensor(), option);
  }
  std::vector<std::int64_t> values;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    const auto read = std::from_chars(at, end, values.emplace_back());
    const bool more = read.ec == std::errc() && read.ptr != end && *read.ptr == ',';
    require(read.ec == std::errc() && (more ? read.ptr + 1 != end : read.ptr == end), option,
            "integers as 128,256, or a file of them", fmt::format("'{}'", text));
    at = more ? read.ptr + 1 : read.ptr;
  }
  return values;
}

}  // namespace

void add_group_options(Command& command, GroupOptions& o) {
  command.add_flag("--batched", o.batched, "A [g, m, k] and B [g, n, k]: D [g, m, n]");
  command.add_option("--row-ends", o.row_ends,
                     "A [m, k], B [g, n, k]: the end of each group's rows of A, as 128,256 or a "
                     "file (torch's offs)");
  command.add_option("--row-indices", o.row_indices,
                     "the same shapes: the group of each row, or -1 (DeepGEMM's m_indices)");
  command.add_option("--row-counts", o.row_counts,
                     "A [g, m, k], B [g, n, k]: the number of rows used in each group (masked_m)");
  command.add_option("--k-ends", o.k_ends,
                     "A [m, k], B [n, k]: the end of each group's terms; D [g, m, n]");
  command.add_option("--group-alignment", o.alignment,
                     "groups must start at multiples of this (DeepGEMM: 128)");
}

std::optional<Groups> groups_of(const GroupOptions& o) {
  std::optional<Groups> groups;
  const auto use = [&](GroupKind kind, std::vector<std::int64_t> values) {
    require(!groups, "groups",
            "one of --batched, --row-ends, --row-indices, --row-counts, --k-ends", "two of them");
    groups = Groups{kind, std::move(values), o.alignment};
  };
  if (o.batched) use(GroupKind::batched, {});
  if (!o.row_ends.empty()) use(GroupKind::row_ends, integers_of("--row-ends", o.row_ends));
  if (!o.row_indices.empty())
    use(GroupKind::row_indices, integers_of("--row-indices", o.row_indices));
  if (!o.row_counts.empty()) use(GroupKind::row_counts, integers_of("--row-counts", o.row_counts));
  if (!o.k_ends.empty()) use(GroupKind::k_ends, integers_of("--k-ends", o.k_ends));
  const bool has_starts =
      groups && (groups->kind == GroupKind::row_ends || groups->kind == GroupKind::row_indices ||
                 groups->kind == GroupKind::k_ends);
  require(o.alignment == 0 || has_starts, "--group-alignment",
          "--row-ends, --row-indices or --k-ends with it", "none of them");
  return groups;
}

}  // namespace fp8lab::cli
