#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>

#include "bench.hpp"
#include "eigen_gemm.hpp"
#include "fp8lab/bench/ceilings.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::cli {
namespace {

struct Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

struct GemmOptions {
  std::vector<std::string> models{"sm90.wgmma.e4m3"};
  std::vector<std::string> shapes;
  std::string data = "normal";
  std::int64_t promotion = 0;
  int repetitions = 5;
};

const std::vector<std::string> kDefaultShapes{
    "512x1024x4096", "1024x1024x1024", "2048x2048x2048", "8192x256x1024", "256x8192x1024",
    "1x4096x4096",   "8x4096x4096",    "512x512x128",    "512x512x1024",  "512x512x16384"};

Shape parse_shape(const std::string& text) {
  Shape s;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &s.m, &s.n, &s.k, &rest) != 3 || s.m < 1 ||
      s.n < 1 || s.k < 1)
    throw Error("--shape", "MxNxK with positive numbers", "'" + text + "'");
  return s;
}

/// Random codes of 8- or 16-bit formats (TF32 in binary32 words).
std::vector<unsigned char> random_codes(const Format& f, std::int64_t count, std::string_view data,
                                        const RandomStream& stream) {
  const auto width = static_cast<std::size_t>(f.storage_bits / 8);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * width);
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    std::uint32_t code = 0;
    if (data == "wide")
      code = stream.bits32(index) % (f.max_finite_code() + 1) |
             (stream.bits32(index) >> 16 & f.sign_mask());
    else
      code = encode(f, kNvidiaSatfinite,
                    static_cast<float>(data == "uniform" ? stream.uniform(index)
                                                         : 16.0 * stream.normal(index)));
    if (f.storage_bits == 32) code <<= 23 - f.mantissa_bits;
    std::copy_n(reinterpret_cast<const unsigned char*>(&code), width,
                bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * width));
  }
  return bytes;
}

CodeMatrix view(FormatId id, const std::vector<unsigned char>& codes, std::int64_t rows,
                std::int64_t k) {
  return {id, codes.data(), rows, k, k, 1};
}

/// Outputs of `problem` that differ from the reference, among the first and
/// last rows and columns and some between.
std::int64_t count_mismatches(const GemmProblem& problem, const std::vector<float>& d) {
  const std::int64_t most = 24;
  std::int64_t mismatches = 0;
  const auto sample = [&](std::int64_t size) {
    std::vector<std::int64_t> picked;
    for (std::int64_t i = 0; i < std::min(size, most); ++i)
      picked.push_back(size <= most ? i : i * (size - 1) / (most - 1));
    return picked;
  };
  for (const std::int64_t row : sample(problem.a.rows)) {
    for (const std::int64_t column : sample(problem.b.rows)) {
      GemmProblem one = problem;
      const auto row_at = [](const CodeMatrix& m, std::int64_t r) {
        CodeMatrix single = m;
        single.rows = 1;
        single.data = static_cast<const unsigned char*>(m.data) +
                      r * m.row_stride * (format(m.format).storage_bits / 8);
        return single;
      };
      one.a = row_at(problem.a, row);
      one.b = row_at(problem.b, column);
      float expected = 0.0F;
      gemm_reference(one, {&expected, 1});
      const float got = d[static_cast<std::size_t>(row * problem.b.rows + column)];
      mismatches += std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(got);
    }
  }
  return mismatches;
}

EigenGemm eigen_gemm() {
  switch (current_target()) {
    case Target::avx512:
      return eigen_gemm_avx512;
    case Target::avx2:
      return eigen_gemm_avx2;
    default:
      return eigen_gemm_baseline;
  }
}

bench::Timing time_eigen(const Shape& s, int threads, int repetitions) {
  const std::vector<float> a(static_cast<std::size_t>(s.m * s.k), 0.5F);
  const std::vector<float> b(static_cast<std::size_t>(s.n * s.k), 2.0F);
  std::vector<float> d(static_cast<std::size_t>(s.m * s.n));
  const EigenGemm multiply = eigen_gemm();
  const bench::Timing timing = bench::time_work(
      [&] { multiply(a.data(), b.data(), d.data(), s.m, s.n, s.k, threads); }, repetitions);
  require(d.back() == static_cast<float>(s.k), "Eigen", "k ones", fmt::format("{}", d.back()));
  return timing;
}

