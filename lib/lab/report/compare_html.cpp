#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/report/compare.hpp"
#include "lab/report/html.hpp"
#include "lab/report/report.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kSummaryWords = 5;  ///< of each pair, more are folded
constexpr std::size_t kOpenChanges = 4;   ///< columns of a table that are named, more are folded

std::string absent_or(const std::optional<std::string>& text) {
  return text ? html_escaped(*text) : "<span class=quiet>none</span>";
}

/// Two columns of texts, those that differ marked.
std::string pair_table(const std::vector<ComparedText>& pairs) {
  std::string html =
      "<div class=scroll tabindex=0><table class=facts><thead><tr><td></td>"
      "<th scope=col>A</th><th scope=col>B</th></tr></thead>\n<tbody>\n";
  for (const ComparedText& pair : pairs)
    html += fmt::format("<tr{}><th scope=row>{}{}</th><td>{}</td><td>{}</td></tr>\n",
                        pair.differs() ? " class=differs" : "", html_escaped(pair.name),
                        pair.differs() ? " &ne;" : "", absent_or(pair.a), absent_or(pair.b));
  return html + "</tbody></table></div>\n";
}

std::string findings_of(const RunComparison& runs) {
  std::vector<std::string> same;
  std::string html;
  for (const ComparedText& finding : runs.findings) {
    if (!finding.differs())
      same.push_back(*finding.a);
    else
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", absent_or(finding.a),
                          absent_or(finding.b));
  }
  if (!html.empty())
    html =
        "<table class=halves><thead><tr><th scope=col>A</th><th scope=col>B</th></tr></thead>\n"
        "<tbody>\n" +
        html + "</tbody></table>\n";
  if (!same.empty())
    html += html_fold(runs.findings.size() == same.size(), fmt::format("{} in both", same.size()),
                      html_list(same));
  return html.empty() ? "" : "<h3>Findings</h3>\n" + html;
}

Column described(const Column& column, std::string_view which, std::string_view what) {
  return {column.name + std::string(which), which == " B/A" ? "1" : column.unit,
          fmt::format("{}: {}", what, column.description)};
}

/// Whether a column has difference and ratio beside A and B: spreads go without.
bool has_change(const TableComparison& table, const JoinedColumn& column) {
  return column.numeric && !is_spread(*table.a, column.a);
}

/// Where all rows agree a column stands once; else A, B, and for numbers difference and ratio.
std::vector<std::string> joined_head(const TableComparison& table) {
  std::vector<std::string> head{html_heading({"match", "", "differs, or only in A or B"}, false)};
  for (const JoinedColumn& joined : table.columns) {
    const Column& column = table.a->columns[joined.a];
    if (joined.key || joined.differing == 0) {
      head.push_back(html_heading(column, joined.numeric));
      continue;
    }
    head.push_back(html_heading(described(column, " A", "in A"), joined.numeric));
    head.push_back(html_heading(described(column, " B", "in B"), joined.numeric));
    if (!has_change(table, joined)) continue;
    head.push_back(html_heading(described(column, " B-A", "difference"), true));
    head.push_back(html_heading(described(column, " B/A", "ratio"), true));
  }
  return head;
}

std::string number_or_empty(double value) {
  return html_cell(std::isnan(value) ? "" : fmt::format("{}", value), true);
}

std::string joined_row(const TableComparison& table, const JoinedRow& row) {
  const bool both = row.a != nullptr && row.b != nullptr;
  const char* alone = row.a != nullptr ? "only A" : "only B";
  std::string html = fmt::format("<tr{}><td>{}</td>", row.differs ? " class=differs" : "",
                                 !both         ? alone
                                 : row.differs ? "differs"
                                               : "");
  for (const JoinedColumn& column : table.columns) {
    const std::string a = row.a == nullptr ? "" : (*row.a)[column.a];
    const std::string b = row.b == nullptr ? "" : (*row.b)[column.b];
    if (column.key || column.differing == 0) {
      html += html_cell(row.a == nullptr ? b : a, column.numeric);
      continue;
    }
    html += html_cell(a, column.numeric) + html_cell(b, column.numeric);
    if (!has_change(table, column)) continue;
    const bool differ = both && a != b;
    html += number_or_empty(differ ? difference_of(a, b) : std::nan(""));
    html += number_or_empty(differ ? ratio_of(a, b) : std::nan(""));
  }
  return html + "</tr>\n";
}

