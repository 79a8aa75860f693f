// Whole products: the chip through our kernel, the device's emulator and the
// library, over shapes, recipes and promotion; and the search for cuBLASLt's model.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "command.hpp"
#include "cublaslt.hpp"
#include "device_gemm.hpp"
#include "random_problem.hpp"

namespace fp8lab::cuda {
namespace {

// Twenty depths and seven faces have no common divisor: 60 shapes, all different.
constexpr std::array<int, 20> kDepths{32,  33,  64,   96,   100,  128,  160,  255,  256,  384,
                                      500, 512, 1000, 1024, 2048, 3000, 4096, 7168, 8192, 16384};
constexpr std::array<std::array<int, 2>, 7> kFaces{
    {{1, 1}, {64, 64}, {128, 128}, {17, 130}, {129, 65}, {200, 3}, {5, 260}}};
constexpr int kShapes = 60;
constexpr double kLibraryMacs = 1 << 24;  // products that the library computes too

struct Variant {
  std::string_view model;
  Distribution distribution;
};
constexpr std::array<Variant, 4> kVariants{
    {{"sm90.wgmma.e4m3", Distribution::normal},
     {"sm90.wgmma.e5m2", Distribution::all_codes},
     {"sm90.wgmma.e4m3.e5m2", Distribution::uniform_positive},
     {"sm90.wgmma.e5m2.e4m3", Distribution::all_codes}}};
constexpr std::array<std::int64_t, 4> kIntervals{128, 32, 64, 256};

/// Compares one product three ways; adds to the row.
void check_product(const RandomProblem& random, CheckRow& row, const std::string& what) {
  std::vector<float> chip(random.outputs());
  std::vector<float> emulated(random.outputs());
  const GemmProblem& p = random.problem();
  gemm_on_tensor_cores(p, chip, 0);
  gemm_emulated(p, emulated, 0);
  std::size_t wrong = count_differing(chip, emulated);
  if (static_cast<double>(p.a.rows) * static_cast<double>(p.b.rows) * static_cast<double>(p.a.k) <=
      kLibraryMacs) {
    std::vector<float> library(random.outputs());
    gemm(p, library);
    wrong = std::max({wrong, count_differing(chip, library), count_differing(emulated, library)});
  }
  row.cases += random.outputs();
  row.mismatches += wrong;
  if (wrong != 0) fmt::print("gemm {}: {} of {} outputs differ\n", what, wrong, random.outputs());
}

void check_shape(int shape, std::uint64_t seed, std::vector<CheckRow>& rows) {
  const auto at = static_cast<std::size_t>(shape);
  const int k = kDepths[at % kDepths.size()];
  const auto [m, n] = kFaces[at % kFaces.size()];
  const Variant& variant = kVariants[at / 3 % kVariants.size()];
  RandomProblem random(find_instruction_model(variant.model), m, n, k, variant.distribution,
                       seed + at);
  if (shape % 2 == 1) random.add_c();
  for (int recipe = 0; recipe < kRecipes; ++recipe)
    for (const bool promoted : {false, true}) {
      const auto which = static_cast<Recipe>(recipe);
      std::int64_t interval = promoted ? kIntervals[at % kIntervals.size()] : 0;
      if (which == Recipe::blockwise) {
        // Scales that change along K need a promotion that divides their block.
        if (!promoted && k > 128) continue;
        interval = std::min<std::int64_t>(interval, 128);
      }
      const auto order = static_cast<ScaleOrder>(shape % 3);
      random.set_recipe(which, interval, order);
      check_product(random, rows[static_cast<std::size_t>(recipe)],
                    fmt::format("{} [{},{}]x[{},{}] {} N_C {} {}", variant.model, m, k, n, k,
                                to_string(which), interval, to_string(order)));
    }
}

/// One row of the search: how cuBLASLt was asked, and its output.
struct LtRun {
  LtScales scales;
  bool fast;
};

std::vector<float> run_cublaslt(const RandomProblem& random, const LtRun& run,
                                std::string& reason) {
  const GemmProblem& p = random.problem();
  const int m = static_cast<int>(p.a.rows);
  const int n = static_cast<int>(p.b.rows);
  const int k = static_cast<int>(p.a.k);
  LtGemm lt({p.a.format, p.b.format, m, n, k, run.fast, run.scales});
  reason = lt.reason();
  if (!lt.supported()) return {};
  std::vector<float> a_scales = random.a_scales();
  std::vector<float> b_scales = random.b_scales();
  if (run.scales == LtScales::blockwise) {
    // cuBLASLt wants A's scales with rows contiguous, B's rows padded to fours.
    const std::size_t depth = static_cast<std::size_t>(k + 127) / 128;
    const std::size_t padded = (depth + 3) / 4 * 4;
    const std::size_t b_rows = b_scales.size() / depth;
    std::vector<float> b_padded(b_rows * padded);
    for (std::size_t i = 0; i < a_scales.size(); ++i)
      a_scales[i % depth * static_cast<std::size_t>(m) + i / depth] = random.a_scales()[i];
    for (std::size_t i = 0; i < b_scales.size(); ++i)
      b_padded[i / depth * padded + i % depth] = b_scales[i];
    b_scales = std::move(b_padded);
  }
  const DeviceBuffer<std::uint8_t> a{std::span<const std::uint8_t>(random.a())};
  const DeviceBuffer<std::uint8_t> b{std::span<const std::uint8_t>(random.b())};
  const DeviceBuffer<float> a_s{std::span<const float>(a_scales)};
  const DeviceBuffer<float> b_s{std::span<const float>(b_scales)};
  DeviceBuffer<float> d(random.outputs());
  d.fill(0xab);
  lt.run(a.data(), b.data(), a_s.data(), b_s.data(), d.data());
  return d.copy_out();
}

void search_one(RandomProblem& random, const LtRun& run, const std::string& what) {
  const Recipe recipe = run.scales == LtScales::per_tensor ? Recipe::per_tensor
                        : run.scales == LtScales::rowwise  ? Recipe::rowwise
                                                           : Recipe::blockwise;
  random.set_recipe(recipe, 128, ScaleOrder::product_then_fma);
  std::string reason;
  const std::vector<float> chip = run_cublaslt(random, run, reason);
  if (chip.empty()) {
    fmt::print("  {}: not offered: {}\n", what, reason);
    return;
  }
  struct Candidate {
    double rate;
    std::string name;
  };
  std::vector<Candidate> candidates;
  std::vector<float> emulated(chip.size());
  for (const std::int64_t interval : {0, 32, 64, 128, 256, 512, 1024, 2048}) {
    if (recipe == Recipe::blockwise && (interval == 0 || interval > 128)) continue;
    for (const ScaleOrder order :
         {ScaleOrder::product_then_fma, ScaleOrder::product_then_add, ScaleOrder::a_then_fma_b}) {
      random.problem().promotion_interval = interval;
      random.problem().scale_order = order;
      gemm_emulated(random.problem(), emulated, 0);
      const double rate = 1.0 - static_cast<double>(count_differing(chip, emulated)) /
                                    static_cast<double>(chip.size());
      candidates.push_back({rate, fmt::format("N_C {} {}", interval, to_string(order))});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.rate > y.rate; });
  fmt::print("  {}:", what);
  for (std::size_t i = 0; i < 3; ++i)
    fmt::print("  {:.4f} % {}{}", 100.0 * candidates[i].rate, candidates[i].name,
               i < 2 ? "," : "\n");
}

}  // namespace

std::vector<CheckRow> check_gemms(const CrossCheckOptions& options) {
  std::vector<CheckRow> rows;
  for (int recipe = 0; recipe < kRecipes; ++recipe)
    rows.push_back(
        {fmt::format("gemm {}, {} shapes", to_string(static_cast<Recipe>(recipe)), kShapes), 0, 0});
  for (int shape = 0; shape < kShapes; ++shape) check_shape(shape, options.seed, rows);
  return rows;
}

void search_cublaslt_models(std::uint64_t seed) {
  fmt::print("cuBLASLt: outputs that a model reproduces bit for bit, the three best models\n");
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e4m3");
  for (const int k : {512, 4096}) {
    RandomProblem random(model, 256, 256, k, Distribution::normal, seed);
    for (const LtScales scales : {LtScales::per_tensor, LtScales::rowwise, LtScales::blockwise})
      for (const bool fast : {false, true}) {
        constexpr const char* kNames[] = {"per-tensor", "rowwise", "1x128/128x128"};
        search_one(random, {scales, fast},
                   fmt::format("256x256x{} {}, fast accumulation {}", k,
                               kNames[static_cast<int>(scales)], fast ? "on" : "off"));
      }
  }
}

}  // namespace fp8lab::cuda
