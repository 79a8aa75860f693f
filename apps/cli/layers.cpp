#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/model/layer_rule.hpp"

namespace fp8lab::cli {
namespace {

struct Options {
  std::string file;
  std::string rule;
  bool json = false;
};

int run(const Options& options) {
  const LayerRule& rule = find_layer_rule(options.rule);
  const SafetensorsFile file(options.file);
  nlohmann::ordered_json weights = nlohmann::ordered_json::array();
  std::int64_t converted = 0;
  std::int64_t converted_elements = 0;
  std::int64_t elements = 0;
  for (const NamedTensor& item : file.tensors()) {
    const LayerDecision decision = decide(rule, item.name, item.tensor.shape);
    converted += decision.converts ? 1 : 0;
    converted_elements += decision.converts ? item.tensor.size() : 0;
    elements += item.tensor.size();
    if (options.json)
      weights.push_back({{"name", item.name},
                         {"shape", item.tensor.shape},
                         {"converts", decision.converts},
                         {"reason", decision.reason}});
    else
      fmt::print("{:<5} {} {}{}{}\n", decision.converts ? "fp8" : "keep", item.name,
                 shape_text(item.tensor.shape), decision.converts ? "" : ": ", decision.reason);
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"rule", rule.name}, {"weights", weights}}.dump(2));
  else
    fmt::print("{} of {} tensors convert, {} of {} elements (rule {})\n", converted,
               file.tensors().size(), converted_elements, elements, rule.name);
  return kPass;
}

}  // namespace

void add_layers(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  std::string rules = "rule:";
  for (const LayerRule& rule : layer_rules()) rules += " " + std::string(rule.name);
  CLI::App* command =
      app.add_subcommand("layers", "Which weights of a file a system converts to FP8, and why not");
  command->add_option("FILE", options->file, ".safetensors file")->required();
  command->add_option("--rule", options->rule, rules)->required();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
