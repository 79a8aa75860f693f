#include "lab/report/report.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "experiment/sample_results.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/report/html.hpp"
#include "lab/report/style.hpp"

using namespace fp8lab;
using namespace fp8lab::test;
namespace fs = std::filesystem;

namespace {

std::string report_of(const fs::path& folder) {
  return html_report(std::vector<StoredRun>{read_run(folder)});
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a report escapes all text and loads nothing", "[experiment]") {
  const TemporaryFolder out("report");
  const WrittenRun run = write_sample(out.path(), Plots::draw);
  const std::string html = report_of(run.folder);
  CHECK_THAT(html, contains("Is it &lt;so&gt; &amp; why?"));
  CHECK_THAT(html, contains("Error falls like 1/K &lt;script&gt;alert(1)&lt;/script&gt;"));
  CHECK_THAT(html, contains("Error &lt;b&gt;against&lt;/b&gt; K"));
  CHECK_THAT(html, contains(R"("title":{"text":["Map"])"));
  CHECK_THAT(html, contains("title=\"terms &amp; more\""));
  CHECK_THAT(html, contains("--set &#39;k=[128]&#39;"));
  CHECK(count(html, "<script>") == 2);  // Vega's and the page's own
  CHECK(count(html, "alert(1)") == 1);
  CHECK(count(html, "<figure><script type=\"application/json\">") == 2);
  CHECK(count(html, "<figure data-curves=") == 1);  // in its card
  // The name of a schema is no address that a page loads, nor are those in Vega's text.
  REQUIRE(html.find(kVegaScript) != std::string::npos);
  const std::string own = html.substr(0, html.find(kVegaScript)) +
                          html.substr(html.find(kVegaScript) + kVegaScript.size());
  CHECK(count(own, "src=") == 0);
  CHECK(count(own, "://") == count(own, "\"https://vega.github.io/schema/vega-lite/v6.json\""));
  const StoredRun bare = read_run(write_sample(out.path() / "tables", Plots::skip).folder);
  CHECK(html_report(std::vector{bare}).find(kVegaScript) ==
        std::string::npos);  // no plots, no Vega
  CHECK(html == report_of(run.folder));
}

TEST_CASE("heat maps of older folders are pictures, text raises powers", "[experiment]") {
  const TemporaryFolder out("older");
  StoredRun run = read_run(write_sample(out.path(), Plots::draw).folder);
  run.findings = {"10^-3 of N(0, 0.4^2), x^T & a^b"};
  for (StoredPlot& plot : run.plots)
    if (plot.name == "map") plot.json = "{\"schema\": \"fp8lab.plot.1\"}";
  const std::string html = html_report(std::vector{run});
  CHECK_THAT(html, contains("alt=\"Map\""));
  CHECK(count(html, "src=\"data:image/svg+xml;base64,") == 1);
  CHECK_THAT(
      html, contains("<li>10<sup>-3</sup> of N(0, 0.4<sup>2</sup>), x<sup>T</sup> &amp; a^b</li>"));
}

TEST_CASE("a report begins with failures, remedies and claims", "[experiment]") {
  const TemporaryFolder out("first");
  StoredRun run = read_run(write_sample(out.path(), Plots::skip).folder);
  REQUIRE(run.headline);
  run.plots[0].json =
      "{\"$schema\": \"https://vega.github.io/schema/vega-lite/v6.json\", \"title\": "
      "\"</script>\"}";
  const std::string html = html_report(std::vector{run});
  CHECK(count(html, "<article class=card>") == 1);
  CHECK_THAT(html,
             contains("<h3>Error &lt;falls&gt;</h3>\n<figure data-curves=\"[[&quot;none&quot;,"
                      "&quot;without \\&quot;K\\&quot;&quot;]]\">"
                      "<script type=\"application/json\">"));
  CHECK(count(html, "It falls from 1 % to 0.2 %.") == 2);  // in the summary and in the section
  CHECK_THAT(html, contains("Take more K &amp; wait. <a href=\"#run-1\">All of sample</a>"));
  CHECK_THAT(html, contains("<tr><td>Error &lt;falls&gt;</td><td>error</td><td>1 %</td>"
                            "<td>more K</td><td>0.2 %</td></tr>"));
  CHECK(count(html, "\\u003c/script>\"}</script>") == 2);  // on the card and in the section
  CHECK_THAT(html, !contains("id=claims"));

  run.headline.reset();
  run.tables = {{"Claims",
                 "claims.csv",
                 {{"id", "", ""},
                  {"claim", "", ""},
                  {"criterion", "", ""},
                  {"measured", "", ""},
                  {"verdict", "", ""}},
                 {{"A1", "so it is", "holds if >1", "1.5 <dB>", "holds"},
                  {"A2", "never", "holds if 1", "0", "does not hold"},
                  {"A3", "always", "holds if 2", "2", "holds"}},
                 ""}};
  const std::string claims = html_report(std::vector{run});
  CHECK_THAT(claims, !contains("id=failures"));
  CHECK_THAT(claims, contains("does not hold <span class=quiet>(1 of 3)</span>"));
  CHECK_THAT(claims, contains("holds <span class=quiet>(2 of 3)</span>"));
  CHECK_THAT(claims,
             contains("<dt>A1</dt><dd>so it is <span class=quiet>Criterion: holds if &gt;1. "
                      "Measured: 1.5 &lt;dB&gt;"));
  CHECK(claims.find("<dt>A2</dt>") < claims.find("<dt>A1</dt>"));
}

TEST_CASE("attributes are safe from every quote", "[experiment]") {
  CHECK(html_escaped("<a href='x' id=\"y\">&amp;") ==
        "&lt;a href=&#39;x&#39; id=&quot;y&quot;&gt;&amp;amp;");
}

TEST_CASE("powers are raised and all other text is escaped", "[report]") {
  for (const auto& [text, html] : {std::pair<const char*, const char*>{"", ""},
                                   {"10^-3", "10<sup>-3</sup>"},
                                   {"10^-3 & 2^16<x", "10<sup>-3</sup> &amp; 2<sup>16</sup>&lt;x"},
                                   {"x^T y^Ty ^T", "x<sup>T</sup> y^Ty <sup>T</sup>"},
                                   {"2^1.5.", "2<sup>1.5</sup>."},
                                   {"2^3^4", "2<sup>3</sup><sup>4</sup>"},
                                   {"a^b, 2^, 2^-, ^", "a^b, 2^, 2^-, ^"}}) {
    INFO(text);
    CHECK(html_written(text) == html);
  }
}

TEST_CASE("a cell shows few digits and keeps all of them, long text is wrapped", "[report]") {
  CHECK(html_cell("0.125", true) == "<td class=n>0.125</td>");
  CHECK(html_cell("0.123456789", true) == "<td class=n title=\"0.123456789\">0.1235</td>");
  CHECK(html_cell("123456789", true) == "<td class=n>123456789</td>");
  CHECK(html_cell("-12345678", true) == "<td class=n>-12345678</td>");
  CHECK(html_cell("nan", true) == "<td class=n>nan</td>");
  CHECK(html_cell("-inf", true) == "<td class=n>-inf</td>");
  CHECK(html_cell("", true) == "<td class=n></td>");
  CHECK(html_cell("0.123456789", false) == "<td>0.123456789</td>");
  CHECK(html_cell("a<b", false) == "<td>a&lt;b</td>");
  const std::string text(36, 'x');
  CHECK(html_cell(text, false) == "<td>" + text + "</td>");
  CHECK(html_cell(text + "x", false) == "<td class=t>" + text + "x</td>");
}

TEST_CASE("tables of more than sixteen rows are folded", "[report]") {
  for (const std::size_t rows : std::array<std::size_t, 4>{0, 1, 16, 17}) {
    const StoredTable table{"A & B",
                            "<f>.csv",
                            {{"i_n", "1", "row"}},
                            std::vector<std::vector<std::string>>(rows, {"1"}),
                            "",
                            0};
    const std::string html = html_table(table);
    INFO(rows << " rows: " << html);
    CHECK(html.starts_with(rows == 17 ? "<details><summary>" : "<details open><summary>"));
    CHECK_THAT(html, contains("<summary>A &amp; B <span class=quiet>(" + std::to_string(rows) +
                              (rows == 1 ? " row" : " rows") + ", &lt;f&gt;.csv)</span>"));
    CHECK_THAT(html, contains(">i_<wbr>n</button>"));
    CHECK(count(html, "<tr><td") == rows);
  }
}

TEST_CASE("long tables are cut with a note that names the file", "[experiment]") {
  const TemporaryFolder out("long");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  Table table("long", "Long", {{"i", "1", "row"}});
  for (std::int64_t i = 0; i < 1000; ++i) table.add_row({i});
  const WrittenRun run =
      write_results({{table}, {}, {}, {}}, sample_record(context), out.path(), Plots::skip);
  const std::string html = report_of(run.folder);
  CHECK_THAT(html, contains("The first 300 of 1000 rows; all are in long.csv."));
  CHECK_THAT(html, contains("<td class=n>299</td>"));
  CHECK(count(html, "<td class=n>300</td>") == 0);
}

TEST_CASE("a section folds what is too much to read at once", "[experiment]") {
  const TemporaryFolder out("summary");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  const WrittenRun run = write_results({{}, {}, {}, {"1", "2", "3", "4", "5", "6"}},
                                       sample_record(context), out.path(), Plots::skip);
  const std::string html = report_of(run.folder);
  CHECK_THAT(html, contains("<p class=answer>1</p>\n"));
  CHECK_THAT(html, contains("<summary>5 more findings</summary>\n<ul>\n<li>2</li>\n<li>3</li>"));
  CHECK(count(html, "<dd>1</dd>") == 1);  // in the summary
  CHECK(count(html, "<li>6</li>") == 1);
}

TEST_CASE("a report says what a run has, and what it has not", "[report]") {
  StoredRun run;
  run.experiment = "x";
  run.question = "Why?";
  run.plots_note = "no <library>";
  const std::string bare = html_report(std::vector{run});
  CHECK_THAT(bare, contains("1 experiment. Each section ends"));
  CHECK_THAT(bare, contains("<li><a href=\"#run-1\">x</a> <span class=quiet>Why?</span></li>"));
  CHECK_THAT(bare, contains("<p class=answer>No findings were recorded.</p>"));
  CHECK_THAT(bare, contains("<p class=warning>No plots: no &lt;library&gt;.</p>"));
  CHECK_THAT(bare, contains("<summary>Parameters, seed and machine</summary>"));
  CHECK_THAT(bare, !contains("<h3>Tables</h3>"));
  CHECK_THAT(bare, !contains("<div class=plots>"));

  StoredRun full = run;
  full.sweep = full.quick = true;
  full.findings = {"1", "2", "3"};
  full.plots = {{"p", "P", "S", ""}};
  full.tables = {{"T", "t.csv", {{"i", "1", "row"}}, {{"1"}}, "", 0}};
  const std::string html = html_report(std::vector{run, full});
  CHECK_THAT(html, contains("2 experiments. Each section ends"));
  CHECK_THAT(html,
             contains("<li><a href=\"#run-2\">x</a> <span class=badge>sweep</span> "
                      "<span class=badge>quick form</span> <span class=quiet>Why?</span></li>"));
  CHECK_THAT(html, !contains("more findings"));
  CHECK(count(html, "No plots:") == 1);  // that of the first
  CHECK_THAT(html, contains("<summary>Parameters, axes and seed</summary>"));
  CHECK_THAT(html, contains("<h3>Tables</h3>"));
}

TEST_CASE("one experiment can come twice", "[experiment]") {
  const TemporaryFolder out("twice");
  const WrittenRun run = write_sample(out.path(), Plots::skip);
  const std::string html = html_report(std::vector<StoredRun>(2, read_run(run.folder)));
  CHECK(count(html, "id=run-1>") == 1);
  CHECK(count(html, "id=run-2>") == 1);
}

TEST_CASE("malformed results name file and reason", "[experiment]") {
  using Json = nlohmann::json;
  const TemporaryFolder out("malformed");
  const WrittenRun run = write_sample(out.path(), Plots::draw);
  const fs::path path = run.folder / "result.json";
  const std::string place = path.string();
  const Json good = Json::parse(run.result_json);
  const auto with = [&](const char* pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    return json.dump();
  };
  const auto without = [&](const char* key) {
    Json json = good;
    json.erase(key);
    return json.dump();
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", place + ": "},
      {"{\"schema\": ", "parse error"},
      {"[]", place + ": expected an object, got array"},
      {with("/schema", "other"), place + ": schema: expected fp8lab.result.1, got 'other'"},
      {without("question"), place + ": question is missing"},
      {with("/quick", 1), place + ": quick: expected true or false, got number"},
      {with("/findings", "none"), place + ": findings: expected a list, got string"},
      {with("/findings/0", 3), place + ": findings[0]: expected text, got number"},
      {with("/seed", -1), place + ": seed: expected a number that is not negative"},
      {with("/tables/0/rows", 4), "error.csv: expected 4 rows of 2 columns"},
      {with("/tables/0/file", "missing.csv"), "missing.csv: cannot read"},
      {with("/tables/0/file", "../error.csv"), "got '../error.csv'"},
      {with("/plots/0/files/0", "missing.svg"), "missing.svg: cannot read"},
      {with("/machine", Json::array()), place + ": machine: expected an object"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    write_file(path, text);
    CHECK_THROWS_WITH(report_of(run.folder), contains(message));
  }
  write_file(path, run.result_json);
  CHECK_NOTHROW(report_of(run.folder));
  write_file(run.folder / "error.csv", "k,error\n1,2,3\n");
  CHECK_THROWS_WITH(report_of(run.folder),
                    contains("error.csv: crc32: expected ") && contains("the file was changed"));
  // A folder of before there were checksums.
  Json older = good;
  older["tables"][0].erase("crc32");
  write_file(path, older.dump());
  CHECK_THROWS_WITH(report_of(run.folder), contains("error.csv: row 2: expected 2 cells, got 3"));
  write_file(run.folder / "error.csv", "");
  CHECK_THROWS_WITH(report_of(run.folder), contains("a heading and its rows, got an empty file"));
  older["tables"][0]["rows"] = 0;
  write_file(path, older.dump());
  CHECK_THROWS_WITH(report_of(run.folder), contains("a heading and its rows, got an empty file"));
  fs::remove(path);
  CHECK_THROWS_WITH(report_of(run.folder), contains(place + ": cannot read: No such file"));
}

TEST_CASE("a run is read back as it was written", "[experiment]") {
  const TemporaryFolder out("back");
  const WrittenRun written = write_sample(out.path(), Plots::skip);
  const StoredRun run = read_run(written.folder);
  CHECK(run.folder == written.folder.string());
  CHECK(run.experiment == "sample");
  CHECK(run.question == "Is it <so> & why?");
  CHECK((!run.quick && !run.sweep));
  CHECK(run.command == "fp8lab run sample --seed 3 --set 'k=[128]'");
  CHECK(run.findings == std::vector<std::string>{"Error falls like 1/K <script>alert(1)</script>"});
  CHECK(run.parameters == StoredPairs{{"k", "128, 256, 512"}});
  CHECK(run.plots_note == "plots were not requested");
  REQUIRE(run.headline);
  CHECK(run.headline->title == "Error <falls>");
  CHECK(run.headline->sentence == "It falls from 1 % to 0.2 %.");
  CHECK(run.headline->plot == "error_plot");
  CHECK(run.headline->advice == "Take more K & wait.");
  CHECK(run.headline->measure == "error");
  CHECK(run.headline->failing == "1 %");
  CHECK(run.headline->mitigation == "more K");
  CHECK(run.headline->mitigated == "0.2 %");
  REQUIRE(run.headline->curves.size() == 1);
  CHECK(run.headline->curves[0].label == "none");
  CHECK(run.headline->curves[0].name == "without \"K\"");

  StoredPairs facts = run.facts;
  std::erase_if(facts, [](const auto& fact) { return fact.first == "git"; });
  std::vector<std::string> names;
  for (const auto& [name, value] : facts) {
    names.push_back(name);
    INFO(name << " = " << value);
    CHECK_FALSE(value.empty());
    if (name == "seed") CHECK(value == "3");
    if (name == "threads") CHECK(value == "1");
    if (name == "started") CHECK(value == "1970-01-01T00:00:00Z");
    if (name == "duration") CHECK(value == "0.50 s");
  }
  CHECK(names == std::vector<std::string>{"seed", "version", "cpu", "cores", "os", "compiler",
                                          "threads", "started", "duration"});

  REQUIRE(run.tables.size() == 1);
  const StoredTable& table = run.tables[0];
  CHECK(table.title == "Error <b>against</b> K");
  CHECK(table.file == "error.csv");
  CHECK(table.csv == read_file(written.folder / "error.csv"));
  CHECK(table.point_columns == 0);
  REQUIRE(table.columns.size() == 2);
  CHECK((table.columns[0].name == "k" && table.columns[1].name == "error"));
  CHECK((table.columns[0].unit == "1" && table.columns[1].unit == "%"));
  CHECK((table.columns[0].description == "terms & more" && table.columns[1].description == "e"));
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0][0] == "128");
  CHECK(table.rows[2][0] == "512");
  REQUIRE(run.plots.size() == 2);
  CHECK((run.plots[0].name == "error_plot" && run.plots[1].name == "map"));
  CHECK((run.plots[0].title == "Error_{x} '`against`' K" && run.plots[1].title == "Map"));
}

