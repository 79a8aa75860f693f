#include "lab/experiment/result_files.hpp"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "catch.hpp"
#include "experiment/sample_results.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/machine.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"

using namespace fp8lab;
using namespace fp8lab::test;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TEST_CASE("a run leaves what result.json lists, and nothing else", "[experiment]") {
  const TemporaryFolder out("result");
  const WrittenRun run = write_sample(out.path(), Plots::skip);
  CHECK(run.folder == out.path() / "sample");
  CHECK(names_in(out.path()) == std::set<std::string>{"sample"});
  CHECK(names_in(run.folder) == std::set<std::string>{"error.csv", "result.json"});
  CHECK(read_file(run.folder / "result.json") == run.result_json);

  const auto json = nlohmann::json::parse(run.result_json);
  CHECK(json["experiment"] == "sample");
  CHECK(json["question"] == "Is it <so> & why?");
  CHECK(json["seed"] == 3);
  CHECK(json["quick"] == false);
  CHECK(json["parameters"]["k"] == nlohmann::json{128, 256, 512});
  CHECK(json["command"] == "fp8lab run sample --seed 3 --set 'k=[128]'");
  CHECK(json["started"] == "1970-01-01T00:00:00Z");
  CHECK(json["duration_seconds"] == 0.5);
  CHECK(json["findings"].size() == 1);
  CHECK(json["headline"] ==
        nlohmann::json{{"title", "Error <falls>"},
                       {"sentence", "It falls from 1 % to 0.2 %."},
                       {"plot", "error_plot"},
                       {"advice", "Take more K & wait."},
                       {"measure", "error"},
                       {"failing", "1 %"},
                       {"mitigation", "more K"},
                       {"mitigated", "0.2 %"},
                       {"curves", {{{"label", "none"}, {"name", "without \"K\""}}}}});
  CHECK(json["tables"][0]["rows"] == 3);
  CHECK(json["tables"][0]["crc32"] == crc32_text(read_file(run.folder / "error.csv")));
  CHECK(json["tables"][0]["columns"][1]["unit"] == "%");
  CHECK(json["plots_note"] == "plots were not requested");
  CHECK(json["files"] == nlohmann::json{"error.csv", "result.json"});
  for (const char* key : {"cpu", "cores", "os", "compiler"}) CHECK(json["machine"].contains(key));
}

TEST_CASE("result.json has every field of a run, in this order", "[experiment]") {
  using Json = nlohmann::ordered_json;
  const TemporaryFolder out("whole");
  constexpr const char* kToml =
      "question = \"?\"\nk = [128, 256]\nn = 7\nx = 0.5\nreals = [0.25, 2.0]\nflag = true\n"
      "text = \"a\"\ntexts = [\"b\", \"c\"]\nodd = 1.0\nlow = 1.0\n";
  RunContext context{Parameters::from_toml(kToml, false), 12345678901234567890U, 5, {}};
  context.parameters.set("reals=1.5, nan, inf, -inf");
  context.parameters.set("odd=nan");
  context.parameters.set("low=-inf");
  RunRecord record = sample_record(context);
  record.quick = true;
  record.started = std::chrono::system_clock::from_time_t(951'827'696);  // a leap day
  record.duration_seconds = 12.25;
  const Results results = sample_results(context);
  const WrittenRun run = write_results(results, record, out.path(), Plots::skip);
  Json got = Json::parse(run.result_json);
  for (const char* key : {"version", "crc32"}) CHECK(got.erase(key) == 1);
  got.erase("git");
  const Machine machine = this_machine();
  const Json parameters{{"flag", true},  {"k", {128, 256}},
                        {"low", "-inf"}, {"n", 7},
                        {"odd", "nan"},  {"reals", {1.5, "nan", "inf", "-inf"}},
                        {"text", "a"},   {"texts", Json::array({"b", "c"})},
                        {"x", 0.5}};
  const Json k{{"name", "k"}, {"unit", "1"}, {"description", "terms & more"}};
  const Json error{{"name", "error"}, {"unit", "%"}, {"description", "e"}};
  const Json plot{{"name", "error_plot"},
                  {"title", results.plots[0].title},
                  {"kind", "plot"},
                  {"files", Json::array()},
                  {"crc32", Json::array()}};
  const Json map{{"name", "map"},
                 {"title", "Map"},
                 {"kind", "heat_map"},
                 {"files", Json::array()},
                 {"crc32", Json::array()}};
  const Json table{
      {"name", "error"},     {"title", "Error <b>against</b> K"},
      {"file", "error.csv"}, {"crc32", crc32_text(read_file(run.folder / "error.csv"))},
      {"rows", 2},           {"columns", Json::array({k, error})}};
  const Json of_machine{{"cpu", machine.cpu},
                        {"cores", machine.cores},
                        {"os", machine.os},
                        {"compiler", machine.compiler}};
  const Json expected{{"schema", "fp8lab.result.1"},
                      {"experiment", "sample"},
                      {"question", "Is it <so> & why?"},
                      {"quick", true},
                      {"seed", 12345678901234567890U},
                      {"parameters", parameters},
                      {"command", record.command},
                      {"machine", of_machine},
                      {"threads", 5},
                      {"started", "2000-02-29T12:34:56Z"},
                      {"duration_seconds", 12.25},
                      {"findings", results.findings},
                      {"headline", got["headline"]},
                      {"tables", Json::array({table})},
                      {"plots", Json::array({plot, map})},
                      {"plots_note", "plots were not requested"},
                      {"files", Json::array({"error.csv", "result.json"})}};
  CHECK(got.dump(1) == expected.dump(1));
  CHECK(run.files == std::vector<std::string>{"error.csv", "result.json"});
  CHECK(run.plots_note == "plots were not requested");
}

