#include <fmt/format.h>

#include <bit>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/vectors/recording.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "models.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

struct ReplayArguments {
  std::vector<std::string> files;
  std::string model;
  ModelFiles models;
  bool json = false;
};

nlohmann::json json_of(const std::string& file, const ReplayReport& report) {
  nlohmann::json shown = nlohmann::json::array();
  for (const ReplayMismatch& mismatch : report.shown)
    shown.push_back({{"line", mismatch.line},
                     {"expected", fmt::format("{:08x}", mismatch.expected)},
                     {"got", fmt::format("{:08x}", mismatch.got)}});
  return {{"file", file},
          {"model", report.model},
          {"cases", report.cases},
          {"mismatches", report.mismatches},
          {"shown", shown}};
}

/// What does not fit in a file is said of the file, where no option names the model.
ReplayReport replay_file(const std::string& file, const std::string& model) {
  const VectorFile cases = read_cases(file);
  if (!model.empty()) return replay(cases, model);
  try {
    return replay(cases, model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file, error.what()));
  }
}

int run(const ReplayArguments& options) {
  ReplayReport total;
  nlohmann::json files = nlohmann::json::array();
  const std::string model = load_models(options.models).resolve(options.model);
  for (const std::string& file : options.files) {
    const ReplayReport report = replay_file(file, model);
    total.cases += report.cases;
    total.mismatches += report.mismatches;
    if (options.json) {
      files.push_back(json_of(file, report));
      continue;
    }
    for (const ReplayMismatch& mismatch : report.shown) fmt::print("{}", describe(mismatch));
    say("{}: {}: cases {} mismatches {}\n", file, report.model, report.cases, report.mismatches);
  }
  if (options.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"files", files},
                                                {"cases", total.cases},
                                                {"mismatches", total.mismatches}},
                                 2));
  else
    say("cases {} mismatches {}\n", total.cases, total.mismatches);
  return total.mismatches == 0 ? kPass : kMismatch;
}

}  // namespace

void add_replay(Command& app, Action& action) {
  auto options = std::make_shared<ReplayArguments>();
  Command* command =
      app.add_subcommand("replay", "Compare vector files and recordings of chips with a model");
  command
      ->add_option("FILE", options->files,
                   "vector files: text, .npz, .safetensors, .jsonl; recordings")
      ->required();
  command->add_option("--model", options->model,
                      "model to use instead of the one that the file names");
  add_models_option(*command, options->models);
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