TEST_CASE("a heading says the unit of a column, if it has one", "[experiment]") {
  const TemporaryFolder out("units");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  Table table(
      "units", "Units",
      {{"name", "", "text"}, {"count", "1", "number"}, {"share", "%", "share"}, {"db", "dB", "x"}});
  table.add_row({std::string("a"), std::int64_t{1}, 2.5, 3.5});
  const WrittenRun run =
      write_results({{table}, {}, {}, {}}, sample_record(context), out.path(), Plots::skip);
  const std::string html = report_of(run.folder);
  for (const char* heading :
       {">name</button>", ">count</button>", ">share [%]</button>", ">db [dB]</button>"})
    CHECK_THAT(html, contains(heading));
}

TEST_CASE("what print leaves out of a table is said if there is any", "[experiment]") {
  for (const std::int64_t rows : {1, 59, 60, 61, 300}) {
    const TemporaryFolder out("print");
    RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
    Table table("long", "Long", {{"i", "1", "row"}});
    for (std::int64_t i = 0; i < rows; ++i) table.add_row({i});
    const WrittenRun run =
        write_results({{table}, {}, {}, {}}, sample_record(context), out.path(), Plots::skip);
    const std::string html = report_of(run.folder);
    INFO(rows << " rows");
    CHECK(count(html, "In print: the first") == (rows > 60 ? 1 : 0));
    if (rows > 60)
      CHECK_THAT(html, contains("In print: the first 60 of " + std::to_string(rows) + " rows."));
  }
}

