#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/attn.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/run.hpp"
#include "backends.hpp"
#include "check.cuh"
#include "experiments/registry.hpp"
#include "probes/probe.hpp"
#include "tool/command.hpp"
#include "tool/experiments.hpp"
#include "tool/log.hpp"
#include "tool/table.hpp"
#include "tool/tar.hpp"

namespace {

using namespace fp8lab::cuda;
using fp8lab::cli::Command;

struct Options {
  CrossCheckOptions check;
  std::string out = "recording";
  std::string archive;
  double minutes = 8.0;
  bool in_process = false;
};

/// A share of the time, so that a part that hangs leaves enough for the others.
constexpr double kLongestShare = 1.0 / 8.0;
constexpr int kLeastCapability = 80;
constexpr int kNewestCapability = 999;

/// What the device is, in a row: the process that asks it is not the one that wants to know.
std::vector<CheckRow> ask_device() {
  require_capability(kLeastCapability, kNewestCapability);
  const Chip chip = this_chip();
  return {{"chip", static_cast<std::uint64_t>(chip.capability),
           static_cast<std::uint64_t>(chip.compiler)}};
}

/// The device first, then the parts, then the table. `folder`: where the log and the table go too;
/// empty: nowhere.
int run_and_print(const std::function<std::vector<Part>()>& parts_of, Options& options,
                  const std::filesystem::path& folder) {
  const std::vector<Part> device{{"fp8lab-cuda", ask_device}};
  const double seconds = 60.0 * options.minutes;
  const PartLimits limits{kLongestShare * seconds, seconds};
  const std::vector<CheckRow> answer =
      options.in_process ? ask_device() : run_parts(device, limits);
  if (!answer.front().problem.empty()) return kUsage;
  options.check.chip = {static_cast<int>(answer.front().cases),
                        static_cast<int>(answer.front().mismatches)};
  std::optional<Log> log;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder);
    if (!options.in_process) log.emplace(folder / "log.txt");
  }
  std::vector<Part> parts{{"fp8lab-cuda", [] {
                             run_info();
                             return std::vector<CheckRow>{};
                           }}};
  for (Part& part : parts_of()) parts.push_back(std::move(part));
  const std::vector<CheckRow> rows =
      options.in_process ? run_parts_here(parts) : run_parts(parts, limits);
  if (!folder.empty()) write_table(folder / "table.csv", rows);
  if (!rows.empty()) fmt::print("\n{}", table_text(rows));
  return std::ranges::all_of(rows, agrees) ? kPass : kMismatch;
}

/// One file of everything that a run left.
int pack(const std::filesystem::path& folder, std::string archive) {
  if (archive.empty())
    archive = std::filesystem::weakly_canonical(folder).filename().string() + ".tar";
  const std::size_t files = write_tar(folder, archive);
  fmt::print("{}: {} files, {} bytes\n", archive, files, std::filesystem::file_size(archive));
  return kPass;
}

/// Everything in one go, what cannot be had without the chip first.
std::vector<Part> all_parts(const Options& options) {
  std::vector<Part> all;
  const std::uint64_t seed = options.check.seed;
  for (std::vector<Part>& parts :
       std::array{record_parts(options.out, options.check.chip, seed),
                  cross_check_parts(options.check), search_parts(options.check.chip, seed),
                  observe_parts(options.out, options.check.chip, seed),
                  bench_parts(options.check.chip, seed)})
    std::move(parts.begin(), parts.end(), std::back_inserter(all));
  return all;
}

/// Every experiment's quick form on both backends.
std::vector<Part> experiment_parts(const Chip& chip, std::uint64_t seed) {
  std::vector<Part> parts;
  // The products of `cuda` are made of wgmma.
  std::vector<const char*> names{"cuda-emulated"};
  if (chip.capability == 90) names.insert(names.begin(), "cuda");
  for (const fp8lab::Experiment& experiment : fp8lab::all_experiments())
    for (const char* name : names)
      parts.push_back({fmt::format("{} on {}", experiment.name, name), [&experiment, name, seed] {
                         return std::vector<CheckRow>{compare_experiment(
                             experiment, fp8lab::find_backend(backends(), name), seed, true)};
                       }});
  return parts;
}

