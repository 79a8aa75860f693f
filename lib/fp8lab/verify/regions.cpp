#include "fp8lab/verify/regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/metrics/ulp.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

constexpr double kDense = 0.5;  // of a region differs; less is a scatter
constexpr std::uint64_t kSmallest = 4;
constexpr std::int64_t kSourceWork = std::int64_t{1} << 29;  // codes compared, all regions together
constexpr double kFull = 0.9;     // of a region differs; less may be two faults in one box
constexpr double kSmaller = 0.8;  // of a box: what its parts may fill of it
constexpr int kMostCuts = 3;      // one inside the other
constexpr std::uint64_t kMostCut = std::uint64_t{1} << 24;  // elements of a box that is cut
constexpr std::uint64_t kFewestConfined = 16;               // mismatches that a sparse region has
constexpr double kEven = 0.7;       // of the rows and columns that scattered mismatches would reach
constexpr double kConfined = 20.0;  // -ln of the chance that scattered mismatches lie in a region

struct Box {
  std::int64_t top, bottom, left, right;  // of map tiles, the ends included
};

bool is_dense(const Region& region, double share) {
  return static_cast<double>(region.mismatches) >= share * static_cast<double>(region.size());
}

/// The wrong elements of a row or column of a box; `first` > `last` without any.
struct Line {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = -1;
  std::uint64_t count = 0;

  void add(std::int64_t at) {
    first = std::min(first, at);
    last = std::max(last, at);
    ++count;
  }
};

/// What some lines of a box hold together.
struct Lines {
  std::int64_t begin = -1;  ///< the first line with mismatches
  std::int64_t end = -1;    ///< behind the last one
  Line across{};

  void add(std::int64_t line, const Line& one) {
    if (one.count == 0) return;
    begin = begin < 0 ? line : std::min(begin, line);
    end = std::max(end, line + 1);
    across.first = std::min(across.first, one.first);
    across.last = std::max(across.last, one.last);
    across.count += one.count;
  }
  [[nodiscard]] std::int64_t size() const {
    return across.count == 0 ? 0 : (end - begin) * (across.last + 1 - across.first);
  }
};

/// A box cut in two between lines.
struct Cut {
  std::int64_t size = std::numeric_limits<std::int64_t>::max();  ///< of both parts
  std::array<Lines, 2> parts{};
};

/// Where two parts are the smallest.
Cut best_cut(const std::vector<Line>& lines) {
  std::vector<Lines> before{Lines{}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    before.push_back(before.back());
    before.back().add(static_cast<std::int64_t>(i), lines[i]);
  }
  Cut best;
  Lines after;
  for (std::size_t i = lines.size(); i-- > 1;) {
    after.add(static_cast<std::int64_t>(i), lines[i]);
    const std::int64_t size = before[i].size() + after.size();
    if (before[i].across.count == 0 || after.across.count == 0 || size >= best.size) continue;
    best = {size, {before[i], after}};
  }
  return best;
}

/// Boxes around tiles with mismatches that touch each other, by side or corner.
std::vector<Box> boxes_of(const MismatchMap& map) {
  std::vector<bool> seen(map.counts.size());
  std::vector<Box> boxes;
  const auto wrong = [&](std::int64_t row, std::int64_t column) {
    const auto at = static_cast<std::size_t>(row * map.columns + column);
    return map.counts[at] > 0 && !seen[at];
  };
  for (std::int64_t row = 0; row < map.rows; ++row)
    for (std::int64_t column = 0; column < map.columns; ++column) {
      if (!wrong(row, column)) continue;
      Box box{row, row, column, column};
      std::vector<std::array<std::int64_t, 2>> next{{row, column}};
      seen[static_cast<std::size_t>(row * map.columns + column)] = true;
      while (!next.empty()) {
        const auto [r, c] = next.back();
        next.pop_back();
        box = {std::min(box.top, r), std::max(box.bottom, r), std::min(box.left, c),
               std::max(box.right, c)};
        for (std::int64_t y = std::max<std::int64_t>(r - 1, 0); y <= std::min(r + 1, map.rows - 1);
             ++y)
          for (std::int64_t x = std::max<std::int64_t>(c - 1, 0);
               x <= std::min(c + 1, map.columns - 1); ++x) {
            if (!wrong(y, x)) continue;
            seen[static_cast<std::size_t>(y * map.columns + x)] = true;
            next.push_back({y, x});
          }
      }
      boxes.push_back(box);
    }
  return boxes;
}

