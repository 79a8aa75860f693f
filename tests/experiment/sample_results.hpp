#pragma once
// A small run with something of everything, hostile text included.

#include <filesystem>
#include <string>

#include "io/temporary.hpp"
#include "lab/experiment/result_files.hpp"

namespace fp8lab::test {

using ::TemporaryFolder;

inline Results sample_results(const RunContext& context) {
  const RandomStream random = context.random("sample");
  Table table("error", "Error <b>against</b> K", {{"k", "1", "terms & more"}, {"error", "%", "e"}});
  Plot plot{"error_plot", "Error_{x} '`against`' K", {"K", true, 2}, {"error (%)", true, 10}, {}};
  Series series{"promotion_128 & more", {}, {}, Series::Style::lines_points};
  for (const std::int64_t k : context.parameters.integers("k")) {
    const double error = random.uniform(static_cast<std::uint64_t>(k)) / static_cast<double>(k);
    table.add_row({k, error});
    series.x.push_back(static_cast<double>(k));
    series.y.push_back(error);
  }
  series.x.push_back(4.0);
  series.y.push_back(0.0);
  plot.series = {series, {"none", {1.0}, {-1.0}, Series::Style::dashed}};
  const HeatMap map{"map", "Map", "x", "y", "share (%)", {"a", "b"}, {"c"}, {0.0, 2.0}, true};
  const Headline headline{.title = "Error <falls>",
                          .sentence = "It falls from 1 % to 0.2 %.",
                          .plot = "error_plot",
                          .advice = "Take more K & wait.",
                          .measure = "error",
                          .failing = "1 %",
                          .mitigation = "more K",
                          .mitigated = "0.2 %",
                          .curves = {{"none", "without \"K\""}}};
  return {{table}, {plot}, {map}, {"Error falls like 1/K <script>alert(1)</script>"}, headline};
}

inline constexpr const char* kSampleToml = "question = \"Is it <so> & why?\"\nk = [128, 256, 512]";

inline RunRecord sample_record(const RunContext& context) {
  return {.experiment = "sample",
          .question = read_question(kSampleToml),
          .parameters = context.parameters,
          .seed = context.seed,
          .quick = false,
          .threads = context.threads,
          .command = "fp8lab run sample --seed 3 --set 'k=[128]'",
          .started = std::chrono::system_clock::from_time_t(0),
          .duration_seconds = 0.5};
}

inline WrittenRun write_sample(const std::filesystem::path& out, Plots plots, int threads = 1) {
  RunContext context{Parameters::from_toml(kSampleToml, false), 3, threads, {}};
  return write_results(sample_results(context), sample_record(context), out, plots);
}

}  // namespace fp8lab::test
