#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "apps/bench/bench.hpp"
#include "apps/bench/ceilings.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab::cli {
namespace {

struct QuantizeOptions {
  std::vector<std::string> recipes;
  std::int64_t rows = 24576;
  std::int64_t k = 4096;
  int repetitions = 5;
  bool transpose = false;
  std::string clock = "wall";
};

/// A recipe, what it reads and writes, and how long that took.
struct Row {
  std::string name;
  TensorRole role = TensorRole::activation;
  Recipe recipe;
  double reads = 1.0;
  double bytes = 0.0;
  std::vector<double> seconds;
  std::vector<double> copy_seconds;  ///< of the copies between its rounds
};

/// How often the tensor has to come from memory: twice where the amax of all of it
/// stands before the first code, or those of whole columns do, in a transposed copy.
double reads_of(const Recipe& recipe, bool transpose) {
  const bool whole = recipe.row_block == 0 && recipe.k_block == 0;
  const bool current = recipe.source == ScaleSource::current && recipe.rule != ScaleRule::unit;
  const bool just_in_time = recipe.source == ScaleSource::ms_amp && recipe.window == 1;
  const bool columns = transpose && recipe.row_block == 1 && recipe.k_block == 0;
  return columns || (whole && (current || just_in_time)) ? 2.0 : 1.0;
}

std::vector<Row> rows_of(const QuantizeOptions& options) {
  std::vector<Row> rows;
  for (const std::string& name : options.recipes) (void)find_preset(name);
  for (const Preset& preset : presets()) {
    const bool chosen = options.recipes.empty() ||
                        std::ranges::find(options.recipes, preset.name) != options.recipes.end();
    if (!chosen) continue;
    for (const TensorRole role : {TensorRole::activation, TensorRole::weight}) {
      const Recipe& recipe = preset.recipe(role);
      const bool other = recipe.row_block != preset.activation.row_block ||
                         recipe.window != preset.activation.window;
      if (role == TensorRole::activation || other)
        rows.push_back({fmt::format("{} {}", preset.name, to_string(role)),
                        role,
                        recipe,
                        reads_of(recipe, options.transpose),
                        0.0,
                        {},
                        {}});
    }
  }
  return rows;
}

/// Normal elements; a period keeps the draws from taking longer than the measurement.
std::vector<float> make_values(std::int64_t count) {
  constexpr std::size_t kPeriod = (1 << 16) + 1;  // no multiple of a row or a tile
  const RandomStream stream(1, "bench quantize");
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i < kPeriod ? static_cast<float>(stream.normal(i)) : values[i - kPeriod];
  return values;
}

/// A quantizer that has seen what its recipe wants to see: MS-AMP's warm-up, a calibration.
Quantizer prepared(const Recipe& recipe) {
  Quantizer quantizer(recipe);
  if (recipe.source == ScaleSource::current) return quantizer;
  const std::vector<float> step = make_values(1024);
  for (int i = 0; i < 20; ++i) quantizer.observe({step, 8, 128});
  return quantizer;
}

/// Codes of `q` that are not one cast of the scaled element, every `stride`-th.
std::int64_t wrong_codes(const FloatMatrix& x, const QuantizedTensor& q, const Recipe& recipe,
                         std::int64_t stride) {
  const Format& f = format(recipe.format);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < x.rows * x.k; i += stride) {
    const auto at = static_cast<std::size_t>(i);
    const auto tile =
        static_cast<std::size_t>(i / x.k / q.row_block * q.tile_columns() + i % x.k / q.k_block);
    const float scaled =
        scaled_element(recipe.rule, x.values[at], {q.scales[tile], q.inverse_scales[tile], 0});
    wrong += q.codes[at] != encode(f, recipe.policy, scaled);
  }
  return wrong;
}

/// Tensors small enough for the scalar target, with both layouts.
bool equals_scalar(const Recipe& recipe) {
  const std::vector<float> values = make_values(256 * 1152);
  const FloatMatrix x{values, 256, 1152};
  const QuantizedTensor fast = prepared(recipe).quantize(x, true, 2);
  const QuantizedTensor slow = prepared(recipe).quantize(x, true, 1, Target::scalar);
  const auto same = [](const QuantizedTensor& a, const QuantizedTensor& b) {
    return a.codes == b.codes && a.scales == b.scales && a.inverse_scales == b.inverse_scales &&
           a.e8m0 == b.e8m0;
  };
  return same(fast, slow) && same(*fast.transposed, *slow.transposed);
}

/// Copies `values` over `scratch` in parallel.
void copy(const std::vector<float>& values, std::vector<float>& scratch, int threads) {
  const auto parts = static_cast<std::size_t>(threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = scratch.size() * part / parts;
    const std::size_t end = scratch.size() * (part + 1) / parts;
    std::memcpy(scratch.data() + begin, values.data() + begin, (end - begin) * sizeof(float));
  }
}

