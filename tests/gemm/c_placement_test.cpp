// Where C enters a product: the instruction's own c, the promoted sum, or the epilogue.

#include "fp8lab/gemm/c_placement.hpp"

#include <bit>
#include <cmath>
#include <utility>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// A product of one element, all ones, on Hopper.
struct Ones {
  std::vector<std::uint8_t> codes;
  float c;
  GemmProblem problem;

  Ones(std::int64_t k, float start) : codes(static_cast<std::size_t>(k), 0x38), c(start) {
    problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
    problem.a = problem.b = CodeMatrix::row_major(FormatId::e4m3fn, codes, 1, k);
    problem.c = &c;
  }
  [[nodiscard]] float result(CPlacement place) {
    problem.c_enters = place;
    float d = 0.0F;
    gemm(problem, {&d, 1});
    return d;
  }
};

}  // namespace

TEST_CASE("C = 16385: the accumulator holds 14 bits of it, FP32 all", "[gemm]") {
  Ones plain(32, 16385.0F);
  const float kept = plain.result(CPlacement::unnamed);
  CHECK(kept == 16384.0F);  // units of 2: C and each 1 lose what is below
  CHECK(plain.result(CPlacement::accumulator) == kept);
  CHECK(plain.result(CPlacement::epilogue) == 16417.0F);

  // Scales of 1, or an interval that promotes once, do not change what a named place means.
  const std::vector<float> one{1.0F};
  Ones scaled(32, 16385.0F);
  scaled.problem.scale_a = {one, 1, 0};
  CHECK(scaled.result(CPlacement::accumulator) == kept);
  CHECK(scaled.result(CPlacement::epilogue) == 16417.0F);
  Ones promoted(32, 16385.0F);
  promoted.problem.promotion_interval = 32;
  CHECK(promoted.result(CPlacement::accumulator) == kept);
  CHECK(promoted.result(CPlacement::promoted_sum) == 16417.0F);
  CHECK(promoted.result(CPlacement::epilogue) == 16417.0F);
}

TEST_CASE("C with promotion or scales needs a place that they have", "[gemm]") {
  const std::vector<float> one{1.0F};
  Ones scaled(64, 1.0F);
  scaled.problem.scale_a = {one, 1, 0};
  CHECK_THROWS_WITH(scaled.result(CPlacement::unnamed),
                    contains("c_enters: expected accumulator or epilogue (with scales, the bits "
                             "depend on where C enters), got nothing"));
  CHECK_THROWS_WITH(scaled.result(CPlacement::promoted_sum), contains("without promotion"));
  scaled.problem.promotion_interval = 32;
  CHECK_THROWS_WITH(scaled.result(CPlacement::promoted_sum), contains("the whole sum"));
  Ones promoted(64, 1.0F);
  promoted.problem.promotion_interval = 32;
  CHECK_THROWS_WITH(
      promoted.result(CPlacement::unnamed),
      contains("accumulator or promoted_sum or epilogue") && contains("with promotion"));
  promoted.problem.c = nullptr;
  CHECK_NOTHROW(promoted.result(CPlacement::unnamed));
  CHECK(find_c_placement("epilogue") == CPlacement::epilogue);
  CHECK_THROWS_WITH(find_c_placement("unnamed"), contains("accumulator, promoted_sum, epilogue"));
}

