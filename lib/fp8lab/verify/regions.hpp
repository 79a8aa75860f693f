#pragma once
// Where an output is wrong: rectangles of rows and columns, and what stands in them.

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

/// What is in a region instead of the right values.
enum class RegionContent : std::uint8_t {
  other,       ///< none of these
  zeros,       ///< of either sign
  nan,         ///< NaN alone
  constant,    ///< one code everywhere
  elsewhere,   ///< the right values of another place of the output
  transposed,  ///< the right values of the region itself, rows for columns
  one_ulp,     ///< one element, next to the right code
  unrelated,   ///< numbers that have nothing to do with the right ones: stale, or never written
};
std::string_view to_string(RegionContent content);

/// Rows [row, row + rows) x columns [column, column + columns), most of whose elements differ.
struct Region {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
  std::uint64_t mismatches = 0;
  RegionContent content = RegionContent::other;
  std::int64_t from_row = 0;  ///< of `elsewhere`: where its first element comes from
  std::int64_t from_column = 0;
  std::optional<Diagnosis> diagnosis{};  ///< of this region alone, where the content says nothing

  [[nodiscard]] std::uint64_t size() const { return static_cast<std::uint64_t>(rows * columns); }
};

/// Regions that are looked at.
inline constexpr std::size_t kMostRegions = 8;

/// Which elements of an output count as wrong.
class WrongElements {
 public:
  /// Those whose codes differ; two NaN codes do not.
  WrongElements(FormatId format, std::span<const std::byte> golden, std::span<const std::byte> got)
      : format_(format), golden_(golden), got_(got) {}
  /// Those of a list, ascending.
  explicit WrongElements(std::vector<std::int64_t> indices) : listed_(std::move(indices)) {}

  [[nodiscard]] bool at(std::int64_t index) const;

 private:
  FormatId format_ = FormatId::f32;
  std::span<const std::byte> golden_;
  std::span<const std::byte> got_;
  std::vector<std::int64_t> listed_;
};

/// Counts of the elements `indices` of an output [rows, columns].
MismatchMap map_of(std::int64_t rows, std::int64_t columns, std::span<const std::int64_t> indices);

/// The rectangles in which an output [rows, columns] is wrong, in the order of their first
/// elements: at most kMostRegions. None where wrong elements are all over the output, alone,
/// or scattered so that rectangles would not say where they are. `map` counts `wrong`.
/// The place that a region is a copy of is searched as far as a bound on the work allows.
std::vector<Region> find_regions(FormatId format, std::span<const std::byte> golden,
                                 std::span<const std::byte> got, std::int64_t rows,
                                 std::int64_t columns, const MismatchMap& map,
                                 const WrongElements& wrong);

/// Whether a region's numbers have nothing to do with the right ones: of at least 256, correlated
/// by less than a quarter (infinities and NaN left out, which alone are nothing to do with them).
bool unrelated(FormatId format, std::span<const std::byte> golden, std::span<const std::byte> got,
               std::int64_t columns, const Region& region);

/// `rows 16-31, columns 0-63: all zero`.
std::string describe(const Region& region);

}  // namespace fp8lab