nlohmann::json measure(const QuantizeOptions& options, int threads) {
  require(options.rows > 0 && options.k > 0, "--rows, --k", "positive numbers",
          fmt::format("{}, {}", options.rows, options.k));
  std::vector<Row> rows = rows_of(options);
  const std::vector<float> values = make_values(options.rows * options.k);
  const FloatMatrix x{values, options.rows, options.k};
  std::vector<float> scratch(values.size() / 2);
  QuantizedTensor q;
  std::int64_t wrong = 0;
  bool equal = true;
  std::vector<double> copy_seconds;
  const auto time = [&](const std::function<void()>& work) {
    return bench::seconds_of(work, clock_named(options.clock), threads);
  };
  for (Row& row : rows) {
    fmt::print(stderr, "{} ...\n", row.name);
    equal = equal && equals_scalar(row.recipe);
    Quantizer quantizer = prepared(row.recipe);
    const auto work = [&] { quantizer.quantize_into(x, q, options.transpose, threads); };
    work();
    wrong += wrong_codes(x, q, row.recipe, 97);
    const double copies = options.transpose ? 2.0 : 1.0;
    row.bytes = static_cast<double>(values.size()) * (4.0 * row.reads + copies) +
                copies * static_cast<double>(q.scale_bytes());
    // A copy before each run: a machine whose memory others use too disturbs both alike.
    for (int round = 0; round < options.repetitions; ++round) {
      row.copy_seconds.push_back(time([&] { copy(values, scratch, threads); }));
      row.seconds.push_back(time(work));
    }
    copy_seconds.insert(copy_seconds.end(), row.copy_seconds.begin(), row.copy_seconds.end());
  }
  const bench::Timing copied = bench::summarize(copy_seconds);
  const double copy_bytes = 2.0 * static_cast<double>(scratch.size()) * sizeof(float);
  nlohmann::json result = nlohmann::json::array();
  for (const Row& row : rows) {
    const bench::Timing timing = bench::summarize(row.seconds);
    const bench::Timing between = bench::summarize(row.copy_seconds);
    result.push_back({{"recipe", row.name},
                      {"tile", {row.recipe.row_block, row.recipe.k_block}},
                      {"reads", row.reads},
                      {"gelements", static_cast<double>(values.size()) * 1e-9 / timing.median},
                      {"gbs", row.bytes * 1e-9 / timing.median},
                      {"spread", timing.spread},
                      {"copy_gbs", copy_bytes * 1e-9 / between.median},
                      {"ratio", row.bytes / timing.median * between.median / copy_bytes},
                      {"best_ratio", row.bytes / timing.best * copied.best / copy_bytes}});
  }
  return {{"rows", options.rows},
          {"k", options.k},
          {"elements", values.size()},
          {"transpose", options.transpose},
          {"repetitions", options.repetitions},
          {"clock", options.clock},
          {"copy_gbs", copy_bytes * 1e-9 / copied.median},
          {"best_copy_gbs", copy_bytes * 1e-9 / copied.best},
          {"wrong_codes", wrong},
          {"recipes", result},
          {"verified", wrong == 0 && equal}};
}

void print(const nlohmann::json& result) {
  fmt::print(
      "recipes on [{}, {}]{}, {} rounds, {} time; ratios to the copies between a row's rounds, of "
      "all "
      "{:.1f} GB/s (best {:.1f})\n{:36} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
      result["rows"].get<std::int64_t>(), result["k"].get<std::int64_t>(),
      result["transpose"].get<bool>() ? " with the transpose" : "",
      result["repetitions"].get<int>(), result["clock"].get<std::string>(),
      result["copy_gbs"].get<double>(), result["best_copy_gbs"].get<double>(), "recipe", "reads",
      "Gel/s", "GB/s", "spread", "ratio", "of best");
  for (const nlohmann::json& row : result["recipes"])
    fmt::print("{:36} {:5} {:7.2f} {:7.1f} {:6.1f}% {:7.3f} {:7.3f}\n",
               row["recipe"].get<std::string>(), row["reads"].get<double>(),
               row["gelements"].get<double>(), row["gbs"].get<double>(),
               100.0 * row["spread"].get<double>(), row["ratio"].get<double>(),
               row["best_ratio"].get<double>());
  fmt::print("verified: {}\n", result["verified"].get<bool>());
}

}  // namespace

Benchmark quantize_benchmark() {
  auto options = std::make_shared<QuantizeOptions>();
  return {
      "quantize", "Time scaling recipes and compare them with a stream copy",
      [options](Command& command) {
        command.add_option("--recipe", options->recipes, "recipes to time (default: all)");
        command.add_option("--rows", options->rows, "rows of the tensor")->capture_default_str();
        command.add_option("--k", options->k, "columns of the tensor")->capture_default_str();
        command.add_option("--repetitions", options->repetitions, "rounds")
            ->check(between(1, 1000))
            ->capture_default_str();
        add_clock(command, options->clock);
        command.add_flag("--transpose", options->transpose, "with the transposed copy");
      },
      [options](const BenchOptions& common) { return measure(*options, common.threads); }, print};
}

}  // namespace fp8lab::cli
