#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/machine.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/processor/instructions.hpp"
#include "fp8lab/processor/probe.hpp"
#include "fp8lab/vectors/vector_files.hpp"
#include "models.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::size_t kRows = 600;  // in each file of --out, and those that differ
constexpr int kInARow = 4;          // instructions of the longer chains

struct ProbeArguments {
  std::vector<std::string> instructions;
  std::string model;
  ModelFiles models;
  std::string out;
  std::uint64_t count = 1'000'000;
  std::uint64_t seed = 1;
  int threads = 0;
  bool json = false;
};

/// One comparison of a run.
struct Probed {
  ProbeRequest request;
  ProbeReport report;
  std::string_view model;
};

/// The instructions that were named, or all.
std::vector<const CpuInstruction*> chosen(const std::vector<std::string>& names) {
  std::vector<const CpuInstruction*> found;
  std::string known;
  for (const CpuInstruction& one : cpu_instructions()) {
    known += (known.empty() ? "" : ", ") + std::string(one.name);
    if (names.empty() || std::ranges::find(names, one.name) != names.end()) found.push_back(&one);
  }
  for (const std::string& name : names)
    require(std::ranges::any_of(found, [&](const auto* one) { return one->name == name; }),
            "--instruction",
            known.empty() ? "nothing: this build can execute none for this processor"
                          : "one of " + known,
            fmt::format("'{}'", name));
  return found;
}

Probed compared(const CpuInstruction& instruction, int in_a_row, const InstructionModel* model,
                const ProbeArguments& options) {
  Probed one{.request = {.instruction = &instruction,
                         .in_a_row = in_a_row,
                         .model = model,
                         .count = options.count,
                         .seed = options.seed,
                         .threads = team_size(options.threads)},
             .report = {},
             .model = model == nullptr ? instruction.model : model->name};
  one.report = probe(one.request);
  return one;
}

std::string file_name(const ProbeRequest& request) {
  return fmt::format("{}{}.txt", request.instruction->name,
                     request.in_a_row == 1 ? "" : "_chained");
}

void write(const std::string& folder, const Probed& one) {
  const std::filesystem::path path = std::filesystem::path(folder) / file_name(one.request);
  save_vectors(path.string(), probed_rows(one.request, one.report, kRows));
}

/// The first difference as text: inputs in hex, the processor's bits, and the model's.
std::string first_difference(const Probed& one) {
  const ProbeDifference& first = one.report.shown.front();
  ProbeReport alone;
  alone.outputs = one.report.outputs;
  alone.shown = {first};
  const VectorCase inputs = probed_rows(one.request, alone, 0).cases.front();
  const auto hex = [](const std::vector<std::uint32_t>& codes) {
    std::string text;
    for (const std::uint32_t code : codes) text += fmt::format("{:04x}", code);
    return text;
  };
  return fmt::format("case {}: a {} b {} c {:08x}: the processor gives {:08x}, {} {:08x}",
                     first.index, hex(inputs.a), hex(inputs.b), inputs.c, first.got, one.model,
                     first.modelled);
}

nlohmann::ordered_json json_of(const Probed& one) {
  nlohmann::ordered_json row{{"instruction", one.request.instruction->name},
                             {"in_a_row", one.request.in_a_row},
                             {"model", one.model},
                             {"outputs", one.report.outputs},
                             {"differences", one.report.differences}};
  row["first"] = one.report.shown.empty() ? nlohmann::ordered_json(nullptr)
                                          : nlohmann::ordered_json(first_difference(one));
  return row;
}

void print(const Probed& one) {
  say("{}, {} in a row, as {}: {} outputs, {} differ\n", one.request.instruction->name,
      one.request.in_a_row, one.model, one.report.outputs, one.report.differences);
  if (!one.report.shown.empty()) say("  {}\n", first_difference(one));
}

int run(const ProbeArguments& options) {
  const ModelBook book = load_models(options.models);
  const InstructionModel* model =
      options.model.empty() ? nullptr : &find_instruction_model(book.resolve(options.model));
  if (!options.out.empty()) std::filesystem::create_directories(options.out);
  std::vector<Probed> results;
  std::vector<std::string> missing;
  for (const CpuInstruction* instruction : chosen(options.instructions)) {
    if (!instruction->available()) {
      missing.emplace_back(instruction->name);
      continue;
    }
    for (const int in_a_row : {1, kInARow}) {
      results.push_back(compared(*instruction, in_a_row, model, options));
      if (!options.json) print(results.back());
      if (!options.out.empty()) write(options.out, results.back());
    }
  }
  const bool differs =
      std::ranges::any_of(results, [](const Probed& one) { return one.report.differences != 0; });
  if (options.json) {
    nlohmann::ordered_json report{{"processor", this_machine().cpu},
                                  {"family", processor_family()},
                                  {"seed", options.seed},
                                  {"results", nlohmann::ordered_json::array()},
                                  {"missing", missing}};
    for (const Probed& one : results) report["results"].push_back(json_of(one));
    fmt::print("{}\n", json_text(report, 2));
  } else {
    for (const std::string& name : missing) say("{}: this processor does not have it\n", name);
    say("{} ({}): {}\n", this_machine().cpu, processor_family(),
        results.empty() ? "nothing was compared"
        : differs       ? "DIFFERENT"
                        : "all equal");
  }
  if (results.empty()) return kNoPower;
  return differs ? kMismatch : kPass;
}

}  // namespace

void add_probe_cpu(Command& app, Action& action) {
  auto options = std::make_shared<ProbeArguments>();
  Command* command = app.add_subcommand(
      "probe-cpu",
      "Execute the processor's own dot-product instructions and compare them with their models. "
      "Exit 1: some bits differ; 3: the processor has none of them");
  command->add_option("--instruction", options->instructions,
                      "only this one, such as vdpbf16ps; may be given several times");
  command->add_option("--model", options->model,
                      "model to compare with, instead of each instruction's own");
  add_models_option(*command, options->models);
  command
      ->add_option("-n,--count", options->count,
                   "outputs of each comparison: of one instruction, and of four in a row")
      ->check(between(std::int64_t{1}, std::int64_t{100'000'000'000}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "seed of the cases")->capture_default_str();
  command->add_option("--out", options->out,
                      "folder for vector files of the processor's outputs, which replay reads");
  command->add_option("--threads", options->threads, "threads; 0: all")->capture_default_str();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