void add_check_options(Command* command, Options& options) {
  command->add_option("--outputs", options.check.outputs, "outputs per instruction")
      ->capture_default_str();
  command->add_option("--only", options.check.only,
                      "select instructions whose names contain this text");
}

}  // namespace

int main(int argc, char** argv) {
  // Whoever stops a long run, or pipes it, has every line that was printed.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Command app{"Compares what an NVIDIA GPU computes with the emulator", "fp8lab-cuda"};
  app.require_subcommand(1);
  app.set_version_flag("--version", FP8LAB_VERSION);
  Options options;
  fp8lab::cli::Action action;
  const auto add = [&](const char* name, const char* help, auto run) {
    Command* command = app.add_subcommand(name, help);
    command->callback([&action, run] { action = run; });
    return command;
  };
  add("info", "Print the device, driver and CUDA versions, or what is missing",
      [] { return run_info(); });
  const auto add_parts = [&](const char* name, const char* help, bool keeps, auto parts) {
    Command* command = add(name, help, [&options, parts, keeps] {
      if (keeps) options.check.out = options.out;
      return run_and_print(parts, options, keeps ? options.out : "");
    });
    command->add_option("--seed", options.check.seed, "seed of every stream")
        ->capture_default_str();
    command
        ->add_option("--minutes", options.minutes, "time limit; parts that did not run are listed")
        ->check(fp8lab::cli::above_zero())
        ->capture_default_str();
    command->add_flag("--in-process", options.in_process,
                      "no child processes, for debuggers and profilers");
    return command;
  };
  const auto add_out = [&](Command* command) {
    command->add_option("--out", options.out, "folder for recordings, rows that differ, table, log")
        ->capture_default_str();
  };
  add_out(add_parts("record", "Record every instruction on generated cases", true, [&] {
    return record_parts(options.out, options.check.chip, options.check.seed);
  }));
  Command* check = add_parts("cross-check", "Compare chip and emulator bit for bit", true,
                             [&] { return cross_check_parts(options.check); });
  add_check_options(check, options);
  add_out(check);
  add_parts("search", "Find the model that gives cuBLASLt's bits", false,
            [&] { return search_parts(options.check.chip, options.check.seed); });
  add_out(add_parts(
      "observe", "Write a table of how cuBLASLt sums in calls of known models", true,
      [&] { return observe_parts(options.out, options.check.chip, options.check.seed); }));
  add_parts("bench", "Measure rates and errors on the chip", false,
            [&] { return bench_parts(options.check.chip, options.check.seed); });
  add_parts("experiments",
            "Run every experiment's quick form on the chip and on the CPU, compare tables", false,
            [&] { return experiment_parts(options.check.chip, options.check.seed); });
  Command* all =
      add_parts("all", "record, cross-check, search, observe and bench, with a table at the end",
                true, [&] { return all_parts(options); });
  add_out(all);
  add_check_options(all, options);
  Command* packing = add("pack", "Put the results of a run into one archive to send",
                         [&] { return pack(options.out, options.archive); });
  packing
      ->add_option("folder", options.out, "folder of `all`, `record`, `cross-check` or `observe`")
      ->capture_default_str();
  packing->add_option("-o,--output", options.archive, "archive to write (FOLDER.tar)");
  fp8lab::cli::add_run(app, action, backends());
  fp8lab::cli::add_attn(app, action, backends());
  try {
    using fp8lab::cli::Parsed;
    const Parsed parsed =
        app.parse({std::make_reverse_iterator(argv + argc), std::make_reverse_iterator(argv + 1)});
    if (parsed != Parsed::whole) return parsed == Parsed::help ? kPass : kUsage;
    return action();
  } catch (const std::exception& error) {
    fmt::print(stderr, "fp8lab-cuda: {}\n", error.what());
    return kUsage;
  }
}
