#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/separate.hpp"
#include "fp8lab/vectors/vector_files.hpp"
#include "models.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::size_t kSeparatingCases = 16;

struct VectorsArguments {
  std::string model;
  ModelFiles models;
  std::vector<std::string> separate;
  std::string kind = "adversarial";
  std::string output = "-";
  std::size_t count = 0;
  std::uint64_t seed = 1;
  int terms = 0;
};

void write(const VectorFile& file, const std::string& output) {
  if (output == "-")
    write_vectors(std::cout, file);
  else
    save_vectors(output, file);
}

int write_separating(const VectorsArguments& options) {
  const ModelBook book = load_models(options.models);
  const InstructionModel& first = find_instruction_model(book.resolve(options.separate[0]));
  const InstructionModel& second = find_instruction_model(book.resolve(options.separate[1]));
  const std::size_t count = options.count > 0 ? options.count : kSeparatingCases;
  const Separation found = separate(first, second, count, options.seed, options.terms);
  if (first.accumulator == second.accumulator) {
    say(stderr, "fp8lab: {} and {} have the same accumulator: no input distinguishes them\n",
        first.name, second.name);
    return kMismatch;
  }
  if (found.file.cases.empty()) {
    say(stderr, "fp8lab: no input found that distinguishes {} from {}, in {} of {}\n", first.name,
        second.name, counted(found.tried, "case"), counted(found.file.terms, "term"));
    return kMismatch;
  }
  write(found.file, options.output);
  say(stderr, "{} cases of {} distinguish {} from {}; the first has {}\n", found.file.cases.size(),
      found.tried, first.name, second.name,
      counted(live_terms(found.file.cases.front()), "non-zero term"));
  return kPass;
}

int run(const VectorsArguments& options) {
  require(options.model.empty() != options.separate.empty(), "vectors",
          "either --model NAME or --separate MODEL1 MODEL2",
          options.model.empty() ? "neither" : "both");
  if (options.output != "-") require_writable_file(options.output);
  if (!options.separate.empty()) return write_separating(options);
  require(options.count > 0, "--count", "the number of cases, 1 to 10000000", "none");
  const InstructionModel& model =
      find_instruction_model(load_models(options.models).resolve(options.model));
  write(generate_cases(model, find_case_kind(options.kind), options.count, options.seed,
                       options.terms),
        options.output);
  return kPass;
}

}  // namespace

void add_vectors(Command& app, Action& action) {
  auto options = std::make_shared<VectorsArguments>();
  Command* command = app.add_subcommand(
      "vectors",
      "Write golden vectors: inputs that distinguish models, with the results of one model");
  command->add_option("--model", options->model, "instruction model that computes d");
  command
      ->add_option("--separate", options->separate,
                   "MODEL1 MODEL2: inputs on which they differ, with MODEL1's results; exit 1 if "
                   "there are none")
      ->expected(2);
  add_models_option(*command, options->models);
  command->add_option("--kind", options->kind, "random, adversarial or special")
      ->capture_default_str();
  command
      ->add_option(
          "-n,--count", options->count,
          fmt::format("number of cases; with --separate, the largest number; {} if not given",
                      kSeparatingCases))
      ->check(between(1, 10'000'000));
  command->add_option("--seed", options->seed, "seed of the stream")->capture_default_str();
  command->add_option("--terms", options->terms, "operand pairs per case; 0: one step of the model")
      ->capture_default_str();
  command
      ->add_option(
          "-o,--output", options->output,
          "file to write: .npz, .safetensors, .jsonl, otherwise text; - is standard output")
      ->capture_default_str();
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
