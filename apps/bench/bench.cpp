#include "apps/bench/bench.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "apps/bench/bench_results.hpp"
#include "apps/bench/ceilings.hpp"
#include "apps/bench/compare.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/option_text.hpp"
#include "apps/cli/say.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/result_files.hpp"

namespace fp8lab::cli {
namespace {

std::vector<Benchmark> benchmarks() {
  return {gemm_benchmark(), cast_benchmark(), quantize_benchmark(), train_benchmark()};
}

nlohmann::json ceilings(int threads) {
  const bench::StreamBandwidth stream = bench::measure_stream_bandwidth(threads);
  return {{"threads", threads},
          {"target", to_string(current_target())},
          {"fma_peak_gmacs", bench::measure_fma_peak(threads) * 1e-9},
          {"stream_read_gbs", stream.read * 1e-9},
          {"stream_copy_gbs", stream.copy * 1e-9}};
}

/// The folder OUT/bench-NAME, which `fp8lab report` shows and compares with another one.
void write_folder(const Benchmark& benchmark, const nlohmann::json& report,
                  const nlohmann::json& ceilings, const BenchOptions& options,
                  const std::string& command, std::chrono::system_clock::time_point started) {
  const std::chrono::duration<double> took = std::chrono::system_clock::now() - started;
  const RunRecord record{.experiment = "bench-" + benchmark.name,
                         .question = benchmark.purpose,
                         .parameters = Parameters::from_toml("", false),
                         .threads = options.threads,
                         .command = command,
                         .started = started,
                         .duration_seconds = took.count()};
  const WrittenRun run =
      write_results(bench_results(report, ceilings), record, options.out, Plots::skip);
  say(stderr, "fp8lab: {} files in {}\n", run.files.size(), run.folder.string());
}

int run(const std::vector<Benchmark>& chosen, const BenchOptions& options,
        const std::string& command) {
  for (const Benchmark& benchmark : chosen)
    if (!options.out.empty()) require_writable_results(options.out, "bench-" + benchmark.name);
  nlohmann::json report{{"ceilings", ceilings(options.threads)}};
  const nlohmann::json& c = report["ceilings"];
  if (!options.json)
    say("target {}, threads {}: FMA peak {:.1f} GMAC/s, stream read {:.1f}, copy {:.1f} GB/s\n",
        c["target"].get<std::string>(), options.threads, c["fma_peak_gmacs"].get<double>(),
        c["stream_read_gbs"].get<double>(), c["stream_copy_gbs"].get<double>());
  bool verified = true;
  for (const Benchmark& benchmark : chosen) {
    const auto started = std::chrono::system_clock::now();
    nlohmann::json result = benchmark.run(options);
    verified = verified && result["verified"].get<bool>();
    if (!options.json) benchmark.print(result);
    if (!options.out.empty())
      write_folder(benchmark, result, report["ceilings"], options, command, started);
    report[benchmark.name] = std::move(result);
  }
  if (options.json) fmt::print("{}\n", json_text(report, 2));
  return verified ? kPass : kMismatch;
}

struct CompareOptions {
  std::vector<std::string> files;
  double limit = 0.03;
  bool json = false;
};

int compare(const CompareOptions& options) {
  std::vector<BenchReport> reports;
  for (const std::string& file : options.files)
    reports.push_back({file, parse_json<nlohmann::json>(read_file(file), file)});
  const nlohmann::json compared = compare_benchmarks(reports, options.limit);
  if (options.json)
    fmt::print("{}\n", json_text(compared, 2));
  else
    fmt::print("{}", comparison_text(compared));
  if (options.files.size() / 2 < kFewestPairs) return kNoPower;
  return compared["slower"] == 0 ? kPass : kMismatch;
}

void add_compare(Command& bench, Action& action) {
  auto options = std::make_shared<CompareOptions>();
  Command* command = bench.add_subcommand(
      "compare",
      "Which rows of two builds differ beyond noise. Exit code 1: one is slower; 3: too few pairs "
      "to tell");
  command
      ->add_option("reports", options->files,
                   "what `bench NAME --json` printed, of the build before and of the one after in "
                   "turn: BEFORE AFTER BEFORE AFTER ...")
      ->required();
  command
      ->add_option("--limit", options->limit,
                   "a row is slower if it loses more than this part of its speed")
      ->check(between(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return compare(*options); }; });
}

void add_common_options(Command& command, BenchOptions& options) {
  command.add_flag("--json", options.json, "machine-readable output");
  command.add_option("--threads", options.threads, "threads to use")
      ->check(between(1, 1024))
      ->capture_default_str();
  command.add_option("--out", options.out,
                     "folder for the figures, which `fp8lab report` shows and compares");
}

}  // namespace

void add_clock(Command& command, std::string& clock) {
  command.add_option("--clock", clock, "wall, or cpu if cores are shared")
      ->check(one_of({"wall", "cpu"}))
      ->capture_default_str();
}

bench::Clock clock_named(const std::string& clock) {
  return clock == "cpu" ? bench::Clock::processor : bench::Clock::wall;
}

void add_bench(Command& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  Command* command = app.add_subcommand("bench",
                                        "Time the kernels and compare them with the limits of this "
                                        "machine, after checking their bits");
  command->require_subcommand(1);
  for (const Benchmark& benchmark : benchmarks()) {
    Command* one = command->add_subcommand(benchmark.name, benchmark.purpose);
    add_common_options(*one, *options);
    benchmark.add_options(*one);
    one->callback([benchmark, one, options, &action] {
      action = [benchmark, options, text = shell_command("fp8lab bench " + benchmark.name, *one)] {
        return run({benchmark}, *options, text);
      };
    });
  }
  Command* all = command->add_subcommand("all", "Every benchmark with its defaults");
  add_common_options(*all, *options);
  all->callback([all, options, &action] {
    action = [options, text = shell_command("fp8lab bench all", *all)] {
      return run(benchmarks(), *options, text);
    };
  });
  add_compare(*command, action);
}

}  // namespace fp8lab::cli