class Finder {
 public:
  Finder(FormatId id, std::span<const std::byte> golden, std::span<const std::byte> got,
         std::int64_t rows, std::int64_t columns, const WrongElements& wrong)
      : id_(id),
        golden_(golden),
        got_(got),
        rows_(rows),
        columns_(columns),
        wrong_(wrong),
        width_(static_cast<std::size_t>(format(id).bytes())) {}

  /// The rows and columns inside a box of map tiles that have mismatches. Each edge lies in the
  /// box's outermost tiles, so that little is looked at.
  [[nodiscard]] Region tighten(const Box& box, const MismatchMap& map) const {
    Region region;
    for (std::int64_t row = box.top; row <= box.bottom; ++row)
      for (std::int64_t column = box.left; column <= box.right; ++column)
        region.mismatches += map.counts[static_cast<std::size_t>(row * map.columns + column)];
    std::int64_t top = box.top * map.tile_rows;
    std::int64_t left = box.left * map.tile_columns;
    std::int64_t bottom = std::min((box.bottom + 1) * map.tile_rows, rows_);
    std::int64_t right = std::min((box.right + 1) * map.tile_columns, columns_);
    while (top + 1 < bottom && !any_wrong(top, top + 1, left, right)) ++top;
    while (top + 1 < bottom && !any_wrong(bottom - 1, bottom, left, right)) --bottom;
    while (left + 1 < right && !any_wrong(top, bottom, left, left + 1)) ++left;
    while (left + 1 < right && !any_wrong(top, bottom, right - 1, right)) --right;
    region.row = top;
    region.rows = bottom - top;
    region.column = left;
    region.columns = right - left;
    return region;
  }

  /// Rectangles that hold all wrong elements of a region, most of each being wrong: the region, or
  /// parts of it that are much smaller together. None if there are no such.
  [[nodiscard]] std::vector<Region> dense_parts(const Region& region, int cuts = kMostCuts) const {
    if (region.mismatches < kSmallest) return {};
    if (is_dense(region, kFull)) return {region};
    std::vector<Region> itself;
    if (is_dense(region, kDense)) itself.push_back(region);
    if (cuts == 0 || region.size() > kMostCut) return itself;
    const auto [rows, columns] = lines_of(region);
    const Cut down = best_cut(rows);
    const Cut across = best_cut(columns);
    const bool by_rows = down.size <= across.size;
    const Cut& cut = by_rows ? down : across;
    if (static_cast<double>(cut.size) > kSmaller * static_cast<double>(region.size()))
      return itself;
    std::vector<Region> parts;
    for (const Lines& part : cut.parts) {
      const std::int64_t lines = part.end - part.begin;
      const std::int64_t width = part.across.last + 1 - part.across.first;
      Region one{.row = region.row + (by_rows ? part.begin : part.across.first),
                 .rows = by_rows ? lines : width,
                 .column = region.column + (by_rows ? part.across.first : part.begin),
                 .columns = by_rows ? width : lines,
                 .mismatches = part.across.count};
      const std::vector<Region> inner = dense_parts(one, cuts - 1);
      if (inner.empty()) return itself;
      parts.insert(parts.end(), inner.begin(), inner.end());
    }
    return parts;
  }

  /// Whether mismatches that lie anywhere would hardly ever all lie in this region, and those that
  /// there are lie anywhere in it.
  [[nodiscard]] bool confined(const Region& region) const {
    const double share =
        static_cast<double>(region.size()) / (static_cast<double>(rows_ * columns_));
    if (region.mismatches < kFewestConfined || region.size() > kMostCut ||
        -std::log(share) * static_cast<double>(region.mismatches) < kConfined)
      return false;
    const auto [rows, columns] = lines_of(region);
    const double density =
        static_cast<double>(region.mismatches) / static_cast<double>(region.size());
    const auto even = [&](const std::vector<Line>& lines, std::int64_t length) {
      const auto with = std::ranges::count_if(lines, [](const Line& one) { return one.count > 0; });
      const double expected = 1.0 - std::pow(1.0 - density, static_cast<double>(length));
      return static_cast<double>(with) >= kEven * expected * static_cast<double>(lines.size());
    };
    return even(rows, region.columns) && even(columns, region.rows);
  }

