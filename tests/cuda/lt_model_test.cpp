// The search for how cuBLASLt made its output, with a simulated library: what it does is planted,
// and the search names it.

#include "cuda/tool/lt_model.hpp"

#include <algorithm>

#include "catch.hpp"
#include "cuda/tool/random_problem.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

constexpr const char* kHopper = "sm90.wgmma.e4m3";
constexpr std::int64_t kK = 2176;  // no number of parts up to 16 has 128 terms each

/// A call of the simulated library, with one scale each for A and B.
struct Simulated {
  explicit Simulated(FormatId output, const char* model = kHopper,
                     Recipe recipe = Recipe::per_tensor, std::int64_t rows = 24)
      : random(find_instruction_model(model), rows, 32, kK, Distribution::normal, 7) {
    random.vary_along_k();
    random.set_recipe(recipe, 0, ScaleOrder::product_then_fma);
    product.model = model;
    product.problem = random.problem();
    product.output = default_output(output);
  }

  /// With the library's own promotion and split, in its path for whole products.
  [[nodiscard]] Product as(const LtModel& model) const {
    Product one = product;
    one.problem.promotion_interval = model.interval;
    one.problem.scale_order = model.scale_order;
    one.split = model.split;
    return one;
  }

  RandomProblem random;
  Product product;
};

float rounded(FormatId to, float value) {
  const Format& f = format(to);
  return static_cast<float>(decode(f, encode(f, default_output(to).policy, value)));
}

/// The planted candidate fits, and what fits has its interval, rounding and, for chains in each
/// part, its number of parts. A whole sum in FP32 leaves no other candidate. A narrow output hides
/// the order of scales, and few parts are often added without rounding, in whatever order.
void require_named(const Simulated& call, const std::vector<std::byte>& output,
                   const LtModel& planted) {
  const LtFinding finding = find_lt_model(call.product, output, planted.split.parts);
  INFO("planted " << to_string(planted) << ", found " << to_string(finding));
  CHECK(finding.outputs == call.product.size());
  CHECK(std::ranges::count(finding.fitting, planted) == 1);
  const LtKnown known = in_common(finding.fitting);
  if (format(call.product.output.format).storage_bits > 8)
    CHECK(known.interval == planted.interval);
  CHECK(known.rounding == planted.rounding);
  if (planted.interval == 0) CHECK(known.parts == planted.split.parts);
  if (call.product.output.format == FormatId::f32 && planted.split.parts == 1)
    CHECK(finding.fitting.size() == 1);
}

constexpr SplitK kWhole{1, 128, SplitCut::contiguous, SplitOrder::serial};

}  // namespace

TEST_CASE("chains, splits and orders that a simulated cuBLASLt has are named", "[cuda]") {
  using enum SplitCut;
  using enum SplitOrder;
  const auto output = GENERATE(FormatId::f32, FormatId::bf16);
  const auto planted = GENERATE(
      LtModel{0, kWhole, ScaleOrder::b_then_fma_a}, LtModel{128, kWhole, ScaleOrder::b_then_fma_a},
      LtModel{64, kWhole, ScaleOrder::a_then_fma_b},
      LtModel{0, {4, 128, contiguous, serial}, ScaleOrder::product_then_fma},
      LtModel{128, {6, 128, modulo, tree}, ScaleOrder::b_then_fma_a},
      LtModel{0, {5, 64, modulo, pairwise}, ScaleOrder::b_then_fma_a},
      LtModel{0, {20, 64, modulo, serial}, ScaleOrder::b_then_fma_a});
  const Simulated call(output);
  require_named(call, golden_output(call.as(planted)), planted);
}