TEST_CASE("a changed digit in any file that a report reads is refused", "[experiment]") {
  const Plots plots = GENERATE(Plots::draw, Plots::skip);
  const TemporaryFolder out("changed");
  const WrittenRun run = write_sample(out.path(), plots);
  int changed = 0;
  for (const std::string& file : run.files) {
    if (file.ends_with(".png") || file.ends_with(".pdf")) continue;
    INFO(file);
    const std::string good = read_file(run.folder / file);
    const std::size_t digit = good.find_first_of("0123456789", good.size() / 2);
    std::string bad = good;
    bad.at(digit) = bad[digit] == '7' ? '8' : '7';
    write_file(run.folder / file, bad);
    CHECK_THROWS_WITH(report_of(run.folder), contains(file + ": crc32: expected "));
    write_file(run.folder / file, good);
    ++changed;
  }
  CHECK(changed >=
        (plots == Plots::draw
             ? 4
             : 2));  // a table, a plot and a map as JSON, result.json; pictures where vl-convert is
  CHECK_NOTHROW(report_of(run.folder));
}

TEST_CASE("a table is cut where it has more rows than a page shows, not before", "[report]") {
  for (const std::size_t rows : {kReportRows - 1, kReportRows, kReportRows + 1}) {
    const StoredTable table{
        "Long", "long.csv", {{"i", "1", "row"}}, std::vector<std::vector<std::string>>(rows, {"1"}),
        "",     0};
    const std::string html = html_table(table);
    INFO(rows << " rows");
    CHECK(count(html, "<tr><td") == std::min(rows, kReportRows));
    CHECK(count(html, "The first") == (rows > kReportRows ? 1 : 0));
  }
}