  void find_content(Region& region) {
    const std::uint32_t first = got_at(region.row, region.column);
    bool zeros = true;
    bool nan = true;
    bool constant = true;
    const std::int64_t end = region.row + region.rows;
    for (std::int64_t row = region.row; row < end && (zeros || nan || constant); ++row)
      for (std::int64_t column = region.column; column < region.column + region.columns; ++column) {
        const std::uint32_t code = got_at(row, column);
        const ValueClass kind = unpack(format(id_), code).value_class;
        zeros = zeros && kind == ValueClass::zero;
        nan = nan && kind == ValueClass::nan;
        constant = constant && code == first;
      }
    if (zeros) region.content = RegionContent::zeros;
    if (nan) region.content = RegionContent::nan;
    if (!zeros && !nan && constant) region.content = RegionContent::constant;
    if (zeros || nan || constant) return;
    if (is_transposed(region)) region.content = RegionContent::transposed;
    if (region.content == RegionContent::other) find_source(region);
  }

  /// A lone element, next to the right one.
  [[nodiscard]] bool one_ulp(const Region& region) const {
    const auto index = static_cast<std::size_t>(region.row * columns_ + region.column);
    return ulp_distance(format(id_), code_at(id_, golden_, index), code_at(id_, got_, index)) == 1;
  }

 private:
  [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * columns_ + column) * width_;
  }
  [[nodiscard]] std::uint32_t got_at(std::int64_t row, std::int64_t column) const {
    return code_at(id_, got_, static_cast<std::size_t>(row * columns_ + column));
  }
  /// The wrong elements of its rows and of its columns, counted from the region's corner.
  [[nodiscard]] std::array<std::vector<Line>, 2> lines_of(const Region& region) const {
    std::array<std::vector<Line>, 2> lines;
    lines[0].resize(static_cast<std::size_t>(region.rows));
    lines[1].resize(static_cast<std::size_t>(region.columns));
    for (std::int64_t i = 0; i < region.rows; ++i)
      for (std::int64_t j = 0; j < region.columns; ++j) {
        if (!wrong_.at((region.row + i) * columns_ + region.column + j)) continue;
        lines[0][static_cast<std::size_t>(i)].add(j);
        lines[1][static_cast<std::size_t>(j)].add(i);
      }
    return lines;
  }
  [[nodiscard]] bool any_wrong(std::int64_t top, std::int64_t bottom, std::int64_t left,
                               std::int64_t right) const {
    for (std::int64_t row = top; row < bottom; ++row)
      for (std::int64_t column = left; column < right; ++column)
        if (wrong_.at(row * columns_ + column)) return true;
    return false;
  }

  /// The golden output has at (row, column) what the region has. Counts its work.
  [[nodiscard]] bool is_source(const Region& region, std::int64_t row, std::int64_t column) {
    ++work_;
    if (std::memcmp(&golden_[at(row, column)], &got_[at(region.row, region.column)], width_) != 0)
      return false;
    for (std::int64_t i = 0; i < region.rows; ++i) {
      work_ += region.columns;
      if (std::memcmp(&golden_[at(row + i, column)], &got_[at(region.row + i, region.column)],
                      static_cast<std::size_t>(region.columns) * width_) != 0)
        return false;
    }
    return true;
  }

  [[nodiscard]] bool is_transposed(const Region& region) const {
    if (region.rows != region.columns || region.rows < 2) return false;
    for (std::int64_t i = 0; i < region.rows; ++i)
      for (std::int64_t j = 0; j < region.columns; ++j)
        if (std::memcmp(&got_[at(region.row + i, region.column + j)],
                        &golden_[at(region.row + j, region.column + i)], width_) != 0)
          return false;
    return true;
  }

  /// The place of the golden output that the region is a copy of, if there is one.
  void find_source(Region& region) {
    for (std::int64_t row = 0; row + region.rows <= rows_; ++row)
      for (std::int64_t column = 0; column + region.columns <= columns_; ++column) {
        if (work_ > kSourceWork) return;
        if (!is_source(region, row, column)) continue;
        region.content = RegionContent::elsewhere;
        region.from_row = row;
        region.from_column = column;
        return;
      }
  }

  FormatId id_;
  std::span<const std::byte> golden_;
  std::span<const std::byte> got_;
  std::int64_t rows_;
  std::int64_t columns_;
  const WrongElements& wrong_;
  std::size_t width_;
  std::int64_t work_ = 0;
};