TEST_CASE("a second rounding of a simulated cuBLASLt is named", "[cuda]") {
  const LtModel whole{128, kWhole, ScaleOrder::b_then_fma_a};
  SECTION("to BF16 or FP16 before FP8") {
    const auto [rounding, between] = GENERATE(table<LtRounding, FormatId>(
        {{LtRounding::through_bf16, FormatId::bf16}, {LtRounding::through_f16, FormatId::f16}}));
    const Simulated call(FormatId::e4m3fn, kHopper, Recipe::per_tensor, 256);
    std::vector<float> values = compute(call.as(whole));
    for (float& value : values) value = rounded(between, value);
    LtModel planted = whole;
    planted.rounding = rounding;
    require_named(call, cast_output(values, call.product.output), planted);
  }
  SECTION("before the scales") {
    const auto output = GENERATE(FormatId::bf16, FormatId::f16);
    const Simulated call(output, kHopper, Recipe::rowwise);
    Product sums = call.as(whole);
    sums.problem.a_scales = {};
    sums.problem.b_scales = {};
    std::vector<float> values = compute(sums);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = rounded(output, values[i]) * call.random.b_scales()[i % 32] *
                  call.random.a_scales()[i / 32];
    LtModel planted = whole;
    planted.rounding = LtRounding::sum_too;
    require_named(call, cast_output(values, call.product.output), planted);
  }
  SECTION("of each part") {
    const Simulated call(FormatId::bf16);
    Product half = call.as({0, kWhole});
    half.problem.a_scales = {};
    half.problem.b_scales = {};
    std::vector<float> values = compute(take_k(half, 0, kK / 2));
    const std::vector<float> second = compute(take_k(half, kK / 2, kK));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (rounded(FormatId::bf16, values[i]) + rounded(FormatId::bf16, second[i])) *
                  call.random.b_scales()[0] * call.random.a_scales()[0];
    require_named(call, cast_output(values, call.product.output),
                  {0,
                   {2, 64, SplitCut::contiguous, SplitOrder::serial},
                   ScaleOrder::b_then_fma_a,
                   LtRounding::parts_too});
  }
}

TEST_CASE("candidates of a simulated cuBLASLt that have the same bits are all named", "[cuda]") {
  // Promotion after 512 terms is the same sum as five parts of 512 terms, whose order does
  // not matter for these data.
  const Simulated call(FormatId::f32);
  const LtModel promoted{512, kWhole, ScaleOrder::b_then_fma_a};
  const LtFinding finding = find_lt_model(call.product, golden_output(call.as(promoted)));
  for (const LtModel& model : finding.fitting) UNSCOPED_INFO(to_string(model));
  CHECK(finding.fitting.size() == 4);
  CHECK(finding.fitting.front() == promoted);
  const LtKnown known = in_common(finding.fitting);
  CHECK_FALSE(known.interval);
  CHECK_FALSE(known.parts);
  CHECK(known.scale_order == ScaleOrder::b_then_fma_a);
}

TEST_CASE("what no candidate gives is said to fit none", "[cuda]") {
  const Simulated call(FormatId::bf16);
  SECTION("another accumulator") {
    const Simulated other(FormatId::bf16, "sm100.tcgen05.e4m3");
    const LtFinding finding = find_lt_model(call.product, golden_output(other.product));
    INFO(to_string(finding));
    CHECK(finding.fitting.empty());
    CHECK(finding.nearest_share < 1.0);
    CHECK(to_string(finding).starts_with("none of the "));
  }
  SECTION("one bit of one output, which the sample does not have") {
    std::vector<std::byte> output = golden_output(call.product);
    output[2 * 33] ^= std::byte{1};
    const LtFinding finding = find_lt_model(call.product, output);
    CHECK(finding.fitting.empty());
    CHECK(finding.nearest_share == 1.0);
  }
}

TEST_CASE("the search for cuBLASLt's model refuses what it does not compare", "[cuda]") {
  const Simulated call(FormatId::bf16);
  const std::vector<std::byte> output = golden_output(call.product);
  CHECK_THROWS_AS(find_lt_model(call.product, std::span(output).first(10)), Error);
  Product with_c = call.product;
  const std::vector<float> c(call.product.size());
  with_c.problem.c = c.data();
  CHECK_THROWS_AS(find_lt_model(with_c, output), Error);
  Simulated blocks(FormatId::bf16, kHopper, Recipe::rowwise);
  blocks.random.set_recipe(Recipe::blockwise, 128, ScaleOrder::product_then_fma);
  blocks.product.problem = blocks.random.problem();
  CHECK_THROWS_AS(find_lt_model(blocks.product, output), Error);
}
