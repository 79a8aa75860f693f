// The emulated product's kernels, run on the host, against the library: indices,
// tails, promotion, scales, special values and the way back to integers.

#include "device_on_host.hpp"
#include "warp_on_host.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/gemm_e4m3_kernel.cuh"
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

enum class Way : int { one_fma, three_fmas, integers };
const char* to_string(Way way) {
  constexpr std::array kNames{"one FMA", "three FMAs", "integers"};
  return kNames.at(static_cast<std::size_t>(way));
}

template <int kTerms>
void one_fma_on_host(const GemmArguments& g, const EmulatedModel& model, dim3 tiles) {
  using Shape = E4m3Shape<kTerms>;
  device_on_host::launch(tiles, Shape::kThreads, [&] { multiply_e4m3<Shape>(g, model); });
}

bool takes_one_fma(const GemmProblem& problem) {
  const HostArguments host(problem);
  return problem.a.format == FormatId::e4m3fn && problem.b.format == FormatId::e4m3fn &&
         e4m3_kernel_takes(host.arguments(), emulated_model(problem.model));
}

/// A problem's product by a kernel, all threads on the host.
std::vector<float> on_host(const GemmProblem& problem, Way way) {
  HostArguments host(problem);
  const GemmArguments& g = host.arguments();
  const EmulatedModel model = emulated_model(problem.model);
  const TileFormats formats{emulated_format(problem.a.format), emulated_format(problem.b.format)};
  const auto tiles = [](int size, int tile) {
    return static_cast<unsigned>((size + tile - 1) / tile);
  };
  if (way == Way::one_fma) {
    const dim3 all = {tiles(g.n, E4m3Shape<32>::kColumns), tiles(g.m, E4m3Shape<32>::kRows), 1};
    if (model.terms == 16)
      one_fma_on_host<16>(g, model, all);
    else
      one_fma_on_host<32>(g, model, all);
  } else if (way == Way::three_fmas)
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
  for (const Way way : {Way::one_fma, Way::three_fmas, Way::integers}) {
    if (way == Way::one_fma && !takes_one_fma(problem)) continue;
    // Each product sees one of the two: both would take twice as long.
    static bool rounds_up = false;
    rounds_up = !rounds_up;
    device_on_host::power_sums =
        rounds_up ? device_on_host::PowerSums::rounded_up : device_on_host::PowerSums::largest;
    const std::vector<float> got = on_host(problem, way);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < outputs && shown < 3; ++i) {
      if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i]))
        continue;
      ++shown;
      INFO(what << " by " << to_string(way) << ", output " << i << std::hex << " expected "
                << std::bit_cast<std::uint32_t>(expected[i]) << " got "
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

TEST_CASE("sums of E4M3 by one FMA a product: steps, promotion, units, zeros and NaN", "[cuda]") {
  for (const char* name : {"sm90.wgmma.e4m3", "sm89.mma.e4m3"})
    for (const int interval : {0, 32, 96}) {
      // Two rows of blocks, and columns of a second block.
      RandomProblem random(find_instruction_model(name), 66, 131, 200, Distribution::normal, 8);
      std::vector<std::uint8_t> a = random.a();
      std::vector<std::uint8_t> b = random.b();
      const auto at = [](int row, int k) { return static_cast<std::size_t>(row * 200 + k); };
      for (int k = 0; k < 200; ++k) {
        a[at(1, k)] = 0x80;                               // -0 everywhere
        if (k % 64 < 32) a[at(2, k)] = 0;                 // whole steps of zeros
        a[at(3, k)] = static_cast<std::uint8_t>(k % 16);  // subnormals and the smallest normals
        b[at(3, k)] = static_cast<std::uint8_t>(0x80 + k % 8);
        a[at(4, k)] = b[at(4, k)] = 0x7e;  // the largest sums
        b[at(5, k)] = 0xfe;
        if (k > 0) a[at(5, k)] = 0x81;  // one large term, and small negative ones
      }
      a[at(65, 100)] = 0x7f;  // NaN from one step on, or until a promotion ends
      b[at(130, 10)] = 0xff;
      GemmProblem problem = random.problem();
      problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a, 66, 200);
      problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, 131, 200);
      problem.promotion_interval = interval;
      REQUIRE(takes_one_fma(problem));
      check(problem, random.outputs(), std::string(name) + " N_C " + std::to_string(interval));
    }
}

