#pragma once
// The regions in which an output is wrong: rectangles of rows and columns, and their content.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// The content of a region in place of the right values.
enum class RegionContent : std::uint8_t {
  other,       ///< none of these
  zeros,       ///< of either sign
  nan,         ///< NaN alone
  constant,    ///< one code everywhere
  elsewhere,   ///< the right values of another place of the output
  transposed,  ///< the right values of the region, transposed
  one_ulp,     ///< one element whose code is a neighbour of the right one
  unrelated,   ///< numbers without relation to the right ones: stale, or never written
};
std::string_view to_string(RegionContent content);

/// Rows [row, row + rows) x columns [column, column + columns). Most of its elements differ, or it
/// is the only one: the part of the output outside of which nothing differs.
struct Region {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
  std::uint64_t mismatches = 0;
  RegionContent content = RegionContent::other;
  std::int64_t from_row = 0;  ///< for `elsewhere`: the source of its first element
  std::int64_t from_column = 0;
  std::optional<Diagnosis> diagnosis{};  ///< of this region only, if the content is `other`

  [[nodiscard]] std::uint64_t size() const { return static_cast<std::uint64_t>(rows * columns); }
};

/// The largest number of regions.
inline constexpr std::size_t kMostRegions = 8;

/// The elements of an output that count as wrong.
class WrongElements {
 public:
  /// Elements whose codes differ; two codes of NaN count as equal.
  WrongElements(FormatId format, std::span<const std::byte> golden, std::span<const std::byte> got)
      : format_(format), golden_(golden), got_(got) {}
  /// The elements of a list of indices, ascending.
  explicit WrongElements(std::vector<std::int64_t> indices) : listed_(std::move(indices)) {}

  [[nodiscard]] bool at(std::int64_t index) const;

 private:
  FormatId format_ = FormatId::f32;
  std::span<const std::byte> golden_;
  std::span<const std::byte> got_;
  std::vector<std::int64_t> listed_;
};

/// The counts of `MismatchMap` for the elements `indices` of an output [rows, columns].
MismatchMap map_of(std::int64_t rows, std::int64_t columns, std::span<const std::int64_t> indices);

/// The rectangles in which an output [rows, columns] is wrong, in the order of their first
/// elements, at most kMostRegions. Two that touch are told apart. None if wrong elements fill the
/// output, are single, or are scattered all over it. `map` counts `wrong`. The search for the
/// source of a region that is a copy is limited in its work.
std::vector<Region> find_regions(FormatId format, std::span<const std::byte> golden,
                                 std::span<const std::byte> got, std::int64_t rows,
                                 std::int64_t columns, const MismatchMap& map,
                                 const WrongElements& wrong);

/// Whether a region's numbers are unrelated to the right ones: at least 256 with a correlation
/// below a quarter, without infinities and NaN. A region of only infinities and NaN is unrelated.
bool unrelated(FormatId format, std::span<const std::byte> golden, std::span<const std::byte> got,
               std::int64_t columns, const Region& region);

/// Whether its content, or a cause, says what is wrong in it.
bool says_why(const Region& region);

/// `rows 16-31, columns 0-63`.
std::string place_of(const Region& region);

/// `rows 16-31, columns 0-63: all zero`.
std::string describe(const Region& region);

}  // namespace fp8lab
