#include <fmt/format.h>
#include "fp8lab/core/json_text.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "command.hpp"
#include "cost/cost_tables.hpp"
#include "cost/memory_gap.hpp"
#include "cost/published.hpp"

namespace fp8lab::cli {
namespace {

using namespace experiments;

struct CostArguments {
  std::string model;
  std::vector<std::string> schemes;
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> tensor;
  std::optional<std::int64_t> pipeline;
  std::optional<std::int64_t> data;
  std::optional<std::int64_t> micro_batch;
  bool json = false;
};

TrainingSetup chosen_setup(const CostArguments& options) {
  TrainingSetup setup = find_training_setup(options.model);
  setup.shape.sequence = options.sequence.value_or(setup.shape.sequence);
  setup.parallel.tensor = options.tensor.value_or(setup.parallel.tensor);
  setup.parallel.pipeline = options.pipeline.value_or(setup.parallel.pipeline);
  setup.parallel.data = options.data.value_or(setup.parallel.data);
  setup.parallel.micro_batch = options.micro_batch.value_or(setup.parallel.micro_batch);
  return setup;
}

/// {"memory": [{"scheme": ..., "weights_GiB": ...}, ...]}: a column with a unit has it in its name.
nlohmann::ordered_json json_of(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : table.rows()) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t c = 0; c < row.size(); ++c) {
      const Column& column = table.columns()[c];
      const bool has_unit = !column.unit.empty() && column.unit != "1";
      const std::string unit = column.unit == "%" ? "percent" : column.unit;
      std::visit(
          [&](const auto& value) {
            object[has_unit ? fmt::format("{}_{}", column.name, unit) : column.name] = value;
          },
          row[c]);
    }
    rows.push_back(object);
  }
  return rows;
}

int run(const CostArguments& options) {
  std::vector<TrainingScheme> schemes;
  for (const std::string& name : options.schemes) schemes.push_back(find_training_scheme(name));
  if (schemes.empty()) schemes.assign(training_schemes().begin(), training_schemes().end());
  const std::vector<ModelCosts> costs{model_costs(chosen_setup(options), schemes)};
  const std::vector<ModelShape> shapes{costs.front().setup.shape};
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::string text;
  std::vector<Table> tables{parameter_table(schemes), memory_table(costs),     traffic_table(costs),
                            zero_table(costs),        activation_table(costs), block_table(shapes)};
  if (experiments::find_published(costs.front().setup) != nullptr)
    tables.insert(tables.begin() + 2, memory_gap_table(shapes.front().name));
  for (const Table& table : tables) {
    json[table.name()] = json_of(table);
    text += table.text() + "\n";
  }
  fmt::print("{}", options.json ? json_text(json, 2) + "\n" : text);
  return kPass;
}

}  // namespace

void add_cost(Command& app, Action& action) {
  auto options = std::make_shared<CostArguments>();
  std::string known;
  for (const TrainingSetup& setup : training_setups()) known += setup.shape.name + ", ";
  Command* command = app.add_subcommand(
      "cost", "Bytes, traffic and FLOPs of training a model shape under several schemes");
  command
      ->add_option("--model", options->model,
                   known +
                       "or a TOML file: layers, hidden, heads, vocabulary; if they differ from the "
                       "defaults, kv_heads, ffn, gated, experts, active_experts, tied_embeddings, "
                       "sequence, and [parallel] tensor, pipeline, data, micro_batch")
      ->required();
  command->add_option("--scheme", options->schemes, "bf16, te-fp8, fp8-lm (default: all)");
  command->add_option("--sequence", options->sequence,
                      "tokens per sequence, instead of the model's");
  command->add_option("--tensor", options->tensor, "tensor-parallel ranks");
  command->add_option("--pipeline", options->pipeline, "pipeline-parallel ranks");
  command->add_option("--data", options->data, "data-parallel ranks");
  command->add_option("--micro-batch", options->micro_batch, "sequences");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
