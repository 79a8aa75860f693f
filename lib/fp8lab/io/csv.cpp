#include "fp8lab/io/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

bool is_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  if (text.find('(') != std::string_view::npos) return false;  // as in nan(1)
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error != std::errc::invalid_argument && end == text.data() + text.size();
}

/// Whether a spreadsheet would run it, with or without apostrophes in front.
bool is_formula(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\''), text.size()));
  constexpr std::string_view kStarts = "=+-@\t\r";
  return !text.empty() && kStarts.find(text.front()) != std::string_view::npos && text != "-" &&
         text != "+" && !is_number(text);
}

}  // namespace

std::string csv_cell(std::string_view text) {
  std::string cell = is_formula(text) ? "'" : "";
  cell += text;
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::vector<std::vector<std::string>> parse_csv(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  std::size_t i = 0;
  while (i < text.size()) {
    std::vector<std::string> row;
    for (bool more = true; more;) {
      std::string cell;
      if (i < text.size() && text[i] == '"') {
        for (++i; i < text.size() && (text[i] != '"' || text.substr(i, 2) == "\"\""); ++i) {
          if (text[i] == '"') ++i;
          cell += text[i];
        }
        if (i >= text.size()) throw Error(fmt::format("row {}: open quote", rows.size() + 1));
        ++i;
      } else {
        while (i < text.size() && text[i] != ',' && text[i] != '\n') cell += text[i++];
      }
      if (cell.starts_with('\'') && is_formula(cell)) cell.erase(0, 1);
      row.push_back(std::move(cell));
      more = i < text.size() && text[i] == ',';
      if (!more && i < text.size() && text[i] != '\n')
        throw Error(fmt::format("row {}: text after a closing quote", rows.size() + 1));
      ++i;
    }
    if (!rows.empty() && row.size() != rows.front().size())
      throw Error(fmt::format("row {}", rows.size() + 1), counted(rows.front().size(), "cell"),
                  std::to_string(row.size()));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fp8lab
