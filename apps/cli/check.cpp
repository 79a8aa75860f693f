#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"
#include "json_number.hpp"
#include "say.hpp"
#include "training/model_files/check_model.hpp"

namespace fp8lab::cli {
namespace {

struct CheckArguments {
  std::string folder;
  std::string original;
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

int run(const CheckArguments& options) {
  CheckModelOptions request;
  if (!options.original.empty()) request.original = options.original;
  const CheckedModel model = check_model(options.folder, request);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(model), 2));
  else
    print(model);
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
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
