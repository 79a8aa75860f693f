#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "apps/bench/bench.hpp"
#include "apps/bench/ceilings.hpp"
#include "apps/bench/gemm_case.hpp"
#include "apps/cli/say.hpp"

namespace fp8lab::cli {
namespace {

struct GemmOptions {
  std::vector<std::string> models{"sm90.wgmma.e4m3"};
  std::vector<std::string> shapes;
  std::string data = "normal";
  std::int64_t promotion = 0;
  int repetitions = 5;
  bool no_scaling = false;
  std::string clock = "wall";

  [[nodiscard]] bench::Clock of_times() const { return clock_named(clock); }
};

// What a small training step calls: forward, input and weight gradients of three layers, one
// after the other.
constexpr const char* kTrainingStep =
    "256x512x128+256x128x512+128x512x256+256x1024x512+256x512x1024+512x1024x256+"
    "256x128x1024+256x1024x128+1024x128x256";

const std::vector<std::string> kDefaultShapes{"512x1024x4096", "1024x1024x1024", "2048x2048x2048",
                                              "8192x256x1024", "256x8192x1024",  "1x4096x4096",
                                              "8x4096x4096",   "512x512x128",    "512x512x1024",
                                              "512x512x16384", "128x128x128",    kTrainingStep};

/// Of all models one shape is timed unless more are named.
const std::vector<std::string> kShapeOfAllModels{"512x1024x1024"};

/// Times of the products and, as the machine changes under us, of yardsticks in
/// between: FMA bursts that take about as long, and Eigen.
struct Times {
  std::vector<double> gemm;
  std::vector<double> per_fma;  ///< seconds a product at the FMA units' speed
};

Times time_beside_ceiling(const std::function<void()>& work, int threads,
                          const GemmOptions& options) {
  constexpr double kSeconds = 0.3;
  Times times;
  double total = 0.0;
  while (static_cast<int>(times.gemm.size()) < options.repetitions || total < kSeconds) {
    times.gemm.push_back(bench::seconds_of(work, options.of_times(), threads));
    total += times.gemm.back();
    times.per_fma.push_back(
        1.0 / bench::measure_fma_rate(threads, times.gemm.back(), options.of_times()));
  }
  return times;
}

/// How much two threads gain on one, and how much the FMA units' two threads do:
/// medians of ratios of runs that follow each other. Each follows an untimed one of its kind, since
/// one and two threads keep buffers of other sizes and displace each other's.
nlohmann::json measure_scaling(const std::function<void(int)>& work, int repetitions) {
  std::vector<double> gemm_ratios;
  std::vector<double> fma_ratios;
  for (int i = 0; i < std::max(repetitions, 5); ++i) {
    const auto seconds_with = [&](int threads) {
      work(threads);
      return bench::seconds_of([&] { work(threads); });
    };
    const double one = seconds_with(1);
    const double two = seconds_with(2);
    gemm_ratios.push_back(one / two);
    const double rate = bench::measure_fma_rate(1, one);
    fma_ratios.push_back(bench::measure_fma_rate(2, two) / rate);
  }
  const bench::Timing gemm = bench::summarize(std::move(gemm_ratios));
  const bench::Timing fma = bench::summarize(std::move(fma_ratios));
  return {{"two_thread_speedup", gemm.median},
          {"two_thread_speedup_spread", gemm.spread},
          {"fma_two_thread_speedup", fma.median},
          {"fma_two_thread_speedup_spread", fma.spread}};
}

nlohmann::json bench_one(const InstructionModel& model, const std::string& text,
                         const GemmOptions& options, const BenchOptions& common,
                         double stream_read) {
  const std::vector<Shape> shapes = parse_shapes(text);
  std::vector<GemmCase> cases;
  std::vector<EigenCase> eigen_cases;
  double products = 0.0;
  double b_bytes = 0.0;
  std::int64_t mismatches = 0;
  std::string_view method;  // of the first product
  for (const Shape& s : shapes) {
    GemmCase& one = cases.emplace_back(model, s, options.data, options.promotion);
    const std::string_view ran = one.run(common.threads);
    if (cases.size() == 1) method = ran;
    mismatches += one.mismatches();
    eigen_cases.emplace_back(s);
    products += s.products();
    const std::int64_t code_bytes = format(model.b_format).bytes();
    b_bytes += static_cast<double>(s.n * s.k * code_bytes);
  }
  const auto run_all = [&](int threads) {
    for (GemmCase& one : cases) one.run(threads);
  };
  Times times = time_beside_ceiling([&] { run_all(common.threads); }, common.threads, options);
  const bench::Timing timing = bench::summarize(std::move(times.gemm));
  const bench::Timing fma = bench::summarize(std::move(times.per_fma));
  const bench::Timing eigen = bench::time_work(
      [&] {
        for (EigenCase& one : eigen_cases) one.run(common.threads);
      },
      options.repetitions, 0.3, options.of_times(), common.threads);
  for (const EigenCase& one : eigen_cases) one.check();
  nlohmann::json row{{"model", model.name},
                     {"method", method},
                     {"shape", text},
                     {"data", options.data},
                     {"promotion_interval", options.promotion},
                     {"mismatches", mismatches},
                     {"median_seconds", timing.median},
                     {"best_seconds", timing.best},
                     {"spread", timing.spread},
                     {"repetitions", timing.repetitions},
                     {"gmacs", products / timing.median * 1e-9},
                     {"fma_gmacs_between", 1e-9 / fma.median},
                     {"ratio_to_fma", products / timing.median * fma.median},
                     {"ratio_to_fma_best", products / timing.best * fma.best},
                     {"b_gbs", b_bytes / timing.median * 1e-9},
                     {"b_ratio_to_stream_read", b_bytes / timing.median / stream_read},
                     {"reference_gmacs", cases.front().reference_rate() * 1e-9},
                     {"eigen_fp32_gmacs", products / eigen.median * 1e-9}};
  if (!options.no_scaling) row.update(measure_scaling(run_all, options.repetitions));
  return row;
}

nlohmann::json run(const GemmOptions& given, const BenchOptions& common) {
  GemmOptions options = given;
  if (options.models == std::vector<std::string>{"all"}) {
    options.models.clear();
    for (const InstructionModel& model : instruction_models())
      options.models.emplace_back(model.name);
    if (options.shapes.empty()) options.shapes = kShapeOfAllModels;
  }
  for (const std::string& name : options.models) find_instruction_model(name);
  for (const std::string& text : options.shapes) (void)parse_shapes(text);
  nlohmann::json rows = nlohmann::json::array();
  bool verified = true;
  const double stream_read =
      bench::measure_stream_bandwidth(common.threads, std::size_t{256} << 20, options.of_times())
          .read;
  for (const std::string& name : options.models) {
    const InstructionModel& model = find_instruction_model(name);
    for (const std::string& text : options.shapes.empty() ? kDefaultShapes : options.shapes) {
      say(stderr, "{} {} ...\n", name, text);
      rows.push_back(bench_one(model, text, options, common, stream_read));
      verified = verified && rows.back()["mismatches"] == 0;
    }
  }
  return {{"verified", verified},
          {"clock", options.clock},
          {"stream_read_gbs", stream_read * 1e-9},
          {"rows", rows}};
}

/// A sequence of shapes by its length.
std::string short_name(const std::string& text) {
  const auto more = std::ranges::count(text, '+');
  return more == 0 ? text : fmt::format("{} products", more + 1);
}

void print(const nlohmann::json& report) {
  fmt::print("{:<32} {:>15} {:<13} {:>9} {:>6} {:>7} {:>6} {:>6} {:>7} {:>9} {:>6} {:>9} {:>11}\n",
             "model", "m x n x k", "method", "median ms", "spread", "GMAC/s", "of FMA", "best",
             "B GB/s", "of stream", "Eigen", "reference", "wrong");
  for (const nlohmann::json& row : report["rows"]) {
    fmt::print(
        "{:<32} {:>15} {:<13} {:>9.3f} {:>5.1f}% {:>7.2f} {:>6.3f} {:>6.3f} {:>7.2f} {:>9.3f} "
        "{:>6.2f} {:>9.4f} {:>11}\n",
        row["model"].get<std::string>(), short_name(row["shape"].get<std::string>()),
        row["method"].get<std::string>(), row["median_seconds"].get<double>() * 1e3,
        row["spread"].get<double>() * 100, row["gmacs"].get<double>(),
        row["ratio_to_fma"].get<double>(), row["ratio_to_fma_best"].get<double>(),
        row["b_gbs"].get<double>(), row["b_ratio_to_stream_read"].get<double>(),
        row["eigen_fp32_gmacs"].get<double>(), row["reference_gmacs"].get<double>(),
        row["mismatches"].get<std::int64_t>());
    if (row.contains("two_thread_speedup"))
      fmt::print(
          "{:>35} speedup with two threads {:.2f} (spread {:.0f} %), of the FMA units {:.2f} "
          "({:.0f} %)\n",
          "", row["two_thread_speedup"].get<double>(),
          row["two_thread_speedup_spread"].get<double>() * 100,
          row["fma_two_thread_speedup"].get<double>(),
          row["fma_two_thread_speedup_spread"].get<double>() * 100);
  }
}

}  // namespace

Benchmark gemm_benchmark() {
  auto options = std::make_shared<GemmOptions>();
  return {
      "gemm", "Time matrix products under accumulation models",
      [options](Command& command) {
        command
            .add_option("--model", options->models,
                        "models to time, or all: every one, on one shape unless --shape is given")
            ->capture_default_str();
        command.add_option("--shape", options->shapes,
                           "MxNxK, or several joined by + and timed as one; default: a fixed list");
        command.add_option("--data", options->data, "format of the operands")
            ->check(one_of({"normal", "uniform", "wide"}))
            ->capture_default_str();
        command.add_option("--promotion", options->promotion, "promotion interval; 0: none")
            ->capture_default_str();
        command.add_option("--repetitions", options->repetitions, "at least this many runs")
            ->check(between(1, 1000))
            ->capture_default_str();
        add_clock(command, options->clock);
        command.add_flag("--no-scaling", options->no_scaling,
                         "do not compare two threads with one");
      },
      [options](const BenchOptions& common) { return run(*options, common); }, print};
}

}  // namespace fp8lab::cli