TEST_CASE("each file of a plot is listed with its own checksum", "[experiment]") {
  const TemporaryFolder out("plots");
  const WrittenRun run = write_sample(out.path(), Plots::draw, 2);
  const auto json = nlohmann::json::parse(run.result_json);
  std::vector<std::string> files{"error.csv"};
  REQUIRE(json["plots"].size() == 2);
  for (const auto& plot : json["plots"]) {
    REQUIRE(plot["files"].size() == plot["crc32"].size());
    CHECK(plot["files"].at(0) == plot["name"].get<std::string>() + ".json");
    for (std::size_t i = 0; i < plot["files"].size(); ++i) {
      files.push_back(plot["files"][i]);
      INFO(files.back());
      CHECK(plot["crc32"][i] == crc32_text(read_file(run.folder / files.back())));
    }
  }
  files.emplace_back("result.json");
  CHECK(run.files == files);
  CHECK(json["files"] == nlohmann::json(files));
  CHECK(names_in(run.folder) == std::set<std::string>(files.begin(), files.end()));
}

TEST_CASE("the machine is named as the system names it", "[experiment]") {
  const auto after = [](const char* path, const std::string& key, const char* between) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
      if (line.starts_with(key)) {
        const std::string rest = line.substr(line.find_first_not_of(between, key.size()));
        return rest.ends_with('"') ? rest.substr(0, rest.size() - 1) : rest;
      }
    return std::string();
  };
  const Machine machine = this_machine();
  const std::string cpu = after("/proc/cpuinfo", "model name", " \t:");
  CHECK(machine.cpu == (cpu.empty() ? "unknown" : cpu));
  const std::string system = after("/etc/os-release", "PRETTY_NAME", "=\"");
  utsname kernel{};
  REQUIRE(uname(&kernel) == 0);
  const std::string words =
      std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine;
  CHECK(machine.os == (system.empty() ? words : system + " (" + words + ")"));
  CHECK(machine.cores == std::thread::hardware_concurrency());
  CHECK_THAT(machine.compiler, contains(__VERSION__));
}

TEST_CASE("a rerun gives the same bytes, plots included, and clears what is stale",
          "[experiment]") {
  const TemporaryFolder out("rerun");
  const WrittenRun first = write_sample(out.path() / "a", Plots::draw, 1);
  const WrittenRun second = write_sample(out.path() / "b", Plots::draw, 3);
  CHECK(first.files == second.files);
  CHECK(first.plots_note.empty());
  REQUIRE(first.files.size() > 2);
  for (const std::string& file : first.files) {
    INFO(file);
    if (file != "result.json")
      CHECK((read_file(first.folder / file) == read_file(second.folder / file)));
  }
  std::ofstream(first.folder / "notes.txt") << "mine";
  write_sample(out.path() / "a", Plots::skip);
  CHECK(names_in(first.folder) == std::set<std::string>{"error.csv", "notes.txt", "result.json"});
}

TEST_CASE("a rerun removes nothing outside its folder, whatever result.json lists",
          "[experiment]") {
  const TemporaryFolder out("outside");
  const WrittenRun run = write_sample(out.path(), Plots::skip);
  std::ofstream(out.path() / "mine.csv") << "1";
  nlohmann::json json = nlohmann::json::parse(read_file(run.folder / "result.json"));
  json["files"] = {"../mine.csv", (out.path() / "mine.csv").string(), "..", "", 7};
  std::ofstream(run.folder / "result.json") << json;
  write_sample(out.path(), Plots::skip);
  CHECK(std::filesystem::exists(out.path() / "mine.csv"));
}