TEST_CASE("C in its place, step by step", "[gemm]") {
  const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {1, 1, 300}, Data::normal,
                          Start::normal, 5);
  GemmProblem p = operands.problem;
  const std::vector<float> s_a{0.3F, 0.7F, 1.9F};
  const std::vector<float> s_b{1.1F, 0.9F, 0.6F};
  std::vector<Unpacked> a;
  std::vector<Unpacked> b;
  for (std::int64_t k = 0; k < 300; ++k) {
    a.push_back(unpack(format(p.a.format), code_at(p.a, 0, k)));
    b.push_back(unpack(format(p.b.format), code_at(p.b, 0, k)));
  }
  const auto part = [&](std::size_t from, std::size_t count, float c = 0.0F) {
    return dot_product(p.model, std::span(a).subspan(from, count),
                       std::span(b).subspan(from, count), c);
  };
  const auto result = [&](CPlacement place) {
    p.c_enters = place;
    float d = 0.0F;
    gemm_reference(p, {&d, 1});
    return bits(d);
  };
  const float c = p.c[0];
  const float p0 = part(0, 128);
  const float p1 = part(128, 128);
  const float p2 = part(256, 44);

  p.promotion_interval = 128;
  CHECK(result(CPlacement::accumulator) == bits(part(0, 128, c) + p1 + p2));
  CHECK(result(CPlacement::promoted_sum) == bits(c + p0 + p1 + p2));
  CHECK(result(CPlacement::epilogue) == bits((p0 + p1 + p2) + c));

  p.scale_a = {s_a, 1, 128};
  p.scale_b = {s_b, 1, 128};
  const auto scaled = [&](float first, float start) {
    const float one = std::fma(s_a[0] * s_b[0], first, start);
    return std::fma(s_a[2] * s_b[2], p2, std::fma(s_a[1] * s_b[1], p1, one));
  };
  CHECK(result(CPlacement::accumulator) == bits(scaled(part(0, 128, c), 0.0F)));
  CHECK(result(CPlacement::promoted_sum) == bits(scaled(p0, c)));
  CHECK(result(CPlacement::epilogue) == bits(scaled(p0, 0.0F) + c));

  p.scale_a = {std::span(s_a).first(1), 1, 0};
  p.scale_b = {};
  CHECK(result(CPlacement::accumulator) == bits(s_a[0] * (part(0, 128, c) + p1 + p2)));
  CHECK(result(CPlacement::epilogue) == bits(std::fma(s_a[0], p0 + p1 + p2, c)));
  p.promotion_interval = 0;
  CHECK(result(CPlacement::accumulator) == bits(s_a[0] * part(0, 300, c)));
  p.a.k = p.b.k = 0;
  for (const CPlacement place : {CPlacement::accumulator, CPlacement::epilogue})
    CHECK(result(place) == bits(c));
}

