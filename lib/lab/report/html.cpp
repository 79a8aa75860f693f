#include "lab/report/html.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/core/short_number.hpp"
#include "lab/plots/text.hpp"
#include "lab/report/style.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kOpenRows = 16;     ///< tables up to this long are not folded
constexpr std::size_t kOpenFindings = 3;  ///< as many beside the answer are not folded
constexpr std::size_t kShortText = 36;    ///< of a cell; longer ones are wrapped
constexpr std::size_t kPaperRows = 60;    ///< as in the style sheet
constexpr std::string_view kVegaLite = "vega.github.io/schema/vega-lite/";

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

/// The specification of a plot, which the page's script draws: no text of a label may end the
/// element.
std::string html_plot_data(std::string_view json) {
  std::string data;
  for (const char c : json) data += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return "<script type=\"application/json\">" + data + "</script>";
}

/// Those curves of a plot that its small picture shows, as the page's script reads them.
std::string curves_attribute(std::span<const Headline::Curve> curves) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const auto& [label, name] : curves) pairs.push_back({label, name});
  return fmt::format(" data-curves=\"{}\"", html_escaped(json_text(pairs)));
}

/// A column's name that may be broken behind its underlines, where paper has no room for all of it.
std::string breakable(std::string_view name) {
  std::string out;
  for (const char c : html_escaped(name)) {
    out += c;
    if (c == '_') out += "<wbr>";
  }
  return out;
}

/// Lines of text, each `printable`.
std::string shown_in_lines(std::string_view text) {
  std::string out;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    out += printable(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return out + printable(text);
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : shown_in_lines(text)) {
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

std::string html_written(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t raised = raised_after(text, i);
    if (raised == 0) continue;
    out += html_escaped(text.substr(begin, i - begin));
    out += fmt::format("<sup>{}</sup>", text.substr(i + 1, raised));
    i += raised;
    begin = i + 1;
  }
  return out + html_escaped(text.substr(begin));
}

std::string html_cell(const std::string& text, bool numeric) {
  const auto value = numeric ? number_in(text) : std::nullopt;
  const char* kind = numeric ? " class=n" : text.size() > kShortText ? " class=t" : "";
  if (!value) return fmt::format("<td{}>{}</td>", kind, html_written(text));
  const bool integer = text.find_first_not_of("-0123456789") == std::string::npos;
  if (integer || !std::isfinite(*value)) return fmt::format("<td class=n>{}</td>", text);
  const std::string shown = short_number(*value);
  // Pointing shows all digits, and rows are sorted by them.
  const std::string all = shown == text ? "" : fmt::format(" title=\"{}\"", text);
  return fmt::format("<td class=n{}>{}</td>", all, shown);
}

std::string html_heading(const Column& column, bool numeric) {
  const std::string unit =
      column.unit.empty() || column.unit == "1" ? "" : fmt::format(" [{}]", column.unit);
  return fmt::format("<th scope=col{} title=\"{}\"><button type=button>{}{}</button></th>",
                     numeric ? " class=n" : "", html_escaped(column.description),
                     breakable(column.name), html_escaped(unit));
}

std::string html_sortable(std::string_view title, std::span<const std::string> head,
                          std::span<const std::string> rows) {
  const std::string cut =
      rows.size() <= kPaperRows
          ? ""
          : fmt::format("<p class=paper>In print: the first {} of {} rows.</p>\n", kPaperRows,
                        rows.size());
  // Whoever has no pointer scrolls the box with the arrow keys: it takes the focus.
  return fmt::format(
      "<div class=scroll tabindex=0 role=region aria-label=\"{}\">"
      "<table class=sortable style=\"--columns:{}\"><thead><tr>{}</tr></thead>\n"
      "<tbody>\n{}</tbody></table></div>\n{}",
      html_escaped(title), head.size(), fmt::join(head, ""), fmt::join(rows, ""), cut);
}

std::string html_fold(bool open, std::string_view summary, std::string_view content) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", open ? " open" : "",
                     summary, content);
}

std::string html_columns(std::span<const Column> columns) {
  std::string html = "<dl>\n";
  for (const Column& column : columns)
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escaped(column.name),
                        html_written(column.description));
  return html + "</dl>\n";
}