TEST_CASE("a folder that cannot be written is named", "[experiment]") {
  const TemporaryFolder out("unwritable");
  std::ofstream(out.path() / "file") << "";
  CHECK_THROWS_WITH(write_sample(out.path() / "file", Plots::skip),
                    contains((out.path() / "file").string() + ": cannot write"));
  CHECK_THROWS_WITH(make_writable_folder(out.path() / "file" / "x"), contains("cannot make"));
  CHECK_THROWS_WITH(make_writable_folder("/proc"), contains("/proc"));
}

TEST_CASE("names that are no file names, or come twice, are refused", "[experiment]") {
  const TemporaryFolder out("names");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  Results results = sample_results(context);
  results.tables.push_back(results.tables.front());
  CHECK_THROWS_WITH(write_results(results, sample_record(context), out.path(), Plots::skip),
                    contains("each name once, got 'error'"));
  results.tables.back() = Table("../error", "", {});
  CHECK_THROWS_WITH(write_results(results, sample_record(context), out.path(), Plots::skip),
                    contains("'../error'"));
  // Plots and heat maps share their files' names.
  for (const bool heat_map : {false, true}) {
    results = sample_results(context);
    if (heat_map)
      results.heat_maps.front().name = results.plots.front().name;
    else
      results.plots.push_back(results.plots.front());
    INFO("heat map: " << heat_map);
    CHECK_THROWS_WITH(write_results(results, sample_record(context), out.path(), Plots::skip),
                      "plot name: expected each name once, got 'error_plot'");
  }
  results = sample_results(context);
  results.heat_maps.front().name = "a/b";
  CHECK_THROWS_WITH(write_results(results, sample_record(context), out.path(), Plots::skip),
                    contains("plot name: expected") && contains("'a/b'"));
  RunRecord record = sample_record(context);
  record.experiment = "a/b";
  CHECK_THROWS_WITH(write_results(sample_results(context), record, out.path(), Plots::skip),
                    contains("experiment name: expected") && contains("'a/b'"));
  CHECK(names_in(out.path()).empty());
}

TEST_CASE("a headline names a plot of its run", "[experiment]") {
  const TemporaryFolder out("headline");
  const RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  Results results = sample_results(context);
  results.headline->plot = "other";
  CHECK_THROWS_WITH(
      write_results(results, sample_record(context), out.path(), Plots::skip),
      contains("headline plot: expected the name of a plot of this run, got 'other'"));
  results.headline->plot = "error_plot";
  results.headline->curves = {{"non", "one"}, {"nine", "other"}};
  CHECK_THROWS_WITH(
      write_results(results, sample_record(context), out.path(), Plots::skip),
      contains("headline curve: expected how the label of a curve of its plot begins, got 'nine'"));
  results.headline.reset();
  const WrittenRun run = write_results(results, sample_record(context), out.path(), Plots::skip);
  CHECK_FALSE(nlohmann::json::parse(run.result_json).contains("headline"));
}

TEST_CASE("a result without data keeps its shape", "[experiment]") {
  const TemporaryFolder out("empty");
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, 1, {}};
  const WrittenRun run = write_results({}, sample_record(context), out.path(), Plots::draw);
  const auto json = nlohmann::json::parse(run.result_json);
  CHECK(json["findings"].is_array());
  CHECK(json["tables"].is_array());
  CHECK(json["plots"].is_array());
  CHECK_FALSE(json.contains("plots_note"));
}

TEST_CASE("words for a shell", "[experiment]") {
  CHECK(shell_quoted("k=1,2") == "k=1,2");
  CHECK(shell_quoted("k=[1, 2]") == "'k=[1, 2]'");
  CHECK(shell_quoted("it's $HOME") == "'it'\\''s $HOME'");
  CHECK(shell_quoted("") == "''");
  const std::string safe = "_-+=./:,@%";
  for (int byte = 0x20; byte < 0x7f; ++byte) {
    if (byte == '\'') continue;
    const std::string text(1, static_cast<char>(byte));
    const bool bare = std::isalnum(byte) != 0 || safe.find(text) != std::string::npos;
    CHECK(shell_quoted("a" + text) == (bare ? "a" + text : "'a" + text + "'"));
  }
}
