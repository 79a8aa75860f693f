#include "fp8lab/experiment/report_input.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// A JSON value and where it stands, so that every complaint can say so.
class Node {
 public:
  Node(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  [[nodiscard]] bool has(const char* key) const {
    return json_->is_object() && json_->contains(key);
  }
  [[nodiscard]] Node operator[](const char* key) const {
    if (!json_->is_object()) wrong("an object");
    const auto found = json_->find(key);
    if (found == json_->end()) throw Error(fmt::format("{}: {} is missing", place_, key));
    return {*found, fmt::format("{}: {}", place_, key)};
  }
  [[nodiscard]] std::vector<Node> elements() const {
    if (!json_->is_array()) wrong("a list");
    std::vector<Node> nodes;
    for (const Json& element : *json_)
      nodes.emplace_back(element, fmt::format("{}[{}]", place_, nodes.size()));
    return nodes;
  }
  [[nodiscard]] std::string text() const {
    if (!json_->is_string()) wrong("text");
    return json_->get<std::string>();
  }
  [[nodiscard]] bool flag() const {
    if (!json_->is_boolean()) wrong("true or false");
    return json_->get<bool>();
  }
  [[nodiscard]] std::uint64_t count() const {
    if (!json_->is_number_unsigned()) wrong("a number that is not negative");
    return json_->get<std::uint64_t>();
  }
  [[nodiscard]] double real() const {
    if (!json_->is_number()) wrong("a number");
    return json_->get<double>();
  }
  /// The name of a file of this folder.
  [[nodiscard]] std::string file_name() const {
    std::string name = text();
    require_file_name(place_, name);
    return name;
  }
  /// The members of an object, each value for people.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> members() const {
    if (!json_->is_object()) wrong("an object");
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const auto& [key, value] : json_->items())
      pairs.emplace_back(key, value.is_string() ? value.get<std::string>() : for_people(value));
    return pairs;
  }

 private:
  [[noreturn]] void wrong(const char* expected) const {
    throw Error(place_, expected, json_->type_name());
  }
  static std::string for_people(const Json& value) {
    if (!value.is_array()) return value.dump();
    std::string list;
    for (const Json& element : value) {
      if (!list.empty()) list += ", ";
      list += element.is_string() ? element.get<std::string>() : element.dump();
    }
    return list;
  }

  const Json* json_;
  std::string place_;
};

StoredTable read_table(const fs::path& folder, const Node& node) {
  StoredTable table;
  table.title = node["title"].text();
  table.file = node["file"].file_name();
  for (const Node& column : node["columns"].elements())
    table.columns.push_back(
        {column["name"].text(), column["unit"].text(), column["description"].text()});
  const fs::path path = folder / table.file;
  const std::string text = read_file(path);
  try {
    table.rows = parse_csv(text);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  const std::size_t rows = table.rows.empty() ? 0 : table.rows.size() - 1;
  const std::size_t columns = table.rows.empty() ? 0 : table.rows.front().size();
  if (rows != node["rows"].count() || columns != table.columns.size())
    throw Error(path.string(),
                fmt::format("{} rows of {} columns, as result.json says", node["rows"].count(),
                            table.columns.size()),
                fmt::format("{} rows of {}", rows, columns));
  table.rows.erase(table.rows.begin());
  return table;
}

StoredPlot read_plot(const fs::path& folder, const Node& node) {
  StoredPlot plot{node["name"].text(), node["title"].text(), ""};
  for (const Node& element : node["files"].elements()) {
    const std::string file = element.file_name();
    if (file.ends_with(".svg")) plot.svg = read_file(folder / file);
  }
  return plot;
}

std::vector<std::pair<std::string, std::string>> facts_of(const Node& root) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"seed", std::to_string(root["seed"].count())}, {"version", root["version"].text()}};
  if (root.has("git")) facts.emplace_back("git", root["git"].text());
  for (const auto& member : root["machine"].members()) facts.push_back(member);
  facts.emplace_back("threads", std::to_string(root["threads"].count()));
  facts.emplace_back("started", root["started"].text());
  facts.emplace_back("duration", fmt::format("{:.2f} s", root["duration_seconds"].real()));
  return facts;
}

}  // namespace

std::vector<std::vector<std::string>> parse_csv(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  std::size_t i = 0;
  while (i < text.size()) {
    std::vector<std::string> row;
    for (bool more = true; more;) {
      std::string cell;
      if (i < text.size() && text[i] == '"') {
        for (++i; i < text.size() && (text[i] != '"' || text.substr(i, 2) == "\"\""); ++i) {
          if (text[i] == '"') ++i;
          cell += text[i];
        }
        if (i >= text.size()) throw Error(fmt::format("row {}: open quote", rows.size() + 1));
        ++i;
      } else {
        while (i < text.size() && text[i] != ',' && text[i] != '\n') cell += text[i++];
      }
      row.push_back(std::move(cell));
      more = i < text.size() && text[i] == ',';
      if (!more && i < text.size() && text[i] != '\n')
        throw Error(fmt::format("row {}: text after a closing quote", rows.size() + 1));
      ++i;
    }
    if (!rows.empty() && row.size() != rows.front().size())
      throw Error(fmt::format("row {}", rows.size() + 1),
                  fmt::format("{} cells", rows.front().size()), std::to_string(row.size()));
    rows.push_back(std::move(row));
  }
  return rows;
}

StoredRun read_run(const fs::path& folder) {
  const fs::path path = folder / "result.json";
  Json json;
  try {
    json = Json::parse(read_file(path));
  } catch (const Json::parse_error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  const Node root(json, path.string());
  if (const std::string schema = root["schema"].text(); schema != "fp8lab.result.1")
    throw Error(path.string() + ": schema", "fp8lab.result.1", "'" + schema + "'");
  StoredRun run;
  run.experiment = root["experiment"].text();
  run.question = root["question"].text();
  run.quick = root["quick"].flag();
  run.command = root["command"].text();
  for (const Node& finding : root["findings"].elements()) run.findings.push_back(finding.text());
  run.parameters = root["parameters"].members();
  run.facts = facts_of(root);
  for (const Node& table : root["tables"].elements())
    run.tables.push_back(read_table(folder, table));
  for (const Node& plot : root["plots"].elements()) run.plots.push_back(read_plot(folder, plot));
  if (root.has("plots_note")) run.plots_note = root["plots_note"].text();
  return run;
}

}  // namespace fp8lab
