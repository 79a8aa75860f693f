#include "lab/experiment/result_files.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/machine.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"
#include "lab/experiment/column_json.hpp"
#include "lab/plots/draw.hpp"
#include "lab/plots/look.hpp"
#include "lab/plots/plot_json.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kResultFile = "result.json";

void require_unique(std::set<std::string>& names, const std::string& kind,
                    const std::string& name) {
  require_file_name(kind + " name", name);
  require(names.insert(name).second, kind + " name", "each name once", fmt::format("'{}'", name));
}

Json json_of(const Table& table, std::string_view csv) {
  return {{"name", table.name()},          {"title", table.title()},
          {"file", table.name() + ".csv"}, {"crc32", crc32_text(csv)},
          {"rows", table.rows().size()},   {"columns", columns_json(table.columns())}};
}

template <class T>
Json json_of(const T& value) {
  return value;
}

/// JSON has no NaN and no infinity: those are texts.
Json json_of(double value) { return std::isfinite(value) ? Json(value) : Json(to_csv(value)); }

Json json_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_of(value));
  return list;
}

Json json_of(const Parameters& parameters) {
  Json values = Json::object();
  for (const auto& [key, value] : parameters.values())
    std::visit([&values, &name = key](const auto& v) { values[name] = json_of(v); }, value);
  return values;
}

Json json_of(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"os", machine.os},
          {"compiler", machine.compiler}};
}

Json json_of(const Headline& headline) {
  Json curves = Json::array();
  for (const auto& [label, name] : headline.curves)
    curves.push_back({{"label", label}, {"name", name}});
  return {{"title", headline.title},
          {"sentence", headline.sentence},
          {"plot", headline.plot},
          {"advice", headline.advice},
          {"measure", headline.measure},
          {"failing", headline.failing},
          {"mitigation", headline.mitigation},
          {"mitigated", headline.mitigated},
          {"curves", curves}};
}

/// The curves of the headline are curves of its plot.
void require_curves(const Results& results) {
  const auto plot = std::ranges::find(results.plots, results.headline->plot, &Plot::name);
  for (const Headline::Curve& curve : results.headline->curves)
    require(std::ranges::any_of(plot->series,
                                [&](const Series& s) { return s.label.starts_with(curve.label); }),
            "headline curve", "how the label of a curve of its plot begins",
            fmt::format("'{}'", curve.label));
}

Json header_of(const RunRecord& record) {
  Json json{{"schema", "fp8lab.result.1"}, {"experiment", record.experiment},
            {"question", record.question}, {"quick", record.quick},
            {"seed", record.seed},         {"parameters", json_of(record.parameters)},
            {"command", record.command},   {"version", build_version()}};
  if (!build_git().empty()) json["git"] = build_git();
  json["machine"] = json_of(this_machine());
  json["threads"] = record.threads;
  json["started"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                fmt::gmtime(std::chrono::system_clock::to_time_t(record.started)));
  json["duration_seconds"] = record.duration_seconds;
  return json;
}

struct Staged {
  Json tables = Json::array();
  Json plots = Json::array();
  std::string plots_note;
  std::vector<std::string> files;
};

void stage_tables(const Results& results, const fs::path& folder, Staged& staged) {
  std::set<std::string> names;
  for (const Table& table : results.tables) {
    require_unique(names, "table", table.name());
    const std::string csv = table.csv();
    write_file(folder / (table.name() + ".csv"), csv);
    staged.files.push_back(table.name() + ".csv");
    staged.tables.push_back(json_of(table, csv));
  }
}

