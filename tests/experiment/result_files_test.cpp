#include "fp8lab/experiment/result_files.hpp"

#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "catch.hpp"
#include "experiment/sample_results.hpp"
#include "fp8lab/core/error.hpp"
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
  CHECK(json["headline"] == nlohmann::json{{"title", "Error <falls>"},
                                           {"sentence", "It falls from 1 % to 0.2 %."},
                                           {"plot", "error_plot"},
                                           {"advice", "Take more K & wait."},
                                           {"measure", "error"},
                                           {"failing", "1 %"},
                                           {"mitigation", "more K"},
                                           {"mitigated", "0.2 %"}});
  CHECK(json["tables"][0]["rows"] == 3);
  CHECK(json["tables"][0]["crc32"] == crc32_text(read_file(run.folder / "error.csv")));
  CHECK(json["tables"][0]["columns"][1]["unit"] == "%");
  CHECK(json["plots_note"] == "plots were not requested");
  CHECK(json["files"] == nlohmann::json{"error.csv", "result.json"});
  for (const char* key : {"cpu", "cores", "os", "compiler"}) CHECK(json["machine"].contains(key));
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
}