TEST_CASE("products that one FMA cannot take go another way", "[cuda]") {
  const auto takes = [](const auto& change) {
    RandomProblem random(find_instruction_model("sm90.wgmma.e4m3"), 2, 3, 64, Distribution::normal,
                         9);
    change(random);
    return takes_one_fma(random.problem());
  };
  CHECK(takes([](RandomProblem&) {}));
  CHECK_FALSE(takes([](RandomProblem& r) { r.add_c(); }));
  CHECK(takes([](RandomProblem& r) {
    r.add_c();
    r.problem().promotion_interval = 32;
  }));
  CHECK_FALSE(takes([](RandomProblem& r) { r.problem().model.output_fraction_bits = 10; }));
  CHECK_FALSE(takes([](RandomProblem& r) { r.problem().model.terms = 8; }));
  CHECK_FALSE(takes([](RandomProblem& r) { r.problem().model.alignment_fraction_bits = 25; }));
  CHECK_FALSE(takes([](RandomProblem& r) { r.problem().model.min_alignment_exponent = -11; }));
  CHECK_FALSE(
      takes([](RandomProblem& r) { r.problem().model.rounding = RoundingMode::nearest_even; }));
}

TEST_CASE("the bytes of two codes of E4M3 and a unit tell which negative products lose bits",
          "[cuda]") {
  const Format& f = format(FormatId::e4m3fn);
  for (const int bits : {8, 13, 15})
    for (int exponent = -12; exponent <= 41 + bits; ++exponent) {
      const double unit = std::ldexp(1.0, exponent - bits);
      const float accumulator = std::ldexp(1.5F, exponent + 23 - bits);
      int wrong = 0;
      for (std::uint32_t a = 0; a < 256; ++a)
        for (std::uint32_t b = 0; b < 256; ++b) {
          if ((a & 0x7f) == 0x7f || (b & 0x7f) == 0x7f) continue;
          // The other three bytes are what carries most, and least.
          const SplitCodes x(a | 0x00087800u);
          const SplitCodes y(b | 0x01007800u);
          const double units = decode(f, a) * decode(f, b) / unit;
          const bool loses = units < 0.0 && units != std::trunc(units);
          const std::uint32_t count =
              count_lost(x.low + y.low + unit_bytes(accumulator), x.sign ^ y.sign, 0);
          wrong += count != (loses ? 128u : 0u) ? 1 : 0;
        }
      INFO("F " << bits << " E " << exponent);
      CHECK(wrong == 0);
    }
}

TEST_CASE("the powers of E4M3 codes have their exponents, and the values their bits", "[cuda]") {
  const Format& f = format(FormatId::e4m3fn);
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    for (unsigned byte = 0; byte < 4; ++byte) {
      const SplitCodes split(code << (8 * byte));
      float values[4];
      e4m3_values(code << (8 * byte), values);
      CHECK(std::bit_cast<std::uint32_t>(values[byte]) ==
            std::bit_cast<std::uint32_t>(static_cast<float>(decode(f, code))));
      const std::uint32_t power = split.power[byte / 2] >> (16 * (byte % 2)) & 0xffffu;
      const int exponent = std::max<int>(unpack(f, code).exponent, f.min_exponent());
      CHECK(power ==
            ((code & 0x7f) == 0 ? 0u : static_cast<std::uint32_t>(8 * (exponent + 7) + 64) << 7));
    }
  }
}