std::string range(std::string_view name, std::int64_t first, std::int64_t count) {
  if (count == 1) return fmt::format("{} {}", name, first);
  return fmt::format("{}s {}-{}", name, first, first + count - 1);
}

}  // namespace

std::string_view to_string(RegionContent content) {
  constexpr std::array<std::string_view, 8> kNames{
      "other", "zeros", "nan", "constant", "elsewhere", "transposed", "one_ulp", "unrelated"};
  return kNames[static_cast<std::size_t>(content)];
}

bool WrongElements::at(std::int64_t index) const {
  if (golden_.empty()) return std::ranges::binary_search(listed_, index);
  const std::uint32_t x = code_at(format_, golden_, static_cast<std::size_t>(index));
  const std::uint32_t y = code_at(format_, got_, static_cast<std::size_t>(index));
  const auto is_nan = [&](std::uint32_t code) {
    return unpack(format(format_), code).value_class == ValueClass::nan;
  };
  return x != y && !(is_nan(x) && is_nan(y));
}

MismatchMap map_of(std::int64_t rows, std::int64_t columns, std::span<const std::int64_t> indices) {
  MismatchMap map = make_map(rows, columns);
  for (const std::int64_t at : indices)
    ++map.counts[static_cast<std::size_t>(at / columns / map.tile_rows * map.columns +
                                          at % columns / map.tile_columns)];
  return map;
}

std::vector<Region> find_regions(FormatId id, std::span<const std::byte> golden,
                                 std::span<const std::byte> got, std::int64_t rows,
                                 std::int64_t columns, const MismatchMap& map,
                                 const WrongElements& wrong) {
  const std::vector<Box> boxes = boxes_of(map);
  Finder finder(id, golden, got, rows, columns, wrong);
  std::vector<Region> regions;
  for (const Box& box : boxes.size() > kMostRegions ? std::vector<Box>{} : boxes) {
    Region region = finder.tighten(box, map);
    if (boxes.size() == 1 && region.mismatches == 1 && finder.one_ulp(region)) {
      region.content = RegionContent::one_ulp;
      regions.push_back(std::move(region));
      continue;
    }
    // A few elements are told as such; the whole output is no part of it.
    for (Region& part : finder.dense_parts(region)) {
      finder.find_content(part);
      const bool whole = part.rows == rows && part.columns == columns;
      if (whole && part.content == RegionContent::other) continue;
      regions.push_back(std::move(part));
    }
  }
  if (regions.size() > kMostRegions) return {};
  if (!regions.empty() || boxes.empty()) return regions;
  // Few elements of a part of the output may be wrong.
  Region all = finder.tighten({0, map.rows - 1, 0, map.columns - 1}, map);
  if (finder.confined(all)) regions.push_back(std::move(all));
  return regions;
}