std::string joined_by(const TableComparison& table) {
  if (table.by_position) return "Rows are matched by their order: no column identifies them.";
  std::string keys;
  for (const JoinedColumn& column : table.columns)
    if (column.key) keys += (keys.empty() ? "" : ", ") + table.a->columns[column.a].name;
  return keys.empty() ? "One row each." : fmt::format("Rows are matched by {}.", keys);
}

std::string html_of(const TableComparison& table) {
  if (table.b == nullptr || table.a == nullptr)
    return fmt::format("<p class=warning>Only in {}:</p>\n{}", table.a != nullptr ? "A" : "B",
                       html_table(table.a != nullptr ? *table.a : *table.b));
  if (table.same_bytes) return html_table(*table.a);
  std::vector<const JoinedRow*> rows;
  for (const JoinedRow& row : table.rows) rows.push_back(&row);
  // What is cut off must not be what differs.
  if (rows.size() > kReportRows)
    std::stable_partition(rows.begin(), rows.end(),
                          [](const JoinedRow* row) { return row->differs; });
  std::vector<std::string> body;
  for (std::size_t r = 0; r < std::min(rows.size(), kReportRows); ++r)
    body.push_back(joined_row(table, *rows[r]));
  const std::span<const std::string> changes(table.changes);
  const std::size_t open = std::min(changes.size(), kOpenChanges);
  std::string content = fmt::format("<p>{}.</p>\n", html_escaped(table.counts));
  if (open > 0) content += html_list(changes.first(open));
  if (open < changes.size())
    content += html_fold(false, fmt::format("{} more", changes.size() - open),
                         html_list(changes.subspan(open)));
  content += html_sortable(table.a->title, joined_head(table), body);
  if (rows.size() > kReportRows)
    content += fmt::format("<p class=quiet>{} of {} rows, first those that differ.</p>\n",
                           kReportRows, rows.size());
  content += fmt::format("<p class=quiet>{}</p>\n", html_escaped(joined_by(table)));
  return html_fold(true,
                   fmt::format("{} <span class=quiet>({}, A against B)</span>",
                               html_written(table.a->title), html_escaped(table.a->file)),
                   content + html_columns(table.a->columns));
}

std::string tables_of(const RunComparison& runs) {
  if (runs.tables.empty()) return "";
  std::string same;
  std::string html = "<h3>Tables</h3>\n";
  std::size_t count = 0;
  for (const TableComparison& table : runs.tables) {
    (table.same_bytes ? same : html) += html_of(table);
    count += table.same_bytes ? 1 : 0;
  }
  if (count > 0)
    html += html_fold(false, fmt::format("{} identical to the last byte", count), same);
  return html;
}

std::string half(const std::string& side, const StoredPlot* plot) {
  const std::string picture =
      plot == nullptr || plot->svg.empty() ? "<p class=quiet>no picture</p>\n" : html_figure(*plot);
  return fmt::format("<div><p class=side>{}</p>{}</div>\n", side, picture);
}

/// Pictures in pairs by name; one that both have is shown once.
std::string plots_of(const StoredRun& a, const StoredRun& b) {
  std::string html;
  const auto in = [](const StoredRun& run, const std::string& name) -> const StoredPlot* {
    const auto found = std::ranges::find(run.plots, name, &StoredPlot::name);
    return found == run.plots.end() ? nullptr : &*found;
  };
  for (const StoredPlot& plot : a.plots) {
    const StoredPlot* other = in(b, plot.name);
    if (other != nullptr && other->svg == plot.svg && !plot.svg.empty())
      html += "<p class=side>A and B, the same image</p>\n" + html_figure(plot);
    else
      html += "<div class=pair>\n" + half("A", &plot) + half("B", other) + "</div>\n";
  }
  for (const StoredPlot& plot : b.plots)
    if (in(a, plot.name) == nullptr)
      html += "<div class=pair>\n" + half("A", nullptr) + half("B", &plot) + "</div>\n";
  return html.empty() ? "" : "<h3>Plots</h3>\n" + html;
}

