#pragma once
// The rows of a sweep's table along its dimensions: the axes, and what tells the rows of one point
// apart. Holding dimensions at one value leaves what fits in one picture.

#include <cstddef>
#include <string>
#include <vector>

#include "lab/report/input.hpp"

namespace fp8lab {

struct Dimension {
  std::string name;
  bool axis = false;                ///< of the sweep; else a column of the experiment's table
  bool numeric = false;             ///< then `values` rise
  std::vector<std::string> values;  ///< each once
  std::vector<std::size_t> of_row;  ///< which value each row of the table has
};

/// The axes with more than one value, then the fewest of the table's own keys that tell the rows of
/// a point apart. A key that takes another value at other points (the tile size that an axis sets)
/// is told apart by the row's place in its point; its value is then "varies".
std::vector<Dimension> dimensions_of(const StoredTable& table);

/// The rows of a table that have the held values.
class Slice {
 public:
  Slice(const StoredTable& table, const std::vector<Dimension>& dimensions);

  /// Holds `dimension` at the middle one of the numbers that it still takes, or at the label
  /// that varies with an axis, or else the first.
  void hold(std::size_t dimension);
  /// Holds those of `free` that take most values until their combinations are at most `most`.
  void hold_until(std::vector<std::size_t> free, std::size_t most);

  [[nodiscard]] const std::vector<std::size_t>& rows() const { return rows_; }
  /// The values, by index, that `dimension` still takes, rising.
  [[nodiscard]] std::vector<std::size_t> values(std::size_t dimension) const;
  /// `outlier = 1000, subnormals = kept`; empty if nothing is held.
  [[nodiscard]] std::string held() const;

 private:
  [[nodiscard]] std::size_t combinations(const std::vector<std::size_t>& dimensions) const;

  const std::vector<Dimension>& dimensions_;
  std::vector<std::size_t> rows_;
  std::vector<std::string> held_;
};

}  // namespace fp8lab
