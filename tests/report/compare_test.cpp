#include "lab/report/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/csv.hpp"
#include "lab/report/report.hpp"

using namespace fp8lab;

namespace {

StoredTable table_of(const std::string& csv) {
  StoredTable table{"Title", "error.csv", {}, parse_csv(csv), csv, 0};
  for (const std::string& name : table.rows.front()) table.columns.push_back({name, "1", "of it"});
  table.rows.erase(table.rows.begin());
  return table;
}

StoredRun run_of(const std::string& csv, const std::vector<std::string>& findings = {}) {
  StoredRun run;
  run.folder = "folder";
  run.experiment = "sample";
  run.parameters = {{"k", "128"}};
  run.facts = {{"seed", "1"}, {"started", "today"}};
  run.findings = findings;
  run.tables = {table_of(csv)};
  return run;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("the same bytes are said to be the same", "[report]") {
  const StoredRun a = run_of("k,error\n1,0.5\n", {"Error 0.5."});
  StoredRun b = a;
  b.facts[1] = {"started", "tomorrow"};
  CHECK(compare_runs(a, b).words == Words{"Identical to the last byte: 1 table and 1 finding.",
                                          "The same parameters and seed."});
  b.facts[0] = {"seed", "2"};
  CHECK(compare_runs(a, b).words[1] == "Other inputs: seed (1 in A, 2 in B).");
  CHECK(compare_runs(a, b).tables[0].same_bytes);
}

TEST_CASE("rows are joined by what tells them apart, in any order", "[report]") {
  const StoredRun a = run_of("format,k,error\ne4m3,1,0.5\ne4m3,2,0.25\ne5m2,1,1\n");
  const StoredRun b = run_of("format,k,error\ne5m2,1,3\ne4m3,1,0.5\ne5m2,2,7\n");
  const RunComparison runs = compare_runs(a, b);
  const TableComparison& table = runs.tables[0];
  CHECK_FALSE(table.by_position);
  REQUIRE(table.rows.size() == 4);
  CHECK_FALSE(table.rows[0].differs);
  CHECK(table.rows[1].b == nullptr);
  CHECK(table.rows[2].differs);
  CHECK((*table.rows[2].b)[2] == "3");
  CHECK(table.rows[3].a == nullptr);
  CHECK(table.counts == "1 of 2 rows differs, 1 more only in A, 1 more only in B");
  CHECK(table.changes ==
        Words{"error in 1 row, most where format = e5m2, k = 1: 1 became 3 (x 3)"});
  CHECK(runs.words[0] == "1 of 1 tables differ, and 0 of 0 findings.");
  CHECK(runs.words[2] == fmt::format("error.csv: {}; {}.", table.counts, table.changes[0]));
}

TEST_CASE("the largest change is named, spreads and lesser ones are not", "[report]") {
  const StoredRun a = run_of("k,error,error_max,note\n1,1,1,x\n2,10,10,y\n");
  const StoredRun b = run_of("k,error,error_max,note\n1,2,9,x\n2,12,11,z\n");
  const TableComparison table = compare_runs(a, b).tables[0];
  CHECK(table.changes == Words{"error in 2 rows, most where k = 1: 1 became 2 (x 2)",
                               "note in 1 row, first where k = 2: 'y' became 'z'"});
}

TEST_CASE("of equally large changes the first is named", "[report]") {
  const StoredRun a = run_of("k,error\n1,5\n2,1\n3,4\n4,2\n");
  const StoredRun b = run_of("k,error\n1,5.5\n2,2\n3,8\n4,4\n");
  CHECK(compare_runs(a, b).tables[0].changes ==
        Words{"error in 4 rows, most where k = 2: 1 became 2 (x 2)"});
}

TEST_CASE("the largest change is the one beside the larger of its two values", "[report]") {
  // All pairs of these in both orders; what is no number, and what becomes infinite, changes by 0.
  const Words cells{"0", "1", "-1", "2", "-5", "10", "0.5", "inf", "text", "1e-3"};
  const auto share = [](const std::string& a, const std::string& b) {
    if (a == "text" || b == "text" || a == "inf" || b == "inf") return 0.0;
    const double x = std::stod(a);
    const double y = std::stod(b);
    return std::abs(x - y) / std::max(std::abs(x), std::abs(y));
  };
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& a : cells)
    for (const std::string& b : cells)
      if (a != b) pairs.emplace_back(a, b);
  REQUIRE(pairs.size() == 90);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    for (std::size_t j = 0; j < pairs.size(); ++j) {
      const auto& [a1, b1] = pairs[i];
      const auto& [a2, b2] = pairs[j];
      const std::string numbers = a1 + b1 + a2 + b2;
      const bool numeric = numbers.find("text") == std::string::npos;
      const TableComparison table =
          compare_runs(run_of(fmt::format("k,error\n7,{}\n8,{}\n", a1, a2)),
                       run_of(fmt::format("k,error\n7,{}\n8,{}\n", b1, b2)))
              .tables[0];
      const std::string wanted =
          fmt::format("error in 2 rows, {} where k = {}: ", numeric ? "most" : "first",
                      share(a2, b2) > share(a1, b1) ? 8 : 7);
      if (table.changes.size() == 1 && table.changes[0].starts_with(wanted)) continue;
      CAPTURE(a1, b1, a2, b2, wanted);
      CHECK(table.changes == Words{wanted});
    }
}

TEST_CASE("as many keys join two tables as the one needs that needs more", "[report]") {
  const StoredRun few = run_of("k,format,error\n1,x,5\n2,x,6\n");
  const StoredRun more = run_of("k,format,error\n1,y,7\n1,x,8\n");
  for (const bool turned : {false, true}) {
    const RunComparison runs = compare_runs(turned ? more : few, turned ? few : more);
    const TableComparison& table = runs.tables[0];
    INFO("the table of more keys comes " << (turned ? "first" : "second"));
    CHECK_FALSE(table.by_position);
    CHECK(table.rows.size() == 3);
    CHECK(table.counts == "1 of 1 row differs, 1 more only in A, 1 more only in B");
    CHECK(table.changes ==
          Words{turned ? "error in 1 row, most where k = 1, format = x: 8 became 5 (x 0.625)"
                       : "error in 1 row, most where k = 1, format = x: 5 became 8 (x 1.6)"});
  }
}

TEST_CASE("columns are joined by their names, wherever they stand", "[report]") {
  const StoredRun a = run_of("k,error\n1,10\n2,1\n");
  const StoredRun b = run_of("k,share,error\n1,8,40\n2,900,1.5\n");
  const TableComparison table = compare_runs(a, b).tables[0];
  REQUIRE_FALSE(table.changes.empty());
  CHECK(table.changes[0] == "error in 2 rows, most where k = 1: 10 became 40 (x 4)");
}

TEST_CASE("rows that nothing tells apart are joined by their order", "[report]") {
  const StoredRun a = run_of("error\n1\n1\n");
  const StoredRun b = run_of("error\n1\n2\n");
  const TableComparison table = compare_runs(a, b).tables[0];
  CHECK(table.by_position);
  CHECK(table.counts == "1 of 2 rows differs");
  CHECK(table.changes == Words{"error in 1 row, most where row 2: 1 became 2 (x 2)"});
}

TEST_CASE("findings of one wording stand side by side", "[report]") {
  const StoredRun a = run_of("k\n1\n", {"Error 0.5 at K = 16.", "Only here."});
  const StoredRun b = run_of("k\n1\n", {"Something else.", "Error 1e-05 at K = 16."});
  const RunComparison runs = compare_runs(a, b);
  REQUIRE(runs.findings.size() == 4);
  const StoredRun c = run_of("k\n1\n", {"Error 0.75 at K = 16."});
  const RunComparison alike = compare_runs(a, c);
  REQUIRE(alike.findings.size() == 2);
  CHECK(alike.findings[0].b == "Error 0.75 at K = 16.");
  CHECK_FALSE(alike.findings[1].b);
}

TEST_CASE("a finding that one side says twice is there twice", "[report]") {
  const StoredRun once = run_of("k\n1\n", {"Exact.", "Error 0.5 at K = 16."});
  const StoredRun twice =
      run_of("k\n1\n", {"Exact.", "Exact.", "Error 0.5 at K = 16.", "Error 0.5 at K = 16."});
  const RunComparison more = compare_runs(once, twice);
  REQUIRE(more.findings.size() == 4);
  CHECK((more.findings[0].a == "Exact." && more.findings[0].b == "Exact."));
  CHECK(more.findings[1].a == more.findings[1].b);
  CHECK((!more.findings[2].a && more.findings[2].b == "Exact."));
  CHECK((!more.findings[3].a && more.findings[3].b == "Error 0.5 at K = 16."));
  const RunComparison less = compare_runs(twice, once);
  REQUIRE(less.findings.size() == 4);
  std::size_t pairs = 0;
  for (const ComparedText& finding : less.findings) pairs += finding.a && finding.b ? 1 : 0;
  CHECK(pairs == 2);
}

TEST_CASE("tables and columns of one side are named", "[report]") {
  StoredRun a = run_of("k,old\n1,2\n");
  StoredRun b = run_of("k,new\n1,2\n");
  CHECK(compare_runs(a, b).tables[0].changes ==
        Words{"column old only in A", "column new only in B"});
  b.tables[0].file = "other.csv";
  const RunComparison runs = compare_runs(a, b);
  CHECK(runs.tables[0].counts == "only in A");
  CHECK(runs.tables[1].counts == "only in B");
  CHECK(runs.words.back() == "other.csv: only in B.");
}

TEST_CASE("differences and ratios of cells", "[report]") {
  CHECK(difference_of("1.5", "2") == 0.5);
  CHECK(ratio_of("2", "3") == 1.5);
  CHECK(std::isnan(difference_of("x", "2")));
  CHECK(std::isnan(ratio_of("1", "")));
}

TEST_CASE("a cell ends with its closing quote", "[report]") {
  using Rows = std::vector<Words>;
  CHECK(parse_csv("a\n\"x \"\"y\"\"\"\n") == Rows{{"a"}, {"x \"y\""}});
  CHECK_THROWS_WITH(parse_csv("a\n\"x\"y\n"), contains("row 2: text after a closing quote"));
}

TEST_CASE("a comparison is a page of its own", "[report]") {
  const std::vector<StoredRun> a{run_of("k,error\n1,0.5\n2,<b>\n")};
  std::vector<StoredRun> b{run_of("k,error\n1,0.75\n2,<b>\n")};
  REQUIRE(comparable(a, b));
  const std::string html = html_comparison(a, b);
  CHECK_THAT(html, contains("<tr class=differs><td>differs</td><td class=n>1</td>"));
  CHECK_THAT(html, contains("&lt;b&gt;"));
  CHECK(html.find("<b>") == std::string::npos);
  CHECK(html == html_comparison(a, b));
  b[0].parameters = {{"k", "256"}};
  const std::string other = html_comparison(a, b);
  CHECK_THAT(other, contains("<tr class=differs><th scope=row>k &ne;</th><td>128</td>"));
  CHECK_THAT(other, contains("<tr><th scope=row>seed</th><td>1</td><td>1</td></tr>"));

  b[0].folder = "another";
  CHECK_THAT(html_comparison(a, b),
             contains("<strong>A</strong>: folder<br><strong>B</strong>: another</p>"));

  b.push_back(b[0]);
  CHECK_FALSE(comparable(a, b));
  b.pop_back();
  b[0].sweep = true;
  CHECK_FALSE(comparable(a, b));
  CHECK_THROWS_AS(html_comparison(a, b), Error);
}

TEST_CASE("a table of one side is shown whole under the letter of its side", "[report]") {
  StoredRun a = run_of("k,error\n1,0.5\n");
  StoredRun b = a;
  a.tables.push_back(table_of("left\n11\n12\n"));
  a.tables.back().file = "left.csv";
  b.tables.push_back(table_of("right\n21\n"));
  b.tables.back().file = "right.csv";
  const std::string html = html_comparison(std::vector{a}, std::vector{b});
  const std::size_t left = html.find("<p class=warning>Only in A:</p>\n<details open>");
  const std::size_t right = html.find("<p class=warning>Only in B:</p>\n<details open>");
  REQUIRE(left != std::string::npos);
  REQUIRE(right != std::string::npos);
  REQUIRE(left < right);
  const std::string of_a = html.substr(left, right - left);
  CHECK_THAT(of_a, contains("(2 rows, left.csv)"));
  CHECK_THAT(of_a, contains("<tr><td class=n>11</td></tr>\n<tr><td class=n>12</td></tr>"));
  CHECK_THAT(of_a, !contains("<td class=n>21</td>"));
  CHECK_THAT(html.substr(right), contains("(1 row, right.csv)"));
  CHECK_THAT(html.substr(right), contains("<tr><td class=n>21</td></tr>"));
  CHECK_THAT(html.substr(right), contains("<summary>1 identical to the last byte</summary>"));
}

TEST_CASE("a joined row shows both sides, and of numbers difference and ratio", "[report]") {
  const StoredRun a = run_of("k,error,error_max,note\n1,0.5,1,x\n2,4,5,x\n3,1,6,x\n5,7,8,x\n");
  const StoredRun b = run_of("k,error,error_max,note\n1,0.75,2,x\n2,4,5,x\n4,9,10,y\n5,7,8,x\n");
  const std::string html = html_comparison(std::vector{a}, std::vector{b});
  CHECK_THAT(html,
             contains("<th scope=col class=n title=\"of it\"><button type=button>k</button></th>"
                      "<th scope=col class=n title=\"in A: of it\">"
                      "<button type=button>error A</button></th>"
                      "<th scope=col class=n title=\"in B: of it\">"
                      "<button type=button>error B</button></th>"
                      "<th scope=col class=n title=\"difference: of it\">"
                      "<button type=button>error B-A</button></th>"
                      "<th scope=col class=n title=\"ratio: of it\">"
                      "<button type=button>error B/A</button></th>"
                      "<th scope=col class=n title=\"in A: of it\">"
                      "<button type=button>error_<wbr>max A</button></th>"
                      "<th scope=col class=n title=\"in B: of it\">"
                      "<button type=button>error_<wbr>max B</button></th>"
                      "<th scope=col title=\"of it\"><button type=button>note</button></th></tr>"));
  CHECK_THAT(html, contains("<tr class=differs><td>differs</td><td class=n>1</td>"
                            "<td class=n>0.5</td><td class=n>0.75</td>"
                            "<td class=n>0.25</td><td class=n>1.5</td>"
                            "<td class=n>1</td><td class=n>2</td><td>x</td></tr>\n"
                            "<tr><td></td><td class=n>2</td><td class=n>4</td><td class=n>4</td>"
                            "<td class=n></td><td class=n></td>"
                            "<td class=n>5</td><td class=n>5</td><td>x</td></tr>\n"
                            "<tr class=differs><td>only A</td><td class=n>3</td>"
                            "<td class=n>1</td><td class=n></td><td class=n></td><td class=n></td>"
                            "<td class=n>6</td><td class=n></td><td>x</td></tr>\n"));
  CHECK_THAT(html, contains("<tr class=differs><td>only B</td><td class=n>4</td>"
                            "<td class=n></td><td class=n>9</td><td class=n></td><td class=n></td>"
                            "<td class=n></td><td class=n>10</td><td>y</td></tr>\n"));
  CHECK_THAT(html, contains("<p class=quiet>Rows are matched by k.</p>"));
  CHECK_THAT(html, contains("<p>1 of 3 rows differs, 1 more only in A, 1 more only in B.</p>"));
}

TEST_CASE("pictures stand in pairs by name, one that is the same once", "[report]") {
  StoredRun a = run_of("k\n1\n");
  StoredRun b = a;
  a.plots = {{"same", "Same", "S", ""}, {"other", "Other", "Sv", ""}, {"left", "Left", "A", ""}};
  b.plots = {
      {"right", "Right", "BC", ""}, {"other", "Other", "Svg", ""}, {"same", "Same", "S", ""}};
  const std::string html = html_comparison(std::vector{a}, std::vector{b});
  const auto picture = [](const char* title, const char* base64) {
    return fmt::format(
        "<figure><img width=900 height=560 alt=\"{}\" "
        "src=\"data:image/svg+xml;base64,{}\"></figure>\n",
        title, base64);
  };
  const std::string none = "<p class=quiet>no picture</p>\n";
  const auto pair = [](const std::string& of_a, const std::string& of_b) {
    return "<div class=pair>\n<div><p class=side>A</p>" + of_a +
           "</div>\n<div><p class=side>B</p>" + of_b + "</div>\n</div>\n";
  };
  CHECK_THAT(
      html,
      contains("<h3>Plots</h3>\n<p class=side>A and B, the same image</p>\n" +
               picture("Same", "Uw==") + pair(picture("Other", "U3Y="), picture("Other", "U3Zn")) +
               pair(picture("Left", "QQ=="), none) + pair(none, picture("Right", "QkM="))));
}

TEST_CASE("the words of a comparison say what differs beside the tables", "[report]") {
  StoredRun a = run_of("k\n1\n");
  a.plots = {{"p", "P", "S", "{}"}, {"q", "Q", "T", ""}};
  StoredRun b = a;
  CHECK(compare_runs(a, b).words[0] ==
        "Identical to the last byte: 1 table, 2 plots and 0 findings.");
  b.plots[0].svg = "of another library, from the same numbers";
  CHECK(compare_runs(a, b).words[0] ==
        "Identical to the last byte: 1 table, 2 plots and 0 findings.");
  const std::string differ = "The images of the plots differ, although the tables are the same.";
  const auto change = [&](auto& text) {
    const std::string before = std::exchange(text, "X");
    CHECK(compare_runs(a, b).words[0] == "Identical to the last byte: 1 table and 0 findings.");
    CHECK(compare_runs(a, b).words[1] == differ);
    text = before;
  };
  change(b.plots[0].name);
  change(b.plots[0].title);
  change(b.plots[0].json);
  change(b.plots[1].svg);
  b.plots.pop_back();
  CHECK(compare_runs(a, b).words[1] == differ);
  b.plots = a.plots;
  b.quick = true;
  b.parameters = {{"m", "5"}};
  b.facts = {{"axis k", "1,2"}, {"repeats", "3"}, {"started", "tomorrow"}};
  CHECK(compare_runs(a, b).words[1] ==
        "Other inputs: k (128 in A, none in B); seed (1 in A, none in B); "
        "quick form (no in A, yes in B); m (none in A, 5 in B); axis k (none in A, 1,2 in B); "
        "repeats (none in A, 3 in B).");
}

TEST_CASE("a run of one side alone has a section of its own", "[report]") {
  std::vector<StoredRun> a{run_of("k\n1\n", {"Exact.", "Error 2."})};
  std::vector<StoredRun> b{run_of("k\n1\n", {"Exact.", "Error 3."})};
  a.push_back(run_of("k\n11\n"));
  a.back().experiment = "left";
  a.back().sweep = true;
  b.push_back(run_of("k\n22\n"));
  b.back().experiment = "left";  // a run is no counterpart of a sweep
  b.back().quick = true;
  const std::string html = html_comparison(a, b);
  CHECK_THAT(html, contains("<p class=quiet>1 experiment in both.</p>"));
  CHECK_THAT(html, contains("<h2>left <span class=badge>sweep</span></h2>\n"
                            "<p class=warning>Only in A: folder</p>"));
  CHECK_THAT(html, contains("<h2>left <span class=badge>quick form</span></h2>\n"
                            "<p class=warning>Only in B: folder</p>"));
  CHECK(html.find("<td class=n>11</td>") > html.find("Only in A: folder"));
  CHECK(html.find("<td class=n>11</td>") < html.find("Only in B: folder"));
  CHECK(html.find("<td class=n>22</td>") > html.find("Only in B: folder"));
  CHECK_THAT(html, contains("<tr><td>Error 2.</td><td>Error 3.</td></tr>"));
  CHECK_THAT(html, contains("<details><summary>1 in both</summary>\n<ul>\n<li>Exact.</li>"));
}

TEST_CASE("the summary of a comparison leads to the section of each experiment", "[report]") {
  std::vector<StoredRun> runs;
  for (const char* name : {"first", "second", "third"}) {
    runs.push_back(run_of("k\n1\n"));
    runs.back().experiment = name;
  }
  const std::string html = html_comparison(runs, runs);
  for (const auto& [name, number] : {std::pair{"first", 1}, {"second", 2}, {"third", 3}}) {
    CHECK_THAT(html, contains(fmt::format("<a href=\"#run-{}\">{}</a>", number, name)));
    CHECK_THAT(html, contains(fmt::format("<section class=run id=run-{}>\n<h2>{}", number, name)));
  }
  CHECK(html.find("run-0") == std::string::npos);
  CHECK(html.find("run-4") == std::string::npos);
}

TEST_CASE("a cut comparison shows what differs first", "[report]") {
  std::string csv_a = "k,error\n";
  std::string csv_b = "k,error\n";
  for (int k = 0; k < 1000; ++k) {
    csv_a += fmt::format("{},1\n", k);
    csv_b += fmt::format("{},{}\n", k, k == 900 ? 2 : 1);
  }
  const std::string html =
      html_comparison(std::vector<StoredRun>{run_of(csv_a)}, std::vector<StoredRun>{run_of(csv_b)});
  CHECK_THAT(html, contains("300 of 1000 rows, first those that differ"));
  CHECK_THAT(html, contains("<td>differs</td><td class=n>900</td>"));
  CHECK_THAT(html, contains("<td class=n>298</td>"));
  CHECK(html.find("<td class=n>299</td>") == std::string::npos);
}