TEST_CASE("each file of a plot has a checksum of its own", "[report]") {
  using Json = nlohmann::json;
  const TemporaryFolder out("plot_checksums");
  const WrittenRun run = write_sample(out.path(), Plots::skip);
  const std::vector<std::pair<std::string, std::string>> files{
      {"p.json", R"({"$schema": "vega-lite"})"}, {"p.svg", "<svg>1</svg>"}};
  Json plot{{"name", "p"},
            {"title", "P"},
            {"kind", "plot"},
            {"files", Json::array()},
            {"crc32", Json::array()}};
  for (const auto& [name, text] : files) {
    write_file(run.folder / name, text);
    plot["files"].push_back(name);
    plot["crc32"].push_back(crc32_text(text));
  }
  Json json = Json::parse(run.result_json);
  json.erase("crc32");
  json.erase("headline");
  json["plots"] = Json::array({plot});
  write_file(run.folder / "result.json", json.dump());
  CHECK_NOTHROW(report_of(run.folder));
  for (const auto& [name, text] : files) {
    INFO(name);
    write_file(run.folder / name, text + " ");
    CHECK_THROWS_WITH(report_of(run.folder), contains(name + ": crc32: expected "));
    write_file(run.folder / name, text);
  }
}

TEST_CASE("a table without rows is shown with its heading", "[experiment]") {
  const TemporaryFolder out("no_rows");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  const Table table("none", "Nothing measured", {{"i", "1", "row"}, {"x", "%", "value"}});
  const WrittenRun run =
      write_results({{table}, {}, {}, {}}, sample_record(context), out.path(), Plots::skip);
  const std::string html = report_of(run.folder);
  CHECK_THAT(html, contains("Nothing measured"));
  CHECK(table.text() == "Nothing measured\n  i  x [%]\n");
}