TEST_CASE("every place of C keeps the reference's bits on every target", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 9100;
  for (const std::string_view name : {"sm90.wgmma.e4m3", "sm100.mma.e4m3", "exact", "fp32",
                                      "sm90.mma.e4m3.f16", "sequential14.rz"})
    for (const std::int64_t k_block : {-1, 0, 64})  // no scales, of the whole sum, of tiles
      for (const std::int64_t interval : {0, 32, 64, 256})
        for (const CPlacement place :
             {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
          if (k_block > 0 && (interval == 0 || k_block % interval != 0)) continue;
          if (!share.takes_one_in(3, "places of C", ++seed)) continue;
          const Shape shape{6, 70, seed % 2 == 0 ? 224 : 96};
          Operands operands(find_instruction_model(name), shape,
                            seed % 4 < 2 ? Data::specials : Data::finite, Start::extreme, seed);
          GemmProblem& p = operands.problem;
          p.promotion_interval = interval;
          const std::int64_t tiles = k_block > 0 ? (shape.k + k_block - 1) / k_block : 1;
          const std::vector<float> s_a =
              random_c(Start::normal, shape.m * tiles, RandomStream(seed, "scale a"));
          const std::vector<float> s_b =
              random_c(Start::normal, (shape.n + 31) / 32 * tiles, RandomStream(seed, "scale b"));
          if (k_block >= 0) p.scale_a = {s_a, 1, k_block};
          if (k_block >= 0) p.scale_b = {s_b, 32, k_block};
          p.scale_order = scale_orders()[seed % scale_orders().size()];
          const std::vector<CPlacement> possible = possible_c_placements(p);
          if (std::find(possible.begin(), possible.end(), place) == possible.end()) continue;
          p.c_enters = place;
          INFO(name << " k_block " << k_block << " interval " << interval << " " << to_string(place)
                    << " " << to_string(p.scale_order) << " seed " << seed);
          check_all_targets(p);
        }
}

TEST_CASE("tensor scales multiply every scale first, wherever C enters", "[gemm]") {
  std::uint64_t seed = 9700;
  for (const std::string_view name : {"sm90.wgmma.e4m3", "sm90.mma.e4m3", "exact"})
    for (const auto& [a_block, b_block] : {std::pair{0, 0}, std::pair{64, 0}, std::pair{0, 64},
                                           std::pair{64, 32}, std::pair{128, 64}})
      for (const CPlacement place :
           {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
        ++seed;
        const Shape shape{5, 67, seed % 2 == 0 ? 200 : 96};
        Operands operands(find_instruction_model(name), shape, Data::normal, Start::normal, seed);
        GemmProblem p = operands.problem;
        p.promotion_interval = 32;
        p.scale_order = scale_orders()[seed % scale_orders().size()];
        const auto values = [&](std::int64_t rows, std::int64_t block, std::string_view stream) {
          const std::int64_t tiles = block == 0 ? 1 : (shape.k + block - 1) / block;
          return random_c(Start::normal, rows * tiles, RandomStream(seed, stream));
        };
        const std::vector<float> a = values(shape.m, a_block, "scales of a");
        const std::vector<float> b = values(shape.n, b_block, "scales of b");
        const auto times = [](std::vector<float> all, float factor) {
          for (float& x : all) x *= factor;
          return all;
        };
        const std::vector<float> a_times = times(a, 0.3F);
        const std::vector<float> b_times = times(b, 1.7F);
        p.scale_a = {a, 1, a_block, FormatId::f32, 0.3F};
        p.scale_b = {b, 1, b_block, FormatId::f32, 1.7F};
        const std::vector<CPlacement> possible = possible_c_placements(p);
        if (std::find(possible.begin(), possible.end(), place) == possible.end()) continue;
        p.c_enters = place;
        GemmProblem one_level = p;
        one_level.scale_a = {a_times, 1, a_block};
        one_level.scale_b = {b_times, 1, b_block};
        std::vector<float> expected(operands.c.size());
        gemm_reference(one_level, expected);
        INFO(name << " k_blocks " << a_block << ", " << b_block << " " << to_string(place) << " "
                  << to_string(p.scale_order) << " seed " << seed);
        std::vector<float> got(expected.size());
        gemm_reference(p, got);
        CHECK(compare(p, expected, got) == "equal");
        check_all_targets(p);
      }
}

TEST_CASE("places of C have names, and only some are possible", "[gemm]") {
  using enum CPlacement;
  for (const auto& [place, name] :
       {std::pair{accumulator, "accumulator"}, std::pair{promoted_sum, "promoted_sum"},
        std::pair{epilogue, "epilogue"}}) {
    CHECK(to_string(place) == name);
    CHECK(find_c_placement(name) == place);
  }
  CHECK(to_string(unnamed) == "unnamed");
  const std::vector<float> ones(4, 1.0F);
  Ones one(128, 1.0F);
  GemmProblem& p = one.problem;
  const std::vector<CPlacement> two{accumulator, epilogue};
  const std::vector<CPlacement> all{accumulator, promoted_sum, epilogue};
  CHECK(possible_c_placements(p) == two);
  CHECK(c_placement(p) == accumulator);
  p.scale_a = {std::span(ones).first(1), 1, 0};
  CHECK(possible_c_placements(p) == two);
  p.promotion_interval = 32;
  CHECK(possible_c_placements(p) == two);
  p.scale_b = {ones, 1, 32};  // which changes along K
  CHECK(possible_c_placements(p) == all);
  p.scale_a = p.scale_b = {};
  CHECK(possible_c_placements(p) == all);
  p.c_enters = epilogue;
  CHECK(c_placement(p) == epilogue);
  std::string orders;
  for (const ScaleOrder order : scale_orders()) {
    orders += std::string(to_string(order)) + " ";
    CHECK(find_scale_order(to_string(order)) == order);
  }
  CHECK(orders == "product_then_fma product_then_add a_then_fma_b b_then_fma_a a_then_b_then_add ");
}
