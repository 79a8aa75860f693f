#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"
#include "json_number.hpp"
#include "option_text.hpp"
#include "result_folder.hpp"
#include "say.hpp"
#include "training/model_files/check_model.hpp"

namespace fp8lab::cli {
namespace {

struct CheckArguments {
  std::string folder;
  std::string original;
  std::string out;
  bool json = false;
};

nlohmann::ordered_json json_of(const CheckedModel& model) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& one : model.findings)
    findings.push_back({{"kind", one.kind}, {"name", one.name}, {"text", one.text}});
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  for (const WeightError& one : model.errors)
    errors.push_back({{"name", one.name},
                      {"form", one.form},
                      {"sqnr_db", json_number(one.sqnr_db)},
                      {"worst_tile_db", json_number(one.worst_db)},
                      {"worst_tile", {one.worst_row, one.worst_column}},
                      {"recipe", one.recipe.empty() ? nlohmann::ordered_json()
                                                    : nlohmann::ordered_json(one.recipe)}});
  return {{"method", model.method},   {"forms", model.forms}, {"tensors", model.tensors},
          {"weights", model.weights}, {"findings", findings}, {"errors", errors}};
}

void print(const CheckedModel& model) {
  std::string forms;
  for (const std::string& form : model.forms) forms += (forms.empty() ? "" : ", ") + form;
  say("{}: {} in {}{}{}\n", model.method.empty() ? "no method" : model.method,
      counted(model.weights, "quantized weight"), counted(model.tensors, "tensor"),
      forms.empty() ? "" : ", ", forms);
  for (const WeightError& one : model.errors)
    say("{}: SQNR {:.2f} dB, worst tile {:.2f} dB at row {}, column {}; {}\n", one.name,
        one.sqnr_db, one.worst_db, one.worst_row, one.worst_column,
        one.recipe.empty() ? std::string("no recipe gives these codes and scales")
                           : fmt::format("recipe {}", one.recipe));
  for (const Finding& one : model.findings)
    say("{}: {}{}{}\n", one.kind, one.name, one.name.empty() ? "" : ": ", one.text);
  say("{}\n", model.findings.empty() ? std::string("nothing found")
                                     : counted(model.findings.size(), "finding"));
}

Table finding_table(const CheckedModel& model) {
  Table table("findings", "What is wrong, one finding per row",
              {{"kind", "", "class of fault"},
               {"name", "", "of a tensor, module or file"},
               {"text", "", "what was expected, and what is there"}});
  for (const Finding& one : model.findings) table.add_row({one.kind, one.name, one.text});
  return table;
}

Table error_table(const CheckedModel& model) {
  Table table("errors", "Error of each weight against the original",
              {{"weight", "", "its name"},
               {"form", "", "format of codes and scales"},
               {"sqnr", "dB", "signal over error of the whole weight"},
               {"worst_tile", "dB", "the same of the worst tile that shares a scale"},
               {"row", "1", "the first of that tile"},
               {"column", "1", "the first of that tile"},
               {"recipe", "", "the first that gives these codes and scales; empty for none"}});
  for (const WeightError& one : model.errors)
    table.add_row({one.name, one.form, one.sqnr_db, one.worst_db, one.worst_row, one.worst_column,
                   one.recipe});
  return table;
}

/// The SQNR of all weights, sorted, and that of their worst tiles.
Plot error_plot(const CheckedModel& model) {
  std::vector<WeightError> sorted = model.errors;
  std::ranges::sort(sorted, {}, &WeightError::sqnr_db);
  std::vector<double> places;
  std::vector<double> whole;
  std::vector<double> worst;
  for (const WeightError& one : sorted) {
    places.push_back(static_cast<double>(places.size() + 1));
    whole.push_back(one.sqnr_db);
    worst.push_back(one.worst_db);
  }
  return {.name = "sqnr",
          .title = "SQNR of the weights, the worst first",
          .x = {.label = "weights"},
          .y = {.label = "SQNR, dB"},
          .series = {{"whole weight", places, whole}, {"worst tile", places, worst}}};
}

Results results_of(const CheckedModel& model) {
  Results results;
  results.findings.push_back(
      fmt::format("{} in {} of {}.",
                  model.findings.empty() ? std::string("Nothing found")
                                         : counted(model.findings.size(), "finding"),
                  counted(model.weights, "quantized weight"),
                  model.method.empty() ? std::string("a folder without a method") : model.method));
  std::map<std::string, std::size_t> kinds;
  for (const Finding& one : model.findings) ++kinds[one.kind];
  for (const auto& [kind, count] : kinds)
    results.findings.push_back(fmt::format("Of kind \"{}\": {}.", kind, count));
  results.tables = {finding_table(model)};
  if (model.errors.empty()) return results;
  results.tables.push_back(error_table(model));
  if (model.errors.size() > 2) results.plots = {error_plot(model)};
  return results;
}

/// A folder of results that `report` shows.
void write_folder(const CheckedModel& model, const CheckArguments& options,
                  const std::string& command, std::chrono::system_clock::time_point started) {
  const std::chrono::duration<double> took = std::chrono::system_clock::now() - started;
  std::string toml = fmt::format("model = {}\n", json_text(nlohmann::json(options.folder)));
  if (!options.original.empty())
    toml += fmt::format("original = {}\n", json_text(nlohmann::json(options.original)));
  const RunRecord record{.experiment = "check",
                         .question = "What is wrong with this quantized model?",
                         .parameters = Parameters::from_toml(toml, false),
                         .command = command,
                         .started = started,
                         .duration_seconds = took.count()};
  write_result_folder(results_of(model), record, options.out);
}

int run(const CheckArguments& options, const std::string& command) {
  CheckModelOptions request;
  if (!options.original.empty()) request.original = options.original;
  if (!options.out.empty()) require_writable_results(options.out, "check");
  const auto started = std::chrono::system_clock::now();
  const CheckedModel model = check_model(options.folder, request);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(model), 2));
  else
    print(model);
  if (!options.out.empty()) write_folder(model, options, command, started);
  return model.findings.empty() ? kPass : kMismatch;
}

}  // namespace

void add_check(Command& app, Action& action) {
  auto options = std::make_shared<CheckArguments>();
  Command* command = app.add_subcommand(
      "check",
      "Find what is wrong with a quantized model's folder: lost, inverted or unreadable scales, "
      "names and types that disagree with its configuration. Exit 0: nothing found; 1: findings");
  command
      ->add_option("MODEL", options->folder, "the model's folder, its index or a .safetensors file")
      ->required();
  command->add_option("--original", options->original,
                      "the folder that was quantized: also gives the error of every weight and the "
                      "recipe of its codes and scales");
  command->add_option("--out", options->out,
                      "folder that gets check/ with tables, plot and result.json, for report");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, command, &action] {
    action = [options, text = shell_command("fp8lab check", *command)] {
      return run(*options, text);
    };
  });
}

}  // namespace fp8lab::cli