namespace {

/// A right number and what stands in its place.
using Pair = std::array<double, 2>;

/// The correlation of pairs, without its sign; unset where one side is the same in all of them.
std::optional<double> correlation(std::span<const Pair> pairs) {
  Pair mean{};
  for (const auto& [x, y] : pairs) {
    mean[0] += x / static_cast<double>(pairs.size());
    mean[1] += y / static_cast<double>(pairs.size());
  }
  double xx = 0.0;
  double yy = 0.0;
  double xy = 0.0;
  for (const auto& [x, y] : pairs) {
    xx += (x - mean[0]) * (x - mean[0]);
    yy += (y - mean[1]) * (y - mean[1]);
    xy += (x - mean[0]) * (y - mean[1]);
  }
  if (!(xx > 0.0) || !(yy > 0.0)) return std::nullopt;
  return std::abs(xy) / (std::sqrt(xx) * std::sqrt(yy));
}

/// The mean correlation within the rows, or columns, that have enough pairs; 0 where none has.
double correlation_of_lines(const std::map<std::int64_t, std::vector<Pair>>& lines) {
  constexpr std::size_t kEnough = 8;
  double sum = 0.0;
  std::size_t count = 0;
  for (const auto& [line, pairs] : lines) {
    const auto own = pairs.size() < kEnough ? std::nullopt : correlation(pairs);
    sum += own.value_or(0.0);
    count += own ? 1 : 0;
  }
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

/// Finite numbers of a region: all, and by row and column.
struct FinitePairs {
  std::vector<Pair> all{};
  std::map<std::int64_t, std::vector<Pair>> of_rows{};
  std::map<std::int64_t, std::vector<Pair>> of_columns{};
  bool mostly_finite = false;  ///< at least half of the elements that were looked at are
};

FinitePairs finite_pairs(FormatId id, std::span<const std::byte> golden,
                         std::span<const std::byte> got, std::int64_t columns,
                         const Region& region) {
  constexpr std::int64_t kLines = 256;  // that are looked at
  FinitePairs found;
  std::size_t count = 0;
  for (const std::int64_t row : spread(region.rows, kLines))
    for (const std::int64_t column : spread(region.columns, kLines)) {
      const auto at =
          static_cast<std::size_t>((region.row + row) * columns + region.column + column);
      // Garbage has any exponent: squares of what is left must stay finite.
      const Pair pair{decode(format(id), code_at(id, golden, at)),
                      decode(format(id), code_at(id, got, at))};
      ++count;
      if (!std::isfinite(pair[0]) || !std::isfinite(pair[1])) continue;
      found.all.push_back(pair);
      found.of_rows[row].push_back(pair);
      found.of_columns[column].push_back(pair);
    }
  found.mostly_finite = 2 * found.all.size() >= count;
  return found;
}

}  // namespace

bool unrelated(FormatId id, std::span<const std::byte> golden, std::span<const std::byte> got,
               std::int64_t columns, const Region& region) {
  constexpr std::uint64_t kEnough = 256;
  constexpr double kCorrelated = 0.25;
  constexpr double kCorrelatedInLines = 0.7;
  if (region.size() < kEnough) return false;
  const FinitePairs pairs = finite_pairs(id, golden, got, columns, region);
  if (!pairs.mostly_finite) return true;
  const std::optional<double> all = correlation(pairs.all);
  // A factor of each row, or of each column, hides what goes together.
  return all && *all < kCorrelated && correlation_of_lines(pairs.of_rows) < kCorrelatedInLines &&
         correlation_of_lines(pairs.of_columns) < kCorrelatedInLines;
}

bool says_why(const Region& region) {
  return region.content != RegionContent::other ||
         (region.diagnosis && !region.diagnosis->causes.empty());
}

std::string place_of(const Region& region) {
  return fmt::format("{}, {}", range("row", region.row, region.rows),
                     range("column", region.column, region.columns));
}

std::string describe(const Region& region) {
  std::string text = place_of(region) + ": ";
  switch (region.content) {
    case RegionContent::zeros:
      return text + "all zero";
    case RegionContent::nan:
      return text + "all NaN";
    case RegionContent::constant:
      return text + "one value everywhere";
    case RegionContent::elsewhere:
      return text + fmt::format("a copy of {}, {}", range("row", region.from_row, region.rows),
                                range("column", region.from_column, region.columns));
    case RegionContent::transposed:
      return text + "its own right values, transposed";
    case RegionContent::one_ulp:
      return text + "one ulp off, alone";
    case RegionContent::unrelated:
      return text + "numbers unrelated to the right ones: stale, garbage or never written";
    case RegionContent::other:
      break;
  }
  text += fmt::format("{} of {} differ", region.mismatches, region.size());
  if (!region.diagnosis || region.diagnosis->causes.empty()) return text;
  const Cause& cause = region.diagnosis->causes.front();
  return text + fmt::format("; cause: {}: {} ({} of {} sampled)", cause.name, cause.text,
                            cause.explained, region.diagnosis->mismatches);
}

}  // namespace fp8lab
