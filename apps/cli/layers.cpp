#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/json_text.hpp"
#include "say.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/model_directory.hpp"
#include "training/model_files/module_choice.hpp"

namespace fp8lab::cli {
namespace {

struct LayersArguments {
  std::string file;
  std::string rule;
  std::vector<std::string> ignore;
  std::vector<std::string> only;
  bool json = false;
};

int run(const LayersArguments& options) {
  const ModuleChoice choice(options.rule, options.ignore, options.only);
  const LayerRule& rule = choice.rule();
  const ModelDirectory model(options.file);
  choice.require_matches(model.shards());
  nlohmann::ordered_json weights = nlohmann::ordered_json::array();
  std::int64_t tensors = 0;
  std::int64_t converted = 0;
  std::int64_t converted_elements = 0;
  std::int64_t elements = 0;
  for (const WeightShard& shard : model.shards())
    for (const TensorSpec& item : shard.tensors) {
      const LayerDecision decision = choice.decide(item);
      const std::int64_t size = element_count(item.shape, item.name);
      ++tensors;
      converted += decision.converts ? 1 : 0;
      converted_elements += decision.converts ? size : 0;
      elements += size;
      if (options.json)
        weights.push_back({{"name", item.name},
                           {"shape", item.shape},
                           {"converts", decision.converts},
                           {"reason", decision.reason}});
      else
        say("{:<5} {} {}{}{}\n", decision.converts ? "fp8" : "keep", item.name,
            shape_text(item.shape), decision.converts ? "" : ": ", decision.reason);
    }
  if (options.json)
    fmt::print("{}\n",
               json_text(nlohmann::ordered_json{{"rule", rule.name}, {"weights", weights}}, 2));
  else
    say("{} of {} tensors are converted, {} of {} elements (rule {})\n", converted, tensors,
        converted_elements, elements, rule.name);
  return kPass;
}

}  // namespace

void add_layers(Command& app, Action& action) {
  auto options = std::make_shared<LayersArguments>();
  std::string rules = "rule:";
  for (const LayerRule& rule : layer_rules()) rules += " " + std::string(rule.name);
  Command* command = app.add_subcommand(
      "layers",
      "Show which weights of a model a system converts to FP8, and why the others are left");
  command->add_option("MODEL", options->file, "a model's folder, its index or a .safetensors file")
      ->required();
  command->add_option("--rule", options->rule, rules)->required();
  command->add_option("--ignore", options->ignore, "modules that stay, by name or re:PATTERN");
  command->add_option("--only", options->only, "convert no other modules than these");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
