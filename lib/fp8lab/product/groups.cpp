#include "fp8lab/product/groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

void require_count(const Groups& groups, std::int64_t count) {
  const auto given = static_cast<std::int64_t>(groups.values.size());
  const bool leading_zero =
      groups.kind != GroupKind::row_counts && given == count + 1 && groups.values.front() == 0;
  require(given == count, to_string(groups.kind),
          fmt::format("one value for each of {} groups{}", count,
                      leading_zero ? " (ends: leave out the leading 0)" : ""),
          fmt::format("{}", given));
}

void require_alignment(const Groups& groups, const GroupPart& part) {
  require(groups.alignment == 0 || part.begin == part.end || part.begin % groups.alignment == 0,
          to_string(groups.kind),
          fmt::format("groups that start at multiples of {}", groups.alignment),
          fmt::format("group {} at {}", part.group, part.begin));
}

std::vector<GroupPart> parts_of_ends(const Groups& groups, std::int64_t length) {
  std::vector<GroupPart> parts;
  std::int64_t begin = 0;
  for (std::size_t g = 0; g < groups.values.size(); ++g) {
    const std::int64_t end = groups.values[g];
    require(end >= begin && end <= length, to_string(groups.kind),
            fmt::format("ends that increase to at most {}", length),
            fmt::format("{} after {} (group {})", end, begin, g));
    parts.push_back({static_cast<std::int64_t>(g), begin, end});
    begin = end;
  }
  return parts;
}

std::vector<GroupPart> parts_of_indices(const Groups& groups, std::int64_t length,
                                        std::int64_t count) {
  require(static_cast<std::int64_t>(groups.values.size()) == length, to_string(groups.kind),
          fmt::format("one index for each of {} rows", length),
          fmt::format("{}", groups.values.size()));
  std::vector<GroupPart> parts;
  for (std::int64_t row = 0; row < length; ++row) {
    const std::int64_t group = groups.values[static_cast<std::size_t>(row)];
    require(group >= -1 && group < count, to_string(groups.kind),
            fmt::format("groups 0 to {}, or -1", count - 1), fmt::format("{} at {}", group, row));
    if (group == -1) continue;
    if (!parts.empty() && parts.back().group == group && parts.back().end == row)
      ++parts.back().end;
    else
      parts.push_back({group, row, row + 1});
  }
  return parts;
}

std::vector<GroupPart> parts_of_counts(const Groups& groups, std::int64_t length) {
  std::vector<GroupPart> parts;
  for (std::size_t g = 0; g < groups.values.size(); ++g) {
    const std::int64_t rows = groups.values[g];
    require(rows >= 0 && rows <= length, to_string(groups.kind),
            fmt::format("counts of 0 to {} rows", length), fmt::format("{} (group {})", rows, g));
    parts.push_back({static_cast<std::int64_t>(g), 0, rows});
  }
  return parts;
}

}  // namespace

