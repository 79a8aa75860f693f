#pragma once
// The rows or terms of each group in a batched or grouped product (a mixture of experts).

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/scale_layouts.hpp"

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

/// The operand to which scales belong.
struct ScaledOperand {
  std::string argument;      ///< "scale_a", "scale_b"
  bool stacked = false;      ///< [G, rows, k]; else one matrix [rows, k] for all groups
  bool cut_along_k = false;  ///< groups divide the matrix along k, not along rows
  std::int64_t count = 0;    ///< number of groups
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

/// Reads scales once and returns those of each group. Shapes: see `make_grouped_product`.
class GroupScales {
 public:
  /// Throws `Error` that names the argument for shapes that are neither a grid of the whole nor of
  /// a group, and for shapes that could be both.
  GroupScales(const ScaledOperand& operand, const TensorView& tensor, ScaleLayout layout,
              const std::optional<ScaleTiles>& tiles);

  /// Whether they are a grid over the whole matrix, which is divided with it.
  [[nodiscard]] bool whole() const { return each_.size() == 1 && over_whole_; }

  /// The scales of rows [begin, end) of a part, owned by this object. With `cut_along_k`, those of
  /// all rows, unless they are `whole`.
  InverseScales of(const GroupPart& part);

  /// All scales, if `whole`.
  [[nodiscard]] InverseScales all() const;

 private:
  ScaledOperand operand_;
  std::vector<ScaleGrid> each_;  ///< one per group, or one for all
  bool over_whole_ = false;      ///< one grid covers the matrix of all groups
  std::list<std::vector<float>> expanded_;
};

}  // namespace fp8lab
