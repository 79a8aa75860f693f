#pragma once
// The grid of a sweep: the values of parameters, and the points that result. A
// point depends only on the grid and its number.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment/parameters.hpp"
#include "lab/experiment/table.hpp"

namespace fp8lab {

/// One value of an axis. A parameter that is a list gets a list of this one value, or the whole
/// list that was given in brackets; tables then show lists as TOML spells them.
struct AxisValue {
  std::string toml;  ///< as `Parameters::to_toml` spells it
  Cell cell;         ///< its cell in result tables
};

/// A parameter and its values.
struct GridAxis {
  std::string key;
  std::vector<AxisValue> values;
};

/// Reads `KEY=ITEM,ITEM...`, or `KEY.PART=...` of parameters that name models. An item is a value,
/// `all` (every element of a list parameter's default), or for numbers a range with both ends:
/// `FIRST:LAST` (step 1), `FIRST:LAST:+STEP`, `FIRST:LAST:*FACTOR`; real numbers of a
/// range are rounded to 12 significant digits.
/// Throws `Error` for an unknown key, a value of another type, a range that
/// is empty, has no step or more than `most` values, and a duplicate value.
GridAxis parse_axis(std::string_view spec, const Parameters& defaults,
                    std::size_t most = 1'000'000);

/// One run of the experiment.
struct GridPoint {
  std::int64_t index = 0;
  std::int64_t repeat = 0;
  std::uint64_t seed = 0;
  Parameters parameters;
  std::vector<Cell> coordinates;  ///< of each axis, in their order
};

struct Grid {
  std::string experiment;
  Parameters base;
  std::vector<GridAxis> axes;
  std::int64_t repeats = 1;
  std::uint64_t seed = 1;

  /// Throws `Error` for a grid without points or with more than 2^30, and for a
  /// duplicate axis.
  void validate() const;

  [[nodiscard]] std::int64_t size() const;

  /// Point `index` of [0, size()): the last axis and then the repeat change
  /// fastest. Its seed is a hash of the grid's seed, the experiment, the point's
  /// values by key, and the repeat. Additional values, another order of axes and
  /// shards do not change it.
  [[nodiscard]] GridPoint at(std::int64_t index) const;
};

}  // namespace fp8lab
