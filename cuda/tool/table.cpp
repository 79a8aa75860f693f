#include "tool/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

/// `1 row agrees`, `2 rows agree`.
std::string counted(std::size_t count, const char* one, const char* more) {
  return count == 1 ? fmt::format("1 row {}", one) : fmt::format("{} rows {}", count, more);
}

}  // namespace

bool agrees(const CheckRow& row) { return row.mismatches == 0 && row.problem.empty(); }

std::string table_text(const std::vector<CheckRow>& rows) {
  if (rows.empty()) return "";
  std::size_t width = 48;
  for (const CheckRow& row : rows) width = std::max(width, row.name.size() + 1);
  std::string text = fmt::format("{:<{}}{:>14}{:>12}\n", "checked", width, "compared", "different");
  std::size_t agree = 0;
  std::size_t differ = 0;
  for (const CheckRow& row : rows) {
    const std::string& note = row.problem.empty() ? row.note : row.problem;
    const std::string gap = note.empty() ? "" : "  ";
    // What was not compared has no verdict.
    if (row.problem.empty() && row.cases > 0) {
      text += fmt::format("{:<{}}{:>14}{:>12}{}{}\n", row.name, width, row.cases, row.mismatches,
                          gap, note);
      ++(row.mismatches == 0 ? agree : differ);
    } else {
      text += fmt::format("{:<{}}{:>14}{:>12}{}{}\n", row.name, width, "-", "-", gap, note);
    }
  }
  text += fmt::format("\n{}, {}", counted(agree, "agrees", "agree"),
                      counted(differ, "differs", "differ"));
  if (const std::size_t rest = rows.size() - agree - differ; rest > 0)
    text += fmt::format(", {}", counted(rest, "has no verdict", "have no verdict"));
  return text + "\n";
}

void write_table(const std::filesystem::path& file, const std::vector<CheckRow>& rows) {
  const auto quoted = [](const std::string& text) {
    std::string result = "\"";
    for (const char character : text)
      result += character == '"' ? "\"\"" : std::string(1, character);
    return result + "\"";
  };
  std::ofstream out(file);
  out << "instruction,cases,mismatches,problem,note\n";
  for (const CheckRow& row : rows)
    out << fmt::format("{},{},{},{},{}\n", quoted(row.name), row.cases, row.mismatches,
                       quoted(row.problem), quoted(row.note));
  out.close();
  if (!out) throw Error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace fp8lab::cuda
