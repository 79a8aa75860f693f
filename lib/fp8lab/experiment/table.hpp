#pragma once
// Tidy tables: one row a point, self-describing columns with units.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace fp8lab {

struct Column {
  std::string name;         ///< snake_case, unique in its table
  std::string unit;         ///< "1" for a ratio, "%", "dB", "bits", "" for labels
  std::string description;  ///< one line
};

using Cell = std::variant<std::int64_t, double, bool, std::string>;

/// A cell as CSV writes it: reals in the shortest form that reads back to the same bits and is
/// no integer's (`1.0`), `nan`, `inf`, `-inf` spelled so, text quoted where needed.
std::string to_csv(const Cell& cell);

/// The cells of a row as a CSV line, without its end.
std::string csv_line(const std::vector<Cell>& cells);

class Table {
 public:
  Table(std::string name, std::string title, std::vector<Column> columns);

  /// Throws `Error` if the number of cells differs from the number of columns.
  void add_row(std::vector<Cell> cells);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& title() const { return title_; }
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }
  [[nodiscard]] const std::vector<std::vector<Cell>>& rows() const { return rows_; }

  [[nodiscard]] std::string csv() const;
  /// For people: the title, then aligned columns, reals as `short_number`, at
  /// most `max_rows` rows (0: all), the rest counted in a last line.
  [[nodiscard]] std::string text(std::size_t max_rows = 0) const;

 private:
  std::string name_;
  std::string title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace fp8lab
