#pragma once
// Tidy tables: one row per point, and columns with names, units and descriptions.

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

/// A cell as CSV text. Reals have the shortest form that gives the same bits when read and differs
/// from an integer (`1.0`), or `nan`, `inf`, `-inf`. Text is quoted if needed.
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
  /// The table as text: the title, then aligned columns, reals as `short_number`, at
  /// most `max_rows` rows (0: all), and a last line with the number of the others.
  [[nodiscard]] std::string text(std::size_t max_rows = 0) const;

 private:
  std::string name_;
  std::string title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace fp8lab