void stage_plots(const Results& results, const fs::path& folder, Plots plots, Staged& staged) {
  std::set<std::string> unique;
  std::vector<std::string> names;
  const auto stage = [&](const auto& plot, const char* kind) {
    require_unique(unique, "plot", plot.name);
    names.push_back(plot.name);
    staged.plots.push_back({{"name", plot.name}, {"title", plot.title}, {"kind", kind}});
    if (plots == Plots::skip) return;
    write_file(folder / (plot.name + ".json"), plot_json(plot));
  };
  std::vector<Plot> coloured = results.plots;
  assign_colours(coloured);
  for (const Plot& plot : coloured) stage(plot, "plot");
  for (const HeatMap& map : results.heat_maps) stage(map, "heat_map");
  if (plots == Plots::skip)
    staged.plots_note = "plots were not requested";
  else if (!draw_files(folder, names))
    staged.plots_note = fmt::format("{}, so plots are specifications without pictures", kNoDrawing);
  for (std::size_t i = 0; i < names.size(); ++i) {
    Json files = Json::array();
    Json checksums = Json::array();
    for (const char* ending : {".json", ".svg", ".png", ".pdf"}) {
      const fs::path file = folder / (names[i] + ending);
      if (!fs::exists(file)) continue;
      files.push_back(file.filename().string());
      checksums.push_back(crc32_text(read_file(file)));
      staged.files.push_back(file.filename().string());
    }
    staged.plots[i]["files"] = files;
    staged.plots[i]["crc32"] = checksums;
  }
}

/// What an earlier run left in `folder`, by its own account.
std::set<std::string> files_of_earlier_run(const fs::path& folder) {
  std::set<std::string> files;
  if (!fs::is_regular_file(folder / kResultFile)) return files;
  Json json;
  try {
    json = parse_json<Json>(read_file(folder / kResultFile), folder.string());
  } catch (const Error&) {
    return files;  // no file of this program
  }
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array()) return files;
  for (const Json& file : json["files"]) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!name.empty() && fs::path(name).filename() == name) files.insert(name);
  }
  return files;
}

void move_in(const fs::path& from, const fs::path& to, const std::vector<std::string>& files) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) throw Error(fmt::format("{}: cannot write: {}", to.string(), error.message()));
  // Two runs that end together would leave tables of both.
  const FolderLock alone(to);
  std::set<std::string> stale = files_of_earlier_run(to);
  for (const std::string& file : files) {
    stale.erase(file);
    fs::rename(from / file, to / file, error);
    if (error)
      throw Error(fmt::format("{}: cannot write: {}", (to / file).string(), error.message()));
  }
  for (const std::string& file : stale) fs::remove(to / file, error);
  alone.sync();
}

}  // namespace

void require_writable_results(const fs::path& out, const std::string& experiment) {
  require_file_name("experiment name", experiment);
  require_writable_folder(out / experiment);
}

WrittenRun write_results(const Results& results, const RunRecord& record, const fs::path& out,
                         Plots plots) {
  require_file_name("experiment name", record.experiment);
  const PartialFolder staging(out, record.experiment);
  Staged staged;
  stage_tables(results, staging.path(), staged);
  stage_plots(results, staging.path(), plots, staged);
  staged.files.emplace_back(kResultFile);

  Json json = header_of(record);
  json["findings"] = results.findings;
  if (results.headline) {
    const bool drawn = std::ranges::any_of(
        results.plots, [&](const Plot& plot) { return plot.name == results.headline->plot; });
    require(drawn, "headline plot", "the name of a plot of this run",
            fmt::format("'{}'", results.headline->plot));
    require_curves(results);
    json["headline"] = json_of(*results.headline);
  }
  json["tables"] = staged.tables;
  json["plots"] = staged.plots;
  if (!staged.plots_note.empty()) json["plots_note"] = staged.plots_note;
  json["files"] = staged.files;
  WrittenRun run{out / record.experiment, staged.files, staged.plots_note,
                 with_own_checksum(json_text(json, 2) + "\n")};
  write_file(staging.path() / kResultFile, run.result_json);
  move_in(staging.path(), run.folder, run.files);
  return run;
}

namespace {

/// The output of printf: text that a terminal cannot show as it is. A shell cuts line ends off at
/// the end of an output, so these follow it.
std::string with_escapes(std::string_view text) {
  const std::size_t end = text.find_last_not_of('\n') + 1;
  std::string out = "\"$(printf '";
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'')
      out += "\\047";
    else if (c == '%' || c == '\\')
      out.append(c == '%' ? "%%" : "\\\\");
    else if (byte < 0x20 || byte >= 0x7f)
      out += fmt::format("\\{:03o}", byte);
    else
      out += c;
  }
  return out.append("')").append(text.substr(end)).append("\"");
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos)
    return std::string(text);
  if (printable(text) != text) return with_escapes(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

}  // namespace fp8lab
