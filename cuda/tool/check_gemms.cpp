// Whole products: the chip through our kernel, the device's emulator and the
// library, over shapes, recipes and promotion.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "command.hpp"
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
constexpr std::array<Variant, 5> kVariants{
    {{"sm90.wgmma.e4m3", Distribution::normal},
     {"sm90.wgmma.e5m2", Distribution::all_codes},
     {"sm90.wgmma.bf16", Distribution::lognormal},
     {"sm90.wgmma.e4m3.e5m2", Distribution::uniform_positive},
     {"sm90.wgmma.e5m2.e4m3", Distribution::all_codes}}};
constexpr std::array<std::int64_t, 4> kIntervals{128, 32, 64, 256};

/// Compares one product three ways, or without tensor cores two; adds to the row.
void check_product(const RandomProblem& random, bool tensor_cores, CheckRow& row,
                   const std::string& what) {
  std::vector<float> chip(random.outputs());
  std::vector<float> emulated(random.outputs());
  const GemmProblem& p = random.problem();
  gemm_emulated(p, emulated, 0);
  if (tensor_cores)
    gemm_on_tensor_cores(p, chip, 0);
  else
    chip = emulated;
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

void check_shape(int shape, Recipe recipe, const CrossCheckOptions& options, CheckRow& row) {
  const auto at = static_cast<std::size_t>(shape);
  const int k = kDepths[at % kDepths.size()];
  const auto [m, n] = kFaces[at % kFaces.size()];
  const Variant& variant = kVariants[at / 3 % kVariants.size()];
  RandomProblem random(find_instruction_model(variant.model), m, n, k, variant.distribution,
                       options.seed + at);
  if (shape % 2 == 1) random.add_c();
  for (const bool promoted : {false, true}) {
    std::int64_t interval = promoted ? kIntervals[at % kIntervals.size()] : 0;
    if (recipe == Recipe::blockwise) {
      // Scales that change along K need a promotion that divides their block.
      if (!promoted && k > 128) continue;
      interval = std::min<std::int64_t>(interval, 128);
    }
    // Each depth meets three of the orders, and all orders occur.
    const auto orders = scale_orders();
    const ScaleOrder order = orders[(at + at / kDepths.size()) % orders.size()];
    random.set_recipe(recipe, interval, order);
    check_product(random, options.chip.capability == 90, row,
                  fmt::format("{} [{},{}]x[{},{}] {} N_C {} {}", variant.model, m, k, n, k,
                              to_string(recipe), interval, to_string(order)));
  }
}

}  // namespace

std::vector<Part> gemm_parts(const CrossCheckOptions& options) {
  std::vector<Part> parts;
  for (int recipe = 0; recipe < kRecipes; ++recipe) {
    const auto which = static_cast<Recipe>(recipe);
    const std::string name =
        fmt::format("gemm {}, {} shapes{}", to_string(which), kShapes,
                    options.chip.capability == 90 ? "" : ", without tensor cores");
    parts.push_back({name, [which, name, options] {
                       CheckRow row{name, 0, 0};
                       for (int shape = 0; shape < kShapes; ++shape)
                         check_shape(shape, which, options, row);
                       return std::vector<CheckRow>{std::move(row)};
                     }});
  }
  return parts;
}

}  // namespace fp8lab::cuda
