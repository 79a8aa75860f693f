#pragma once
// The rows or terms of each group in a batched or grouped product (a mixture of experts).

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fp8lab {

enum class GroupKind : std::uint8_t {
  batched,      ///< A [G, m, k], B [G, n, k], D [G, m, n]
  row_ends,     ///< A [M, k], B [G, n, k], D [M, n]: group g has rows [ends[g - 1], ends[g])
  row_indices,  ///< the same, with the group of each row, or -1: DeepGEMM's m_indices
  row_counts,   ///< A [G, m, k], B [G, n, k], D [G, m, n]: group g uses its first counts[g] rows
  k_ends,       ///< A [m, K], B [n, K], D [G, m, n]: group g has the terms [ends[g - 1], ends[g])
};
/// Its name: batched, row_ends, row_indices, row_counts or k_ends.
std::string_view to_string(GroupKind kind);

/// The groups of a product, as a user gives them.
///
/// `row_ends` and `k_ends` are the `offs` of torch's `grouped_mm`: the end of each group,
/// ascending. Rows or terms after the last end are in no group. A group may be empty. `row_counts`
/// are DeepGEMM's `masked_m`. Both libraries leave the outputs of rows in no group unspecified.
struct Groups {
  GroupKind kind = GroupKind::batched;
  std::vector<std::int64_t> values{};  ///< ends, indices or counts; empty for `batched`
  /// The start of each group must be a multiple of this, if a kernel requires it (DeepGEMM's
  /// contiguous layouts: 128). 0: no requirement.
  std::int64_t alignment = 0;
};

/// Adjacent rows, or terms, of one group. If it is empty, begin == end.
struct GroupPart {
  std::int64_t group = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const GroupPart&, const GroupPart&) = default;
};

/// The parts of `length` rows of A (terms of K for `k_ends`; rows of one group for `batched` and
/// `row_counts`), by position and then by group. With `row_indices` a group may have several parts,
/// or none. `count`: the number of groups. Throws `Error` that names the groups for another number
/// of ends or counts, ends that decrease or exceed `length`, indices of no group, counts above
/// `length`, and starts that are not aligned.
std::vector<GroupPart> parts_of(const Groups& groups, std::int64_t length, std::int64_t count);

}  // namespace fp8lab
