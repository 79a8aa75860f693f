#pragma once
// Which rows or terms belong to which group of a batched or grouped product (a mixture's experts).

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fp8lab {

enum class GroupKind : std::uint8_t {
  batched,      ///< A [G, m, k], B [G, n, k], D [G, m, n]
  row_ends,     ///< A [M, k], B [G, n, k], D [M, n]: group g has rows [ends[g - 1], ends[g])
  row_indices,  ///< the same, with the group of each row, or -1: DeepGEMM's m_indices
  row_counts,   ///< A [G, m, k], B [G, n, k], D [G, m, n], of whose rows counts[g] are there
  k_ends,       ///< A [m, K], B [n, K], D [G, m, n]: group g has the terms [ends[g - 1], ends[g])
};
/// batched, row_ends, row_indices, row_counts or k_ends.
std::string_view to_string(GroupKind kind);

/// Groups as a user states them.
///
/// `row_ends` and `k_ends` are torch's `offs` of `grouped_mm`: where each group ends, rising; what
/// lies behind the last end is in no group. A group may be empty. `row_counts` are DeepGEMM's
/// `masked_m`. Rows in no group are unspecified in both libraries.
struct Groups {
  GroupKind kind = GroupKind::batched;
  std::vector<std::int64_t> values{};  ///< ends, indices or counts; none of `batched`
  /// What starts of groups are a multiple of, where the kernel asks for it (DeepGEMM's contiguous
  /// layouts: 128); 0: anything.
  std::int64_t alignment = 0;
};

/// Rows, or terms, that are of one group and stand together. An empty one has begin == end.
struct GroupPart {
  std::int64_t group = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const GroupPart&, const GroupPart&) = default;
};

/// The parts of `length` rows of A (terms of K; rows of one group for `batched` and `row_counts`),
/// in ascending order of position, then of group. Under `row_indices` a group may have more than
/// one, and groups without rows have none. Throws `Error` naming the groups for counts that are
/// not `groups`, ends that fall or lie beyond `length`, indices of no group, counts above `length`,
/// and starts that are not aligned.
std::vector<GroupPart> parts_of(const Groups& groups, std::int64_t length, std::int64_t count);

}  // namespace fp8lab
