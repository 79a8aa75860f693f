#include "fp8lab/io/csv.hpp"

#include <fmt/format.h>

#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {

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
