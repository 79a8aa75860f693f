#include "fp8lab/experiment/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/report_input.hpp"
#include "fp8lab/experiment/report_style.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kOpenRows = 16;        ///< tables up to this long are not folded
constexpr std::size_t kSummaryFindings = 4;  ///< of each experiment, more are folded

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 3; ++j)
      word = word << 8 | (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      out += j <= have ? kDigits[word >> (18 - 6 * j) & 63U] : '=';
  }
  return out;
}

std::optional<double> number_in(std::string_view cell) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (cell.empty() || error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

bool is_numeric(const StoredTable& table, std::size_t column) {
  return !table.rows.empty() &&
         std::all_of(table.rows.begin(), table.rows.end(),
                     [&](const auto& row) { return number_in(row[column]).has_value(); });
}

std::string number_cell(const std::string& cell) {
  const bool integer = cell.find_first_not_of("-0123456789") == std::string::npos;
  const double value = *number_in(cell);
  if (integer || !std::isfinite(value)) return fmt::format("<td class=n>{}</td>", cell);
  return fmt::format("<td class=n data-v=\"{}\">{}</td>", cell, short_number(value));
}

std::string heading_of(const Column& column, bool numeric) {
  const std::string unit =
      column.unit.empty() || column.unit == "1" ? "" : fmt::format(" [{}]", column.unit);
  return fmt::format("<th{} title=\"{}\"><button type=button>{}{}</button></th>",
                     numeric ? " class=n" : "", html_escaped(column.description),
                     html_escaped(column.name), html_escaped(unit));
}

std::string rows_of(const StoredTable& table, const std::vector<bool>& numeric) {
  std::string html;
  const std::size_t shown = std::min(table.rows.size(), kReportRows);
  for (std::size_t r = 0; r < shown; ++r) {
    html += "<tr>";
    for (std::size_t c = 0; c < numeric.size(); ++c)
      html += numeric[c] ? number_cell(table.rows[r][c])
                         : fmt::format("<td>{}</td>", html_escaped(table.rows[r][c]));
    html += "</tr>\n";
  }
  return html;
}

std::string html_of(const StoredTable& table) {
  std::vector<bool> numeric;
  std::string head;
  std::string columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    numeric.push_back(is_numeric(table, c));
    head += heading_of(table.columns[c], numeric[c]);
    columns += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escaped(table.columns[c].name),
                           html_escaped(table.columns[c].description));
  }
  const std::string rest =
      table.rows.size() <= kReportRows
          ? ""
          : fmt::format("<p class=quiet>The first {} of {} rows; all are in {}.</p>\n", kReportRows,
                        table.rows.size(), html_escaped(table.file));
  return fmt::format(
      "<details{}><summary>{} <span class=quiet>({} row{}, {})</span></summary>\n"
      "<div class=scroll><table class=sortable><thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>"
      "</table></div>\n{}<dl>{}</dl>\n</details>\n",
      table.rows.size() <= kOpenRows ? " open" : "", html_escaped(table.title), table.rows.size(),
      table.rows.size() == 1 ? "" : "s", html_escaped(table.file), head, rows_of(table, numeric),
      rest, columns);
}

std::string html_of(const StoredPlot& plot) {
  if (plot.svg.empty()) return "";
  return fmt::format(
      "<figure><img width=900 height=560 alt=\"{}\" "
      "src=\"data:image/svg+xml;base64,{}\"></figure>\n",
      html_escaped(plot.title), base64(plot.svg));
}

std::string items_of(std::span<const std::string> findings) {
  std::string html = "<ul>\n";
  for (const std::string& finding : findings)
    html += fmt::format("<li>{}</li>\n", html_escaped(finding));
  return html + "</ul>\n";
}

std::string list_of(const std::vector<std::string>& findings) {
  return findings.empty() ? "<p class=quiet>No findings were recorded.</p>\n" : items_of(findings);
}

/// The first findings in sight, the rest folded: a summary is there to be read.
std::string short_list_of(const std::vector<std::string>& findings) {
  if (findings.size() <= kSummaryFindings + 1) return list_of(findings);
  const std::span<const std::string> all(findings);
  return items_of(all.first(kSummaryFindings)) +
         fmt::format("<details><summary>{} more findings</summary>\n{}</details>\n",
                     all.size() - kSummaryFindings, items_of(all.subspan(kSummaryFindings)));
}

std::string pairs_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string html = "<table class=facts>\n";
  for (const auto& [name, value] : pairs)
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", html_escaped(name), html_escaped(value));
  return html + "</table>\n";
}

std::string name_of(const StoredRun& run) {
  return html_escaped(run.experiment) + (run.quick ? " <span class=badge>quick form</span>" : "");
}

/// Ids count, since one experiment may come twice, with other parameters.
std::string html_of(const StoredRun& run, std::size_t index) {
  std::string html =
      fmt::format("<section class=run id=run-{}>\n<h2>{}</h2>\n<p class=question>{}</p>\n", index,
                  name_of(run), html_escaped(run.question));
  html += list_of(run.findings);
  if (!run.plots_note.empty())
    html += fmt::format("<p class=warning>No plots: {}.</p>\n", html_escaped(run.plots_note));
  for (const StoredPlot& plot : run.plots) html += html_of(plot);
  if (!run.tables.empty()) html += "<h3>Tables</h3>\n";
  for (const StoredTable& table : run.tables) html += html_of(table);
  html += fmt::format("<h3>The command that repeats this</h3>\n<pre>{}</pre>\n",
                      html_escaped(run.command));
  html += "<details><summary>Parameters and machine</summary>\n" + pairs_of(run.parameters) +
          "<h3>Run</h3>\n" + pairs_of(run.facts) + "</details>\n</section>\n";
  return html;
}

std::string summary_of(const std::vector<StoredRun>& runs) {
  std::string html = "<section id=summary>\n<h2>What was found</h2>\n";
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<h3><a href=\"#run-{}\">{}</a></h3>\n<p class=quiet>{}</p>\n{}", i + 1,
                        name_of(runs[i]), html_escaped(runs[i].question),
                        short_list_of(runs[i].findings));
  return html + "</section>\n";
}

std::string contents_of(const std::vector<StoredRun>& runs) {
  std::string html = "<nav aria-label=Contents><strong>Contents</strong><ol>\n";
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<li><a href=\"#run-{}\">{}</a>: {} plots, {} tables</li>\n", i + 1,
                        name_of(runs[i]), runs[i].plots.size(), runs[i].tables.size());
  return html + "</ol></nav>\n";
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_report(std::span<const std::filesystem::path> folders) {
  std::vector<StoredRun> runs;
  for (const std::filesystem::path& folder : folders) runs.push_back(read_run(folder));
  std::string html =
      "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<title>fp8lab report</title>\n<style>";
  html += kReportCss;
  html += fmt::format(
      "</style>\n</head>\n<body>\n<header><h1>What FP8 does: fp8lab report</h1>\n"
      "<p class=quiet>{} experiment{}. Each section ends with the command that gives the same "
      "bytes "
      "again.</p></header>\n",
      runs.size(), runs.size() == 1 ? "" : "s");
  html += summary_of(runs) + contents_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) html += html_of(runs[i], i + 1);
  html += "<script>";
  html += kReportScript;
  return html + "</script>\n</body>\n</html>\n";
}

}  // namespace fp8lab
