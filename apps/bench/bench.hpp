#pragma once
// The benchmarks that `fp8lab bench` knows: each file registers one subcommand.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/ceilings.hpp"
#include "apps/cli/parser.hpp"

namespace fp8lab::cli {

/// What every benchmark takes.
struct BenchOptions {
  bool json = false;
  int threads = 1;
  std::string out;  ///< where the result folder of each benchmark goes; empty: none is written
};

/// --clock, which says whose seconds are counted, and what its value means.
void add_clock(Command& command, std::string& clock);
bench::Clock clock_named(const std::string& clock);

/// One benchmark: runs, returns its report, whose `verified` says whether the
/// answers were right. `print` writes the report for people.
struct Benchmark {
  std::string name;
  std::string purpose;
  std::function<void(Command&)> add_options;
  std::function<nlohmann::json(const BenchOptions&)> run;
  std::function<void(const nlohmann::json&)> print;
};

Benchmark gemm_benchmark();
Benchmark cast_benchmark();
Benchmark quantize_benchmark();
Benchmark train_benchmark();

}  // namespace fp8lab::cli