std::string inputs_of(const RunComparison& runs) {
  std::vector<ComparedText> differing;
  std::vector<ComparedText> same;
  for (const ComparedText& parameter : runs.parameters)
    (parameter.differs() ? differing : same).push_back(parameter);
  std::string html;
  if (!differing.empty()) html += "<h3>Parameters that differ</h3>\n" + pair_table(differing);
  html += fmt::format("<h3>Commands that repeat the two runs</h3>\n<pre>{}\n{}</pre>\n",
                      html_escaped("A: " + runs.a->command), html_escaped("B: " + runs.b->command));
  std::string rest = same.empty() ? "" : "<h3>The same in both</h3>\n" + pair_table(same);
  return html + html_fold(false, "Other parameters, version and machine",
                          rest + "<h3>Run</h3>\n" + pair_table(runs.facts));
}

std::string html_of(const RunComparison& runs, std::size_t index, bool with_words) {
  return fmt::format(
      "<section class=run id=run-{}>\n<h2>{}{}</h2>\n<p class=question>{}</p>\n"
      "<p><strong>A</strong>: {}<br><strong>B</strong>: {}</p>\n{}{}{}{}{}</section>\n",
      index, html_escaped(runs.a->experiment), html_badges(*runs.a), html_written(runs.a->question),
      html_escaped(runs.a->folder), html_escaped(runs.b->folder),
      with_words ? html_list(runs.words) : "", findings_of(runs), plots_of(*runs.a, *runs.b),
      tables_of(runs), inputs_of(runs));
}

std::string summary_of(const std::vector<RunComparison>& pairs) {
  std::string html = "<section id=summary>\n<h2>What differs</h2>\n";
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::span<const std::string> words(pairs[i].words);
    html += fmt::format("<h3><a href=\"#run-{}\">{}</a>{}</h3>\n{}", i + 1,
                        html_escaped(pairs[i].a->experiment), html_badges(*pairs[i].a),
                        html_list(words.first(std::min(words.size(), kSummaryWords))));
    if (words.size() > kSummaryWords)
      html += html_fold(false, fmt::format("{} more", words.size() - kSummaryWords),
                        html_list(words.subspan(kSummaryWords)));
  }
  return html + "</section>\n";
}

const StoredRun* counterpart(std::span<const StoredRun> runs, const StoredRun& of) {
  const auto found = std::ranges::find_if(runs, [&](const StoredRun& run) {
    return run.experiment == of.experiment && run.sweep == of.sweep;
  });
  return found == runs.end() ? nullptr : &*found;
}

/// Sections of runs that have no counterpart.
std::string alone(std::span<const StoredRun> runs, std::span<const StoredRun> others,
                  std::string_view side) {
  std::string html;
  for (const StoredRun& run : runs)
    if (counterpart(others, run) == nullptr)
      html += fmt::format(
          "<section class=run>\n<h2>{}{}</h2>\n<p class=warning>Only in {}: {}</p>\n"
          "<p class=question>{}</p>\n{}</section>\n",
          html_escaped(run.experiment), html_badges(run), side, html_escaped(run.folder),
          html_written(run.question), html_run(run));
  return html;
}

bool has_twice(std::span<const StoredRun> runs) {
  return std::ranges::any_of(runs,
                             [&](const StoredRun& run) { return counterpart(runs, run) != &run; });
}

}  // namespace

bool comparable(std::span<const StoredRun> a, std::span<const StoredRun> b) {
  return !has_twice(a) && !has_twice(b) && std::ranges::any_of(a, [&](const StoredRun& run) {
    return counterpart(b, run) != nullptr;
  });
}

std::string html_comparison(std::span<const StoredRun> a, std::span<const StoredRun> b) {
  require(comparable(a, b), "comparison", "two sets of results with an experiment in common",
          fmt::format("{} and {} results", a.size(), b.size()));
  std::vector<RunComparison> pairs;
  for (const StoredRun& run : a)
    if (const StoredRun* other = counterpart(b, run)) pairs.push_back(compare_runs(run, *other));
  std::string body = summary_of(pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) body += html_of(pairs[i], i + 1, pairs.size() > 1);
  body += alone(a, b, "A") + alone(b, a, "B");
  return html_page(
      "Two runs side by side: fp8lab report",
      fmt::format("{} in both.", pairs.size() == 1 ? std::string("1 experiment")
                                                   : counted(pairs.size(), "experiment")),
      body);
}

}  // namespace fp8lab
