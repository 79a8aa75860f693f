#include "fp8lab/reveal/reveal.hpp"
#include "fp8lab/core/json_text.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/reveal/probe_files.hpp"
#include "kernel_options.hpp"
#include "models.hpp"
#include "reveal_command.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

struct RevealArguments {
  std::string model;
  std::string folder;
  std::string dtype;
  std::string dtype_b;
  std::string output;
  std::string output_dtype = "f32";
  SplitOptions split;
  std::int64_t promotion = 0;
  ProbeShape shape;
  std::uint64_t seed = 1;
  ModelFiles models;
  bool tree = false;
  bool json = false;
};

json json_of(const Revealed& r) {
  json parameters = json::array();
  for (const RevealedParameter& p : r.parameters)
    parameters.push_back({{"name", p.name}, {"value", p.value}, {"possible", p.possible}});
  json result{{"explained", r.explained()},
              {"m", r.shape.m},
              {"n", r.shape.n},
              {"k", r.shape.k},
              {"a_format", format(r.shape.a_format).name},
              {"b_format", format(r.shape.b_format).name},
              {"output", format(r.output).name},
              {"rounded_to", format(r.rounded_to).name},
              {"model", r.model},
              {"definition", r.definition},
              {"instructions", r.instructions},
              {"parameters", parameters},
              {"checked", r.checked},
              {"equal", r.equal},
              {"rounds", r.rounds},
              {"probes", r.probes},
              {"failure", r.failure}};
  if (r.order.found()) result["tree"] = text_of(r.order.tree);
  if (r.structure) {
    result["promotion"] = r.structure->promotion_interval;
    result["split_k"] = r.structure->split.parts;
    result["order"] = r.structure->text(r.shape.k);
  }
  return result;
}

int run(RevealArguments options) {
  require(options.model.empty() != options.folder.empty(), "--model",
          "either a model to probe, or --probes FOLDER for a kernel that runs elsewhere",
          options.model.empty() ? "neither" : "both");
  if (!options.output.empty()) require_writable_file(options.output);
  const ModelBook book = load_models(options.models);
  const FormatId output = find_format(options.output_dtype).id;
  if (options.model.empty()) {
    require(!options.dtype.empty(), "--dtype", "what the kernel reads (e4m3fn, bf16 ...)", "none");
    require(options.promotion == 0 && options.split.parts == 1, "--promotion, --split-k",
            "no such option with --probes, which finds it", "a value");
  } else {
    options.model = book.resolve(options.model);
    const InstructionModel& model = find_instruction_model(options.model);
    options.shape.a_format = model.a_format;
    options.shape.b_format = model.b_format;
  }
  if (!options.dtype.empty())
    options.shape.a_format = options.shape.b_format = find_format(options.dtype).id;
  if (!options.dtype_b.empty()) options.shape.b_format = find_format(options.dtype_b).id;
  const ProbeKernel kernel =
      options.model.empty()
          ? file_kernel(options.folder)
          : kernel_of_model(options.model, options.promotion, split_of(options.split), output);
  Revealed revealed;
  try {
    revealed = reveal(options.shape, kernel, options.seed);
  } catch (const ProbesWait& wait) {
    if (options.json)
      fmt::print("{}\n", json_text(json{{"round", wait.round}, {"waiting", wait.what()}}, 2));
    else
      say("{}\n", wait.what());
    return kNoPower;
  }
  if (options.json)
    fmt::print("{}\n", json_text(json_of(revealed), 2));
  else
    fmt::print("{}", describe(revealed, options.tree));
  if (!options.output.empty()) {
    require(!revealed.definition.empty(), "--output", "a kernel whose unit was found",
            revealed.failure);
    write_file(options.output, models_file(revealed, "revealed"));
  }
  return revealed.explained() ? kPass : kMismatch;
}

}  // namespace

void add_reveal(Command& app, Action& action) {
  auto options = std::make_shared<RevealArguments>();
  Command* command =
      app.add_subcommand("reveal",
                         "Find the order in which a kernel sums, and its unit. Exit 0: a model "
                         "gives its bits; 1: none does; 3: --probes waits for outputs");
  command->add_option("--model", options->model, "probe this model of the library");
  command->add_option("--probes", options->folder,
                      "folder of rounds: operands are written there and outputs are read, until "
                      "everything is known");
  command->add_option("--dtype", options->dtype,
                      "operand format of the kernel: e4m3fn, e5m2, f16, bf16 ...");
  command->add_option("--dtype-b", options->dtype_b, "format of B, if it differs");
  command->add_option("-m", options->shape.m, "rows of A")->capture_default_str();
  command->add_option("-n", options->shape.n, "rows of B")->capture_default_str();
  command->add_option("-k", options->shape.k, "terms")->capture_default_str();
  command->add_option("--promotion", options->promotion, "with --model: terms of a chain; 0: all")
      ->capture_default_str();
  add_split_options(*command, options->split);
  command->add_option("--out-dtype", options->output_dtype, "with --model: f32, bf16 or f16")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the fresh operands")->capture_default_str();
  command->add_flag("--tree", options->tree, "print the whole tree, of any length");
  command->add_option("-o,--output", options->output,
                      "write the unit to a file for --models, under the name revealed");
  add_models_option(*command, options->models);
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
