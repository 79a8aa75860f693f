#include "fp8lab/product/groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/core/error.hpp"

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

}  // namespace fp8lab
