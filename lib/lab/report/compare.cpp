#include "lab/report/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/short_number.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace fp8lab {
namespace {

std::vector<ComparedText> compare_pairs(const StoredPairs& a, const StoredPairs& b) {
  std::vector<ComparedText> compared;
  for (const auto& [name, value] : a) compared.push_back({name, value, std::nullopt});
  for (const auto& [name, value] : b) {
    const auto found = std::ranges::find(compared, name, &ComparedText::name);
    if (found == compared.end())
      compared.push_back({name, std::nullopt, value});
    else
      found->b = value;
  }
  return compared;
}

/// Seed and axes go into a run as parameters do; time and machine do not.
bool goes_in(const std::string& fact) {
  return fact == "seed" || fact == "repeats" || fact.starts_with("axis ");
}

StoredPairs facts_where(const StoredRun& run, bool going_in) {
  StoredPairs facts;
  for (const auto& fact : run.facts)
    if (goes_in(fact.first) == going_in) facts.push_back(fact);
  return facts;
}

StoredPairs inputs_of(const StoredRun& run) {
  StoredPairs pairs = run.parameters;
  std::ranges::move(facts_where(run, true), std::back_inserter(pairs));
  pairs.emplace_back("quick form", run.quick ? "yes" : "no");
  return pairs;
}

/// A sentence with `#` for each number: findings that say the same of other values are alike.
std::string wording(const std::string& finding) {
  std::string text;
  for (const char c : finding) {
    const bool number = (c >= '0' && c <= '9') || c == '.';
    if (!number)
      text += c;
    else if (text.empty() || text.back() != '#')
      text += '#';
  }
  return text;
}

std::vector<ComparedText> compare_findings(const StoredRun& a, const StoredRun& b) {
  std::vector<ComparedText> compared;
  for (const std::string& finding : a.findings) compared.push_back({"", finding, std::nullopt});
  for (const std::string& finding : b.findings) {
    const auto same = [&](const ComparedText& c) { return c.a && !c.b && *c.a == finding; };
    const auto alike = [&](const ComparedText& c) {
      return c.a && !c.b && wording(*c.a) == wording(finding);
    };
    auto found = std::ranges::find_if(compared, same);
    if (found == compared.end()) found = std::ranges::find_if(compared, alike);
    if (found == compared.end())
      compared.push_back({"", std::nullopt, finding});
    else
      found->b = finding;
  }
  return compared;
}

/// The columns that both have; keys are those of the first `own` own columns, and of the point.
std::vector<JoinedColumn> joined_columns(const StoredTable& a, const StoredTable& b,
                                         std::optional<std::size_t> own) {
  std::vector<JoinedColumn> columns;
  for (std::size_t i = 0; i < a.columns.size(); ++i) {
    const auto found = std::ranges::find(b.columns, a.columns[i].name, &Column::name);
    if (found == b.columns.end()) continue;
    JoinedColumn column{i, static_cast<std::size_t>(found - b.columns.begin()), false, false, 0};
    column.key = own && i < a.point_columns + *own && i + 1 != a.point_columns;
    column.numeric = is_numeric(a, column.a) && is_numeric(b, column.b);
    columns.push_back(column);
  }
  return columns;
}

/// How many own keys join the rows; nothing if they are joined by their order.
std::optional<std::size_t> joining_keys(const StoredTable& a, const StoredTable& b) {
  const auto of_a = own_keys(a);
  const auto of_b = own_keys(b);
  if (!of_a || !of_b || a.point_columns != b.point_columns) return std::nullopt;
  const std::size_t own = std::max(*of_a, *of_b);
  for (std::size_t c = 0; c < a.point_columns + own; ++c)
    if (a.columns[c].name != b.columns[c].name) return std::nullopt;
  return own;
}

std::vector<JoinedRow> joined_rows(const StoredTable& a, const StoredTable& b,
                                   std::optional<std::size_t> own) {
  std::vector<JoinedRow> rows;
  std::map<std::vector<std::string>, std::size_t> index;
  for (const auto& row : a.rows) {
    if (own) index.emplace(row_key(a, row, *own), rows.size());
    rows.push_back({&row, nullptr, false});
  }
  for (std::size_t r = 0; r < b.rows.size(); ++r) {
    std::size_t at = own ? rows.size() : r;
    if (const auto found = own ? index.find(row_key(b, b.rows[r], *own)) : index.end();
        found != index.end())
      at = found->second;
    if (at < rows.size())
      rows[at].b = &b.rows[r];
    else
      rows.push_back({nullptr, &b.rows[r], false});
  }
  return rows;
}

/// What tells a row apart, for a sentence: `outlier = 1000, tile = 16`.
std::string name_of(const TableComparison& table, const JoinedRow& row) {
  std::vector<std::string> parts;
  for (const JoinedColumn& column : table.columns) {
    if (!column.key) continue;
    const std::string& cell = (*row.a)[column.a];
    const auto number = column.numeric ? number_in(cell) : std::nullopt;
    parts.push_back(fmt::format("{} = {}", table.a->columns[column.a].name,
                                number ? short_number(*number) : cell));
  }
  if (parts.empty()) return fmt::format("row {}", row.a - table.a->rows.data() + 1);
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// How large a change is beside the larger of the values: 0 to 2.
double relative_change(const std::string& a, const std::string& b) {
  const double change = std::abs(difference_of(a, b));
  const double size =
      std::max(std::abs(number_in(a).value_or(0.0)), std::abs(number_in(b).value_or(0.0)));
  return std::isfinite(change) && size > 0.0 ? change / size : 0.0;
}

std::string change_of(const std::string& a, const std::string& b) {
  const auto x = number_in(a);
  const auto y = number_in(b);
  if (!x || !y) return fmt::format("'{}' became '{}'", a, b);
  const double ratio = ratio_of(a, b);
  std::string text = fmt::format("{} became {}", short_number(*x), short_number(*y));
  if (std::isfinite(ratio) && ratio > 0.0) text += fmt::format(" (x {})", short_number(ratio));
  return text;
}

/// `bulk_l2 in 12 rows, most where tile = 16: 0.02 became 0.03 (x 1.5)`.
std::string column_change(const TableComparison& table, const JoinedColumn& column) {
  const JoinedRow* most = nullptr;
  for (const JoinedRow& row : table.rows) {
    if (row.a == nullptr || row.b == nullptr) continue;
    const std::string& a = (*row.a)[column.a];
    const std::string& b = (*row.b)[column.b];
    if (a == b) continue;
    if (most == nullptr ||
        relative_change(a, b) > relative_change((*most->a)[column.a], (*most->b)[column.b]))
      most = &row;
  }
  return fmt::format("{} in {}, {}{}: {}", table.a->columns[column.a].name,
                     counted(column.differing, "row"),
                     column.numeric ? "most where " : "first where ", name_of(table, *most),
                     change_of((*most->a)[column.a], (*most->b)[column.b]));
}

std::string row_counts(const TableComparison& table) {
  std::size_t both = 0;
  std::size_t differ = 0;
  std::array<std::size_t, 2> alone{};
  for (const JoinedRow& row : table.rows) {
    if (row.a == nullptr || row.b == nullptr) {
      ++alone[row.a == nullptr ? 1 : 0];
      continue;
    }
    ++both;
    differ += row.differs ? 1 : 0;
  }
  std::string counts =
      fmt::format("{} of {} {}", differ, counted(both, "row"), differ == 1 ? "differs" : "differ");
  for (std::size_t side = 0; side < 2; ++side)
    if (alone[side] > 0)
      counts += fmt::format(", {} more only in {}", alone[side], side == 0 ? "A" : "B");
  return counts;
}

std::vector<std::string> changes_of(const TableComparison& table) {
  std::vector<std::string> changes;
  for (const JoinedColumn& column : table.columns)
    if (!column.key && column.differing > 0 && !is_spread(*table.a, column.a))
      changes.push_back(column_change(table, column));
  const auto only = [&](const StoredTable& of, const StoredTable& other, const char* side) {
    for (const Column& column : of.columns)
      if (std::ranges::find(other.columns, column.name, &Column::name) == other.columns.end())
        changes.push_back(fmt::format("column {} only in {}", column.name, side));
  };
  only(*table.a, *table.b, "A");
  only(*table.b, *table.a, "B");
  return changes;
}

TableComparison compare_tables(const StoredTable& a, const StoredTable& b) {
  TableComparison table{&a, &b, a.csv == b.csv, false, {}, {}, {}, {}};
  const std::optional<std::size_t> own = joining_keys(a, b);
  table.by_position = !own;
  table.columns = joined_columns(a, b, own);
  table.rows = joined_rows(a, b, own);
  for (JoinedRow& row : table.rows) {
    row.differs = row.a == nullptr || row.b == nullptr;
    for (JoinedColumn& column : table.columns) {
      if (row.a == nullptr || row.b == nullptr) break;
      if ((*row.a)[column.a] == (*row.b)[column.b]) continue;
      ++column.differing;
      row.differs = true;
    }
  }
  if (table.same_bytes) return table;
  table.counts = row_counts(table);
  table.changes = changes_of(table);
  return table;
}

std::vector<TableComparison> compare_all_tables(const StoredRun& a, const StoredRun& b) {
  std::vector<TableComparison> tables;
  const auto in = [](const StoredRun& run, const std::string& file) {
    return std::ranges::find(run.tables, file, &StoredTable::file);
  };
  const auto alone = [&](const StoredTable* of_a, const StoredTable* of_b) {
    tables.push_back({of_a, of_b, false, false, {}, {}, "", {}});
    tables.back().counts = fmt::format("only in {}", of_a != nullptr ? "A" : "B");
  };
  for (const StoredTable& table : a.tables) {
    if (const auto other = in(b, table.file); other != b.tables.end())
      tables.push_back(compare_tables(table, *other));
    else
      alone(&table, nullptr);
  }
  for (const StoredTable& table : b.tables)
    if (in(a, table.file) == a.tables.end()) alone(nullptr, &table);
  return tables;
}

bool same_plots(const StoredRun& a, const StoredRun& b) {
  return std::ranges::equal(a.plots, b.plots, [](const StoredPlot& x, const StoredPlot& y) {
    return x.name == y.name && x.title == y.title && x.json == y.json &&
           (!x.json.empty() || x.svg == y.svg);
  });
}

std::vector<std::string> summary_words(const RunComparison& runs) {
  std::vector<std::string> words;
  std::vector<std::string> inputs;
  for (const ComparedText& parameter : runs.parameters)
    if (parameter.differs())
      inputs.push_back(fmt::format("{} ({} in A, {} in B)", parameter.name,
                                   parameter.a.value_or("none"), parameter.b.value_or("none")));
  const auto differing_tables = static_cast<std::size_t>(
      std::ranges::count(runs.tables, false, &TableComparison::same_bytes));
  const auto differing_findings =
      static_cast<std::size_t>(std::ranges::count_if(runs.findings, &ComparedText::differs));
  if (differing_tables == 0 && differing_findings == 0) {
    const bool plots = same_plots(*runs.a, *runs.b);
    words.push_back(fmt::format(
        "Identical to the last byte: {}{} and {}.", counted(runs.tables.size(), "table"),
        plots && !runs.a->plots.empty() ? ", " + counted(runs.a->plots.size(), "plot") : "",
        counted(runs.findings.size(), "finding")));
    if (!plots)
      words.emplace_back("The images of the plots differ, although the tables are the same.");
  } else {
    words.push_back(fmt::format("{} of {} tables differ, and {} of {} findings.", differing_tables,
                                runs.tables.size(), differing_findings, runs.findings.size()));
  }
  words.push_back(inputs.empty() ? std::string("The same parameters and seed.")
                                 : fmt::format("Other inputs: {}.", fmt::join(inputs, "; ")));
  for (const TableComparison& table : runs.tables)
    if (!table.same_bytes)
      words.push_back(fmt::format("{}: {}{}{}.", (table.a != nullptr ? table.a : table.b)->file,
                                  table.counts, table.changes.empty() ? "" : "; ",
                                  table.changes.empty() ? "" : table.changes.front()));
  return words;
}

}  // namespace

double difference_of(const std::string& a, const std::string& b) {
  const FloatEnvironment environment;
  return number_in(b).value_or(std::nan("")) - number_in(a).value_or(std::nan(""));
}

double ratio_of(const std::string& a, const std::string& b) {
  const FloatEnvironment environment;
  return number_in(b).value_or(std::nan("")) / number_in(a).value_or(std::nan(""));
}

RunComparison compare_runs(const StoredRun& a, const StoredRun& b) {
  const FloatEnvironment environment;
  RunComparison runs{&a, &b, {}, {}, {}, {}, {}};
  runs.parameters = compare_pairs(inputs_of(a), inputs_of(b));
  runs.facts = compare_pairs(facts_where(a, false), facts_where(b, false));
  runs.findings = compare_findings(a, b);
  runs.tables = compare_all_tables(a, b);
  runs.words = summary_words(runs);
  return runs;
}

}  // namespace fp8lab
