#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/verify/cases.hpp"

namespace fp8lab::cli {
namespace {

struct Options {
  std::string model;
  std::string kind = "adversarial";
  std::string output = "-";
  std::size_t count = 0;
  std::uint64_t seed = 1;
  int terms = 0;
};

int run(const Options& options) {
  const VectorFile file =
      generate_cases(find_instruction_model(options.model), find_case_kind(options.kind),
                     options.count, options.seed, options.terms);
  if (options.output == "-") {
    write_vectors(std::cout, file);
    return kPass;
  }
  std::ofstream out(options.output, std::ios::binary);
  write_vectors(out, file);
  out.close();
  if (!out) throw Error(fmt::format("{}: cannot be written", options.output));
  return kPass;
}

}  // namespace

void add_vectors(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "vectors", "Generate a vector file: inputs that tell models apart, with a model's results");
  command->add_option("--model", options->model, "instruction model that gives d")->required();
  command->add_option("--kind", options->kind, "random, adversarial or special")
      ->capture_default_str();
  command->add_option("-n,--count", options->count, "number of cases")
      ->required()
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--seed", options->seed, "seed of the stream")->capture_default_str();
  command->add_option("--terms", options->terms, "operand pairs a case; 0: one step of the model")
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "file to write; - is standard output")
      ->capture_default_str();
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