nlohmann::json bench_one(const InstructionModel& model, const Shape& s, const GemmOptions& options,
                         int threads) {
  const auto a = random_codes(format(model.a_format), s.m * s.k, options.data, {1, "a"});
  const auto b = random_codes(format(model.b_format), s.n * s.k, options.data, {1, "b"});
  GemmProblem problem;
  problem.model = model.accumulator;
  problem.a = view(model.a_format, a, s.m, s.k);
  problem.b = view(model.b_format, b, s.n, s.k);
  problem.promotion_interval = options.promotion;
  std::vector<float> d(static_cast<std::size_t>(s.m * s.n));
  gemm(problem, d, threads);
  const std::int64_t mismatches = count_mismatches(problem, d);

  // The ceiling is measured in bursts between the runs: a shared machine changes under us.
  std::vector<double> seconds;
  std::vector<double> burst_seconds;
  double total = 0.0;
  while (static_cast<int>(seconds.size()) < options.repetitions || total < 0.3) {
    const auto start = std::chrono::steady_clock::now();
    gemm(problem, d, threads);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
    burst_seconds.push_back(1.0 / bench::measure_fma_rate(threads, seconds.back()));
  }
  const bench::Timing timing = bench::summarize(std::move(seconds));
  const bench::Timing burst = bench::summarize(std::move(burst_seconds));
  const bench::Timing eigen = time_eigen(s, threads, options.repetitions);
  const double products = static_cast<double>(s.m) * static_cast<double>(s.n * s.k);
  const double speed = products / timing.median;
  return {{"model", model.name},
          {"method", gemm_method(problem)},
          {"m", s.m},
          {"n", s.n},
          {"k", s.k},
          {"data", options.data},
          {"promotion_interval", options.promotion},
          {"mismatches", mismatches},
          {"median_seconds", timing.median},
          {"best_seconds", timing.best},
          {"spread", timing.spread},
          {"repetitions", timing.repetitions},
          {"gmacs", speed * 1e-9},
          {"fma_gmacs_between", 1e-9 / burst.median},
          {"ratio_to_fma", speed * burst.median},
          {"ratio_to_fma_best", products / timing.best * burst.best},
          {"eigen_fp32_gmacs", products / eigen.median * 1e-9}};
}

nlohmann::json run(const GemmOptions& options, const BenchOptions& common) {
  nlohmann::json rows = nlohmann::json::array();
  bool verified = true;
  for (const std::string& name : options.models) {
    const InstructionModel& model = find_instruction_model(name);
    for (const std::string& text : options.shapes.empty() ? kDefaultShapes : options.shapes) {
      const Shape shape = parse_shape(text);
      fmt::print(stderr, "{} {} ...\n", name, text);
      rows.push_back(bench_one(model, shape, options, common.threads));
      verified = verified && rows.back()["mismatches"] == 0;
    }
  }
  return {{"verified", verified}, {"rows", rows}};
}

void print(const nlohmann::json& report) {
  fmt::print("{:<22} {:>18} {:<13} {:>10} {:>7} {:>8} {:>8} {:>9} {:>6} {:>10}\n", "model",
             "m x n x k", "method", "median ms", "spread", "GMAC/s", "of FMA", "best/best", "wrong",
             "Eigen FP32");
  for (const nlohmann::json& row : report["rows"]) {
    const std::string shape =
        fmt::format("{}x{}x{}", row["m"].get<std::int64_t>(), row["n"].get<std::int64_t>(),
                    row["k"].get<std::int64_t>());
    fmt::print(
        "{:<22} {:>18} {:<13} {:>10.3f} {:>6.1f}% {:>8.2f} {:>8.3f} {:>9.3f} {:>6} {:>10.2f}\n",
        row["model"].get<std::string>(), shape, row["method"].get<std::string>(),
        row["median_seconds"].get<double>() * 1e3, row["spread"].get<double>() * 100,
        row["gmacs"].get<double>(), row["ratio_to_fma"].get<double>(),
        row["ratio_to_fma_best"].get<double>(), row["mismatches"].get<std::int64_t>(),
        row["eigen_fp32_gmacs"].get<double>());
  }
}

}  // namespace

Benchmark gemm_benchmark() {
  auto options = std::make_shared<GemmOptions>();
  return {"gemm", "Matrix products under accumulation models",
          [options](CLI::App& command) {
            command.add_option("--model", options->models, "models to time")->capture_default_str();
            command.add_option("--shape", options->shapes, "MxNxK; default: a fixed list");
            command.add_option("--data", options->data, "what the operands hold")
                ->check(CLI::IsMember({"normal", "uniform", "wide"}))
                ->capture_default_str();
            command.add_option("--promotion", options->promotion, "promotion interval, 0 for none")
                ->capture_default_str();
            command.add_option("--repetitions", options->repetitions, "at least this many runs")
                ->check(CLI::Range(1, 1000))
                ->capture_default_str();
          },
          [options](const BenchOptions& common) { return run(*options, common); }, print};
}

}  // namespace fp8lab::cli
