#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/command.hpp"
#include "backends.hpp"
#include "check.cuh"
#include "tool/command.hpp"

namespace {

using namespace fp8lab::cuda;

struct Options {
  CrossCheckOptions check;
  std::string out = "recording";
  double minutes = 8.0;
  bool in_process = false;
};

/// A share of the time, so that a part that hangs leaves enough for the others.
constexpr double kLongestShare = 1.0 / 8.0;

/// The device first, then the parts, then the table.
int run_and_print(const std::vector<Part>& parts, const Options& options) {
  const std::vector<Part> device{{"fp8lab-cuda", [] {
                                    fp8lab::cuda::require_hopper();
                                    run_info();
                                    return std::vector<CheckRow>{};
                                  }}};
  if (options.in_process) {
    run_parts_here(device);
    return print_table(run_parts_here(parts));
  }
  const double seconds = 60.0 * options.minutes;
  const PartLimits limits{kLongestShare * seconds, seconds};
  if (!run_parts(device, limits).empty()) return kUsage;
  return print_table(run_parts(parts, limits));
}

/// Everything in one go, what cannot be had without the chip first.
std::vector<Part> all_parts(const Options& options) {
  std::vector<Part> all;
  for (std::vector<Part>& parts :
       std::array{record_parts(options.out, options.check.seed), cross_check_parts(options.check),
                  search_parts(options.check.seed), bench_parts(options.check.seed)})
    std::move(parts.begin(), parts.end(), std::back_inserter(all));
  return all;
}

void add_check_options(CLI::App* command, Options& options) {
  command->add_option("--outputs", options.check.outputs, "outputs of each instruction")
      ->capture_default_str();
  command->add_option("--only", options.check.only, "instructions whose names hold this text");
}

}  // namespace

int main(int argc, char** argv) {
  // Whoever stops a long run, or pipes it, has every line that was printed.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
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
  const auto add_parts = [&](const char* name, const char* help, auto parts) {
    CLI::App* command =
        add(name, help, [&options, parts] { return run_and_print(parts(), options); });
    command->add_option("--seed", options.check.seed, "seed of every stream")
        ->capture_default_str();
    command
        ->add_option("--minutes", options.minutes, "time limit; parts that did not run are listed")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_flag("--in-process", options.in_process,
                      "no child processes: for debuggers and profilers");
    return command;
  };
  add_parts("record", "Record every instruction on generated cases",
            [&] { return record_parts(options.out, options.check.seed); })
      ->add_option("--out", options.out, "folder to write to")
      ->required();
  add_check_options(add_parts("cross-check", "Compare chip and emulator, bit for bit",
                              [&] { return cross_check_parts(options.check); }),
                    options);
  add_parts("search", "Find the model that gives cuBLASLt's bits",
            [&] { return search_parts(options.check.seed); });
  add_parts("bench", "Measure rates and errors on the chip",
            [&] { return bench_parts(options.check.seed); });
  CLI::App* all = add_parts("all", "record, cross-check, search and bench; the table comes last",
                            [&] { return all_parts(options); });
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
