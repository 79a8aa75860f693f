#pragma once
// The grid of a sweep: which parameters take which values, and the points that
// this makes. A point is a function of the grid and its number alone.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/experiment/table.hpp"

namespace fp8lab {

/// One value of an axis. A parameter that is a list gets a list of this one value, or the whole
/// list that was given in brackets; tables then show lists as TOML spells them.
struct AxisValue {
  std::string toml;  ///< as `Parameters::to_toml` spells it
  Cell cell;         ///< what result tables show
};

/// A parameter and the values that it takes in turn.
struct GridAxis {
  std::string key;
  std::vector<AxisValue> values;
};

/// Reads `KEY=ITEM,ITEM...`, or `KEY.PART=...` of parameters that name models. An item is a value,
/// `all` (every element of a list parameter's default), or for numbers a range with both ends:
/// `FIRST:LAST` (step 1), `FIRST:LAST:+STEP`, `FIRST:LAST:*FACTOR`; real numbers of a
/// range are rounded to 12 significant digits.
/// Throws `Error` for an unknown key, a value of another type, a range that
/// is empty or does not move, and a value that comes twice.
GridAxis parse_axis(std::string_view spec, const Parameters& defaults);

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

  /// Throws `Error` for a grid without points or of more than 2^40, and for an
  /// axis that comes twice.
  void validate() const;

  [[nodiscard]] std::int64_t size() const;

  /// Point `index` of [0, size()): the last axis and then the repeat change
  /// fastest. Its seed is a hash of the grid's seed, the experiment, the point's
  /// values by key, and the repeat: more values, axes in another order and
  /// shards leave it as it is.
  [[nodiscard]] GridPoint at(std::int64_t index) const;
};

}  // namespace fp8lab
