// What a page shows at once, folds and leaves out, at both sides of each limit; and which columns
// and how many lines and cells a sweep's pictures have.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/csv.hpp"
#include "lab/report/compare.hpp"
#include "lab/report/html.hpp"
#include "lab/report/plots.hpp"
#include "lab/report/report.hpp"
#include "lab/report/style.hpp"

namespace fp8lab::test::report_limits {
namespace {

using Texts = std::vector<std::string>;

StoredTable limits_table(const std::string& file, const std::string& csv,
                         std::size_t point_columns = 0) {
  StoredTable table{"Title", file, {}, parse_csv(csv), csv, point_columns};
  for (const std::string& name : table.rows.front()) table.columns.push_back({name, "1", ""});
  table.rows.erase(table.rows.begin());
  return table;
}

StoredRun limits_run(std::vector<StoredTable> tables) {
  StoredRun run;
  run.folder = "folder";
  run.experiment = "sample";
  run.facts = {{"seed", "1"}};
  run.tables = std::move(tables);
  return run;
}

std::string listed(const Texts& items) {
  std::string html = "<ul>\n";
  for (const std::string& item : items) html += "<li>" + html_written(item) + "</li>\n";
  return html + "</ul>\n";
}

/// The first `open` in a list, those behind them folded under their number and `noun`.
std::string folded(const Texts& items, std::size_t open, const std::string& noun) {
  if (items.size() <= open) return listed(items);
  const auto cut = items.begin() + static_cast<std::ptrdiff_t>(open);
  return listed({items.begin(), cut}) +
         fmt::format("<details><summary>{} more{}</summary>\n{}</details>\n", items.size() - open,
                     noun, listed({cut, items.end()}));
}

/// The page's part from `begin` to before `end`.
std::string part_of(const std::string& html, const std::string& begin, const std::string& end) {
  const std::size_t first = html.find(begin);
  if (first == std::string::npos) return "no " + begin;
  return html.substr(first, html.find(end, first) - first);
}

Texts labels_of_series(const Plot& plot) {
  Texts labels;
  for (const Series& series : plot.series) labels.push_back(series.label);
  return labels;
}

}  // namespace

TEST_CASE("a comparison says each of its sentences, five at once", "[report]") {
  for (std::size_t more = 0; more < 7; ++more) {
    StoredRun a = limits_run({limits_table("same.csv", "k\n1\n")});
    StoredRun b = a;
    Texts expected{fmt::format("{} of {} tables differ, and 0 of 0 findings.", more, more + 1),
                   "The same parameters and seed."};
    if (more == 0) expected[0] = "Identical to the last byte: 1 table and 0 findings.";
    for (std::size_t i = 0; i < more; ++i) {
      const std::string file = fmt::format("table{}.csv", i);
      a.tables.push_back(limits_table(file, "k\n1\n"));
      b.tables.push_back(limits_table(file, fmt::format("k\n{}\n", i + 2)));
      expected.push_back(fmt::format(
          "{0}: 1 of 1 row differs; k in 1 row, most where row 1: 1 became {1} (x {1}).", file,
          i + 2));
    }
    CAPTURE(more);
    CHECK(compare_runs(a, b).words == expected);
    const std::string html = html_comparison(std::vector{a}, std::vector{b});
    CHECK(part_of(html, "<section id=summary>", "</section>") ==
          "<section id=summary>\n<h2>What differs</h2>\n"
          "<h3><a href=\"#run-1\">sample</a></h3>\n" +
              folded(expected, 5, ""));
  }
}

TEST_CASE("a compared table names each column that changed, four at once", "[report]") {
  for (std::size_t changed = 1; changed < 8; ++changed) {
    std::string head = "k";
    std::string left = "5";
    std::string right = "5";
    Texts expected;
    for (std::size_t c = 0; c < changed; ++c) {
      head += fmt::format(",c{}", c);
      left += ",1";
      right += fmt::format(",{}", c + 2);
      expected.push_back(
          fmt::format("c{0} in 1 row, most where row 1: 1 became {1} (x {1})", c, c + 2));
    }
    const StoredRun a = limits_run({limits_table("t.csv", head + "\n" + left + "\n")});
    const StoredRun b = limits_run({limits_table("t.csv", head + "\n" + right + "\n")});
    CAPTURE(changed);
    CHECK(compare_runs(a, b).tables.at(0).changes == expected);
    CHECK(part_of(html_comparison(std::vector{a}, std::vector{b}), "<p>1 of 1 row", "<div") ==
          "<p>1 of 1 row differs.</p>\n" + folded(expected, 4, ""));
  }
}

TEST_CASE("a page shows three hundred rows and says of how many", "[report]") {
  for (const std::size_t rows : {299U, 300U, 301U}) {
    std::string csv_a = "k,error\n";
    std::string csv_b = csv_a;
    for (std::size_t i = 0; i < rows; ++i) {
      csv_a += fmt::format("{},1\n", i);
      csv_b += fmt::format("{},{}\n", i, i + 1 == rows ? 2 : 1);
    }
    const StoredRun a = limits_run({limits_table("t.csv", csv_a)});
    const StoredRun b = limits_run({limits_table("t.csv", csv_b)});
    const std::string both = html_comparison(std::vector{a}, std::vector{b});
    const std::string one = html_report(std::vector{a});
    const std::string last = fmt::format("<td class=n>{}</td>", rows - 1);
    CAPTURE(rows);
    CHECK_THAT(both, contains("<td>differs</td>" + last));
    const bool cut = rows > 300;
    // What differs comes first only where something is cut.
    CHECK((both.find(last) < both.find("<td class=n>0</td>")) == cut);
    CHECK((both.find("300 of 301 rows, first those that differ.") != std::string::npos) == cut);
    CHECK((one.find("The first 300 of 301 rows; all are in t.csv.") != std::string::npos) == cut);
    CHECK((one.find(last) == std::string::npos) == cut);
  }
}

TEST_CASE("a section shows its answer and up to three more findings, or folds them", "[report]") {
  for (std::size_t count = 1; count < 7; ++count) {
    StoredRun run = limits_run({});
    for (std::size_t i = 0; i < count; ++i)
      run.findings.push_back(fmt::format("Finding 10^{}.", i));
    CAPTURE(count);
    const std::string answer = "<p class=answer>Finding 10<sup>0</sup>.</p>\n";
    const Texts others(run.findings.begin() + 1, run.findings.end());
    const std::string more =
        others.empty() ? ""
        : others.size() <= 3
            ? listed(others)
            : fmt::format("<details><summary>{} more findings</summary>\n{}</details>\n",
                          others.size(), listed(others));
    const std::string html = html_report(std::vector{run});
    CHECK_THAT(html, contains("<dd>Finding 10<sup>0</sup>.</dd>"));
    CHECK(part_of(html, answer, "<h3>Command") == answer + more);
  }
}

TEST_CASE("a page allows its own scripts and nothing else", "[report]") {
  for (const bool plots : {false, true}) {
    const std::string body =
        plots ? R"("$schema": "https://vega.github.io/schema/vega-lite/v6.json")" : "<p>body</p>\n";
    const std::string policy = fmt::format("'{}'{}", kReportScriptHash,
                                           plots ? fmt::format(" '{}'", kVegaScriptHash) : "");
    const std::string expected =
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; img-src data:; "
        "style-src 'unsafe-inline'; script-src " +
        policy +
        "; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<title>A &amp; B</title>\n<style>" +
        std::string(kReportCss) +
        "</style>\n</head>\n<body>\n<header><h1>A &amp; B</h1>\n"
        "<p class=quiet>L &lt; M</p></header>\n<main>\n" +
        body + "</main>\n" +
        (plots ? "<script>" + std::string(kVegaScript) + "</script>\n" : std::string()) +
        "<script>" + std::string(kReportScript) + "</script>\n</body>\n</html>\n";
    // Not shown: it is a megabyte.
    CHECK((html_page("A & B", "L < M", body) == expected));
  }
}

TEST_CASE("of a table's columns the two most telling are drawn", "[report]") {
  // By rank, each with a name that a lower rank has too where that may be.
  const std::vector<std::pair<std::string, int>> columns{
      {"Error_rate", 0}, {"l2", 1},     {"x_mse", 1}, {"snr", 1},  {"SQNR", 1},
      {"loss", 1},       {"gap_to", 1}, {"real", 2},  {"tiny", 2}, {"count", 3}};
  const auto value = [](const std::string& name, int row) {
    return name == "real"   ? fmt::format("{}.5", row)
           : name == "tiny" ? fmt::format("{}e-9", row)
                            : fmt::format("{}", row + 3);
  };
  for (const auto& one : columns)
    for (const auto& other : columns) {
      const std::string& first = one.first;
      const std::string& second = other.first;
      if (first == second) continue;
      std::string csv = fmt::format("axis,repeat,seed,{},{},last_error\n", first, second);
      for (const int row : {1, 2, 3})
        csv +=
            fmt::format("{},0,1,{},{},{}\n", row, value(first, row), value(second, row), row * 9);
      const ChosenPlots chosen = choose_plots(limits_table("t.csv", csv, 3));
      Texts drawn;
      for (const Plot& plot : chosen.plots) drawn.push_back(plot.y.label);
      Texts expected{first, second, "last_error"};
      const auto rank_of = [&columns](const std::string& name) {
        const auto found = std::ranges::find(columns, name, &std::pair<std::string, int>::first);
        return found == columns.end() ? 0 : found->second;
      };
      std::ranges::stable_sort(expected, {}, rank_of);
      expected.resize(2);
      INFO(csv);
      CHECK(drawn == expected);
    }
}

TEST_CASE("a picture has as many lines and cells as can be told apart", "[report]") {
  // `labels` of another axis, `own` rows a point, at four numbers of the first axis.
  const auto chosen = [](std::size_t labels, std::size_t own, std::size_t numbers) {
    std::string csv = "k,way,repeat,seed,scales,error\n";
    int draw = 0;
    for (std::size_t k = 1; k <= numbers; ++k)
      for (std::size_t label = 0; label < labels; ++label)
        for (std::size_t row = 0; row < own; ++row)
          csv += fmt::format("{},w{},0,1,s{},{}\n", k, label, row, ++draw);
    return choose_plots(limits_table("t.csv", csv, 4));
  };
  for (const auto& [labels, own, lines] :
       {std::tuple<std::size_t, std::size_t, std::size_t>{2, 1, 2},
        {14, 1, 14},
        {15, 1, 0},
        {14, 2, 14},
        {9, 2, 9},
        {8, 2, 8},
        {2, 4, 8},
        {2, 5, 2},
        {3, 2, 6},
        {3, 3, 3},
        {4, 2, 8},
        {4, 3, 4},
        {1, 8, 8},
        {1, 9, 1}}) {
    const ChosenPlots plots = chosen(labels, own, 16);
    CAPTURE(labels, own);
    REQUIRE(plots.plots.size() == (lines == 0 ? 0 : 1));
    if (lines == 0) continue;
    CHECK(plots.plots[0].series.size() == lines);
    CHECK((plots.plots[0].title.find("(scales = s0)") != std::string::npos) ==
          (own > 1 && lines == labels));
    const Texts names = labels_of_series(plots.plots[0]);
    CHECK(names.front() == (lines == 1        ? ""
                            : labels == 1     ? "s0"
                            : lines == labels ? "w0"
                                              : "w0, s0"));
  }
  for (const auto& [labels, numbers, drawn] :
       {std::tuple<std::size_t, std::size_t, bool>{40, 40, true},
        {41, 2, false},
        {2, 41, false},
        {40, 2, true},
        {2, 40, true}}) {
    const ChosenPlots plots = chosen(labels, 2, numbers);
    CAPTURE(labels, numbers);
    REQUIRE(plots.heat_maps.size() == (drawn ? 1 : 0));
    if (!drawn) continue;
    CHECK(plots.heat_maps[0].columns.size() == numbers);
    CHECK(plots.heat_maps[0].rows.size() == labels);
    CHECK(plots.heat_maps[0].values.size() == labels * numbers);
    // Of two rows a point the first alone, from the lowest number to the highest.
    CHECK(plots.heat_maps[0].values.front() == 1.0);
    CHECK(plots.heat_maps[0].values.back() == static_cast<double>(2 * labels * numbers - 1));
  }
}

}  // namespace fp8lab::test::report_limits