std::string_view to_string(GroupKind kind) {
  constexpr std::array<std::string_view, 5> kNames{"batched", "row_ends", "row_indices",
                                                   "row_counts", "k_ends"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<GroupPart> parts_of(const Groups& groups, std::int64_t length, std::int64_t count) {
  require(groups.alignment >= 0, "alignment", "0 or more", fmt::format("{}", groups.alignment));
  std::vector<GroupPart> parts;
  switch (groups.kind) {
    case GroupKind::batched:
      require(groups.values.empty(), "batched", "no values", fmt::format("{}", groups.values));
      for (std::int64_t g = 0; g < count; ++g) parts.push_back({g, 0, length});
      return parts;
    case GroupKind::row_indices:
      parts = parts_of_indices(groups, length, count);
      break;
    case GroupKind::row_counts:
      require_count(groups, count);
      return parts_of_counts(groups, length);
    case GroupKind::row_ends:
    case GroupKind::k_ends:
      require_count(groups, count);
      parts = parts_of_ends(groups, length);
      break;
  }
  for (const GroupPart& part : parts) require_alignment(groups, part);
  return parts;
}

namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t tiles_along_k(const ScaleGrid& grid, std::int64_t k) {
  return ceil_divide(k, grid.tiles.columns);
}

bool is_plain(ScaleLayout layout) {
  return layout == ScaleLayout::row_major || layout == ScaleLayout::column_major;
}

/// The shape says that there is one entry a group of a matrix that all groups share.
bool one_a_group(const ScaledOperand& o, const Shape& shape, ScaleLayout layout,
                 const std::optional<ScaleTiles>& tiles) {
  if (!is_plain(layout)) return false;
  if (shape == Shape{o.count, 1, 1}) return true;
  if (!o.cut_along_k) return shape == Shape{o.count} && o.count != o.rows;
  if (shape == Shape{o.count, o.rows, 1}) return true;
  if (shape != Shape{o.count, o.rows} || tiles) return false;
  bool grid = true;
  try {
    tiles_of_shape(o.argument, shape, o.rows, o.k);
  } catch (const Error&) {
    grid = false;
  }
  require(!grid, o.argument,
          fmt::format("[{}, {}, 1] for one scale per row of each group, or named tiles for a grid "
                      "over all terms",
                      o.count, o.rows),
          fmt::format("{}, which could be either", shape_text(shape)));
  return true;
}

std::string expected_of(const ScaledOperand& o) {
  return fmt::format("one value, [{}], or [{}, ...] with the grid [{}, {}] of one group", o.count,
                     o.count, o.rows, o.k);
}

}  // namespace

GroupScales::GroupScales(const ScaledOperand& operand, const TensorView& tensor, ScaleLayout layout,
                         const std::optional<ScaleTiles>& tiles)
    : operand_(operand) {
  const ScaledOperand& o = operand_;
  const HeldTensor dense = row_major(tensor);
  const Shape& shape = tensor.shape;
  if (is_plain(layout) && tensor.size() == 1) {
    each_.push_back(
        read_scales(o.argument, dense.view, ScaleLayout::row_major, ScaleTiles{}, o.rows, o.k));
    return;
  }
  const bool groups = o.stacked || one_a_group(o, shape, layout, tiles);
  if (!groups) {
    over_whole_ = true;
    each_.push_back(read_scales(o.argument, dense.view, layout, tiles, o.rows, o.k));
    return;
  }
  require(!shape.empty() && shape[0] == o.count, o.argument, expected_of(o), shape_text(shape));
  for (std::int64_t g = 0; g < o.count; ++g) {
    try {
      each_.push_back(read_scales(o.argument, element(dense.view, g), layout, tiles, o.rows, o.k));
    } catch (const Error& error) {
      throw Error(fmt::format("{} (of group {})", error.what(), g));
    }
  }
}

InverseScales GroupScales::all() const {
  const ScaleGrid& grid = each_.front();
  return {grid.values, grid.tiles.rows, grid.tiles.columns, grid.format};
}

InverseScales GroupScales::of(const GroupPart& part) {
  const ScaleGrid& grid =
      each_.size() == 1 ? each_.front() : each_[static_cast<std::size_t>(part.group)];
  InverseScales scales{grid.values, grid.tiles.rows, grid.tiles.columns, grid.format};
  if (operand_.cut_along_k) {
    scales.k_block = 0;  // one a row, or one: of all terms of the group
    return scales;
  }
  if (part.begin == part.end) return {};
  if (grid.tiles.rows >= operand_.rows) return scales;
  const auto width = static_cast<std::size_t>(tiles_along_k(grid, operand_.k));
  const std::int64_t side = grid.tiles.rows;
  if (part.begin % side == 0) {
    const auto first = static_cast<std::size_t>(part.begin / side);
    const auto last = static_cast<std::size_t>(ceil_divide(part.end, side));
    scales.values = scales.values.subspan(first * width, (last - first) * width);
    return scales;
  }
  // A tile that two parts share: one row of scales for each row.
  std::vector<float>& values = expanded_.emplace_back();
  for (std::int64_t row = part.begin; row < part.end; ++row) {
    const auto from = scales.values.subspan(static_cast<std::size_t>(row / side) * width, width);
    values.insert(values.end(), from.begin(), from.end());
  }
  scales.values = values;
  scales.row_block = 1;
  return scales;
}

}  // namespace fp8lab
