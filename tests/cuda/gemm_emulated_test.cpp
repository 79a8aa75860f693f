// The emulated product's kernels, run on the host, against the library: indices,
// tails, promotion, scales, special values and the way back to integers.

#include "device_on_host.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/gemm_emulated_kernel.cuh"
#pragma GCC diagnostic pop

#include <bit>
#include <string>

#include "catch.hpp"
#include "cuda/emulated_model.hpp"
#include "cuda/host_arguments.hpp"
#include "cuda/tool/random_problem.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// A problem's product by the kernel, all threads on the host.
std::vector<float> on_host(const GemmProblem& problem, bool by_fma) {
  HostArguments host(problem);
  const GemmArguments& g = host.arguments();
  const EmulatedModel model = emulated_model(problem.model);
  const TileFormats formats{emulated_format(problem.a.format), emulated_format(problem.b.format)};
  const auto tiles = [](int size, int tile) {
    return static_cast<unsigned>((size + tile - 1) / tile);
  };
  if (by_fma)
    device_on_host::launch({tiles(g.n, kTileColumns), tiles(g.m, kTileRows), 1}, kThreads,
                           [&] { multiply_by_fma(g, model, formats); });
  else
    // Fewer rows of blocks than rows where there are some: blocks go on to later rows.
    device_on_host::launch({tiles(g.n, 64), static_cast<unsigned>(g.m + 1) / 2, 1}, 64,
                           [&] { multiply_by_integers(g, model, formats); });
  return host.result();
}

void check(const GemmProblem& problem, std::size_t outputs, const std::string& what) {
  std::vector<float> expected(outputs);
  gemm(problem, expected);
  for (const bool by_fma : {true, false}) {
    const std::vector<float> got = on_host(problem, by_fma);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < outputs && shown < 3; ++i) {
      if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i]))
        continue;
      ++shown;
      INFO(what << (by_fma ? " by FMAs" : " by integers") << " output " << i << std::hex
                << " expected " << std::bit_cast<std::uint32_t>(expected[i]) << " got "
                << std::bit_cast<std::uint32_t>(got[i]));
      CHECK(false);
    }
    CHECK(shown == 0);
  }
}

}  // namespace

TEST_CASE("the emulated kernels give the library's bits for every recipe", "[cuda][slow]") {
  const auto distribution = GENERATE(Distribution::normal, Distribution::all_codes);
  for (int recipe = 0; recipe < kRecipes; ++recipe)
    for (const int interval : {0, 64, 128}) {
      const auto which = static_cast<Recipe>(recipe);
      if (which == Recipe::blockwise && interval == 0) continue;
      RandomProblem random(find_instruction_model("sm90.wgmma.e4m3"), 37, 70, 300, distribution, 5);
      random.set_recipe(which, interval, static_cast<ScaleOrder>(recipe % 3));
      if (recipe % 2 == 1) random.add_c();
      check(random.problem(), random.outputs(),
            std::string(to_string(which)) + " N_C " + std::to_string(interval));
    }
}

TEST_CASE("the emulated kernels give the library's bits for other FP8 models", "[cuda]") {
  for (const char* name : {"sm89.mma.e5m2", "sm90.wgmma.e4m3.f16", "sm90.wgmma.e5m2.e4m3"}) {
    RandomProblem random(find_instruction_model(name), 3, 140, 130, Distribution::normal, 6);
    random.add_c();
    check(random.problem(), random.outputs(), name);
  }
}

TEST_CASE("special codes and huge accumulators go by integers", "[cuda]") {
  RandomProblem random(find_instruction_model("sm90.wgmma.e5m2"), 5, 9, 96, Distribution::all_codes,
                       7);
  std::vector<std::uint8_t> a = random.a();
  a[96 + 40] = 0x7c;   // row 1: +Inf
  a[192 + 70] = 0xfe;  // row 2: NaN
  std::vector<float> c(random.outputs(), 0.0F);
  c[3 * 9] = 0x1p126F;
  c[3 * 9 + 1] = -std::numeric_limits<float>::infinity();
  c[3 * 9 + 2] = 0x1.8p-140F;
  c[3 * 9 + 3] = std::numeric_limits<float>::quiet_NaN();
  GemmProblem problem = random.problem();
  problem.a = CodeMatrix::row_major(FormatId::e5m2, a, 5, 96);
  problem.c = c.data();
  check(problem, random.outputs(), "specials");
}
