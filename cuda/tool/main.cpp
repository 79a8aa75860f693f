#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "apps/cli/command.hpp"
#include "backends.hpp"
#include "check.cuh"
#include "tool/command.hpp"

namespace {

using namespace fp8lab::cuda;

struct Options {
  CrossCheckOptions check;
  std::string out = "recording";
};

/// Everything in one go: record, cross-check, measure, and the table last.
int run_all(const Options& options) {
  run_record(options.out, options.check.seed);
  run_bench(options.check.seed);
  search_cublaslt_models(options.check.seed);
  return run_cross_check(options.check);
}

void add_seed(CLI::App* command, Options& options) {
  command->add_option("--seed", options.check.seed, "seed of every stream")->capture_default_str();
}

void add_check_options(CLI::App* command, Options& options) {
  add_seed(command, options);
  command->add_option("--outputs", options.check.outputs, "outputs of each instruction")
      ->capture_default_str();
  command->add_option("--only", options.check.only, "instructions whose names hold this text");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"fp8lab-cuda: what a Hopper GPU computes, against the emulator"};
  app.require_subcommand(1);
  app.set_version_flag("--version", FP8LAB_VERSION);
  Options options;
  fp8lab::cli::Action action;
  add_backends();
  const auto add = [&](const char* name, const char* help, auto run) {
    CLI::App* command = app.add_subcommand(name, help);
    command->callback([&action, run] { action = run; });
    return command;
  };
  add("info", "Print the device, driver and CUDA versions", [] { return run_info(); });
  CLI::App* record = add("record", "Record every instruction on generated cases",
                         [&] { return run_record(options.out, options.check.seed); });
  record->add_option("--out", options.out, "folder to write to")->required();
  add_seed(record, options);
  add_check_options(add("cross-check", "Compare chip and emulator, bit for bit",
                        [&] { return run_cross_check(options.check); }),
                    options);
  add_seed(add("search", "Find the model that gives cuBLASLt's bits",
               [&] {
                 fp8lab::cuda::require_hopper();
                 search_cublaslt_models(options.check.seed);
                 return static_cast<int>(kPass);
               }),
           options);
  add_seed(add("bench", "Measure rates and errors on the chip",
               [&] { return run_bench(options.check.seed); }),
           options);
  CLI::App* all = add("all", "record, bench, search and cross-check; the table comes last",
                      [&] { return run_all(options); });
  all->add_option("--out", options.out, "folder for the recording")->capture_default_str();
  add_check_options(all, options);
  fp8lab::cli::add_run(app, action);
  try {
    app.parse(argc, argv);
    return action();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? static_cast<int>(kPass) : static_cast<int>(kUsage);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fp8lab-cuda: {}\n", error.what());
    return kUsage;
  }
}