std::string html_table(const StoredTable& table) {
  std::vector<bool> numeric;
  std::vector<std::string> head;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    numeric.push_back(is_numeric(table, c));
    head.push_back(html_heading(table.columns[c], numeric[c]));
  }
  std::vector<std::string> rows;
  for (std::size_t r = 0; r < std::min(table.rows.size(), kReportRows); ++r) {
    std::string& row = rows.emplace_back("<tr>");
    for (std::size_t c = 0; c < numeric.size(); ++c) row += html_cell(table.rows[r][c], numeric[c]);
    row += "</tr>\n";
  }
  std::string content = html_sortable(table.title, head, rows);
  if (table.rows.size() > kReportRows)
    content += fmt::format("<p class=quiet>The first {} of {} rows; all are in {}.</p>\n",
                           kReportRows, table.rows.size(), html_escaped(table.file));
  const std::string summary =
      fmt::format("{} <span class=quiet>({}, {})</span>", html_written(table.title),
                  counted(table.rows.size(), "row"), html_escaped(table.file));
  return html_fold(table.rows.size() <= kOpenRows, summary, content + html_columns(table.columns));
}

std::string html_figure(const StoredPlot& plot, std::span<const Headline::Curve> curves) {
  if (plot.json.find(kVegaLite) != std::string::npos)
    return fmt::format(
        "<figure{}>{}<noscript>This plot needs JavaScript; {}.svg shows the same "
        "plot.</noscript></figure>\n",
        curves.empty() ? "" : curves_attribute(curves), html_plot_data(plot.json),
        html_escaped(plot.name));
  if (plot.svg.empty()) return "";
  return fmt::format(
      "<figure><img width=900 height=560 alt=\"{}\" "
      "src=\"data:image/svg+xml;base64,{}\"></figure>\n",
      html_escaped(plot.title), base64(plot.svg));
}

std::string html_list(std::span<const std::string> sentences) {
  if (sentences.empty()) return "<p class=quiet>No findings were recorded.</p>\n";
  std::string html = "<ul>\n";
  for (const std::string& sentence : sentences)
    html += fmt::format("<li>{}</li>\n", html_written(sentence));
  return html + "</ul>\n";
}

std::string html_pairs(const StoredPairs& pairs) {
  std::string html = "<table class=facts>\n";
  for (const auto& [name, value] : pairs)
    html += fmt::format("<tr><th scope=row>{}</th><td>{}</td></tr>\n", html_escaped(name),
                        html_escaped(value));
  return html + "</table>\n";
}

std::string html_badges(const StoredRun& run) {
  return std::string(run.sweep ? " <span class=badge>sweep</span>" : "") +
         (run.quick ? " <span class=badge>quick form</span>" : "");
}

std::string answer_of(const StoredRun& run) {
  if (run.headline) return run.headline->sentence;
  return run.findings.empty() ? "No findings were recorded." : run.findings.front();
}

std::string html_run(const StoredRun& run) {
  std::string html = fmt::format("<p class=answer>{}</p>\n", html_written(answer_of(run)));
  const auto others = std::span(run.findings).subspan(run.headline || run.findings.empty() ? 0 : 1);
  const bool few = others.size() <= kOpenFindings;
  if (few && !others.empty()) html += html_list(others);
  const bool pictured = std::ranges::any_of(
      run.plots, [](const StoredPlot& plot) { return !html_figure(plot).empty(); });
  if (!run.plots_note.empty() && !pictured)
    html += fmt::format("<p class=warning>No plots: {}.</p>\n", html_escaped(run.plots_note));
  if (!run.plots.empty()) {
    html += "<div class=plots>\n";
    for (const StoredPlot& plot : run.plots) html += html_figure(plot);
    html += "</div>\n";
  }
  if (!few) html += html_fold(false, counted(others.size(), "more finding"), html_list(others));
  if (!run.tables.empty()) html += "<h3>Tables</h3>\n";
  for (const StoredTable& table : run.tables) html += html_table(table);
  html += fmt::format("<h3>Command that repeats this run</h3>\n<pre>{}</pre>\n",
                      html_escaped(run.command));
  const char* what = run.sweep ? "Parameters, axes and seed" : "Parameters, seed and machine";
  return html + html_fold(false, what,
                          (run.parameters.empty() ? "" : html_pairs(run.parameters)) +
                              "<h3>Run</h3>\n" + html_pairs(run.facts));
}

std::string html_page(std::string_view heading, std::string_view lead, std::string_view body) {
  const bool plots = body.find(kVegaLite) != std::string_view::npos;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
      "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; img-src data:; "
      "style-src 'unsafe-inline'; script-src '{5}'{6}; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<header><h1>{0}</h1>\n<p class=quiet>{2}</p></header>\n<main>\n{3}</main>\n"
      "{7}<script>{4}</script>\n</body>\n</html>\n",
      html_escaped(heading), kReportCss, html_escaped(lead), body, kReportScript, kReportScriptHash,
      plots ? fmt::format(" '{}'", kVegaScriptHash) : "",
      plots ? fmt::format("<script>{}</script>\n", kVegaScript) : "");
}

}  // namespace fp8lab
