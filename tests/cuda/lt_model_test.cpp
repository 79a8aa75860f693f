// The search for how cuBLASLt made its output, with a simulated library: what it does is planted,
// and the search names it.

#include "cuda/tool/lt_model.hpp"

#include <algorithm>

#include "catch.hpp"
#include "cuda/tool/lt_output.hpp"
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
  [[nodiscard]] Product as(const CallModel& model) const {
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
                   const CallModel& planted) {
  const LtFinding finding = find_lt_model(call.product, output, planted.split.parts);
  INFO("planted " << to_string(planted) << ", found " << to_string(finding));
  CHECK(finding.outputs == call.product.size());
  CHECK(std::ranges::count(finding.fitting, planted) == 1);
  const auto all = [&](auto of) {
    return std::ranges::all_of(finding.fitting,
                               [&](const CallModel& model) { return of(model) == of(planted); });
  };
  if (format(call.product.output.format).storage_bits > 8)
    CHECK(all([](const CallModel& model) { return model.interval; }));
  CHECK(all([](const CallModel& model) { return model.rounding; }));
  if (planted.interval == 0) CHECK(all([](const CallModel& model) { return model.split.parts; }));
  if (call.product.output.format == FormatId::f32 && planted.split.parts == 1)
    CHECK(finding.fitting.size() == 1);
}

constexpr SplitK kWhole{1, 128, SplitCut::contiguous, SplitOrder::serial};

}  // namespace

TEST_CASE("chains, splits and orders that a simulated cuBLASLt has are named", "[cuda]") {
  using enum SplitCut;
  using enum SplitOrder;
  const auto output = GENERATE(FormatId::f32, FormatId::bf16);
  const auto planted =
      GENERATE(CallModel{0, kWhole, ScaleOrder::b_then_fma_a},
               CallModel{128, kWhole, ScaleOrder::b_then_fma_a},
               CallModel{64, kWhole, ScaleOrder::a_then_fma_b},
               CallModel{0, {4, 128, contiguous, serial}, ScaleOrder::product_then_fma},
               CallModel{128, {6, 128, modulo, tree}, ScaleOrder::b_then_fma_a},
               CallModel{0, {5, 64, modulo, pairwise}, ScaleOrder::b_then_fma_a},
               CallModel{0, {20, 64, modulo, serial}, ScaleOrder::b_then_fma_a});
  const Simulated call(output);
  require_named(call, golden_output(call.as(planted)), planted);
}

TEST_CASE("a second rounding of a simulated cuBLASLt is named", "[cuda]") {
  const CallModel whole{128, kWhole, ScaleOrder::b_then_fma_a};
  SECTION("to BF16 or FP16 before FP8") {
    const auto [rounding, between] =
        GENERATE(table<CallRounding, FormatId>({{CallRounding::through_bf16, FormatId::bf16},
                                                {CallRounding::through_f16, FormatId::f16}}));
    const Simulated call(FormatId::e4m3fn, kHopper, Recipe::per_tensor, 256);
    std::vector<float> values = compute(call.as(whole));
    for (float& value : values) value = rounded(between, value);
    CallModel planted = whole;
    planted.rounding = rounding;
    require_named(call, cast_output(values, call.product.output), planted);
  }
  SECTION("before the scales") {
    const auto output = GENERATE(FormatId::bf16, FormatId::f16);
    const Simulated call(output, kHopper, Recipe::rowwise);
    Product sums = call.as(whole);
    sums.problem.scale_a = {};
    sums.problem.scale_b = {};
    std::vector<float> values = compute(sums);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = rounded(output, values[i]) * call.random.scale_b()[i % 32] *
                  call.random.scale_a()[i / 32];
    CallModel planted = whole;
    planted.rounding = CallRounding::sum_too;
    require_named(call, cast_output(values, call.product.output), planted);
  }
  SECTION("of each part") {
    const Simulated call(FormatId::bf16);
    Product half = call.as({0, kWhole});
    half.problem.scale_a = {};
    half.problem.scale_b = {};
    std::vector<float> values = compute(take_k(half, 0, kK / 2));
    const std::vector<float> second = compute(take_k(half, kK / 2, kK));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (rounded(FormatId::bf16, values[i]) + rounded(FormatId::bf16, second[i])) *
                  call.random.scale_b()[0] * call.random.scale_a()[0];
    require_named(call, cast_output(values, call.product.output),
                  {0,
                   {2, 64, SplitCut::contiguous, SplitOrder::serial},
                   ScaleOrder::b_then_fma_a,
                   CallRounding::parts_too});
  }
}

namespace {

/// The output of a planted candidate for any operands, as a device would be asked for it.
std::vector<std::byte> asked(const Product& product, const CallModel& planted) {
  return output_of(product, sum_of(product, sums_of_parts(of_candidate(product, planted)), planted),
                   planted);
}

}  // namespace

TEST_CASE("candidates that one set of operands does not tell apart are asked again",
          "[cuda][long]") {
  using enum SplitCut;
  using enum SplitOrder;
  using enum ScaleOrder;
  using enum CallRounding;
  const auto output = GENERATE(FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn);
  const bool wide = format(output).storage_bits > 8;
  const auto planted = GENERATE(
      CallModel{512, kWhole, b_then_fma_a}, CallModel{0, {5, 128, contiguous, tree}, b_then_fma_a},
      CallModel{0, {5, 128, contiguous, pairwise}, product_then_fma},
      CallModel{128, {3, 128, contiguous, serial}, a_then_fma_b},
      CallModel{128, {6, 128, modulo, tree}, product_then_fma},
      CallModel{0, {4, 64, modulo, pairwise}, b_then_fma_a},
      CallModel{0, {3, 128, contiguous, serial}, b_then_fma_a, parts_too});
  if (planted.rounding == parts_too && (!wide || output == FormatId::f32)) {
    SUCCEED("such an output has no rounding of parts");
    return;
  }
  const Simulated call(output, kHopper, Recipe::per_tensor, 8);
  const std::vector<std::byte> first = asked(call.product, planted);
  LtFinding finding = find_lt_model(call.product, first, planted.split.parts);
  const std::size_t before = finding.fitting.size();
  int calls = 0;
  separate(
      finding, call.product,
      [&](const Product& other) {
        ++calls;
        return asked(other, planted);
      },
      3);
  std::string left;
  for (const CallModel& model : finding.fitting) left += "\n  " + to_string(model);
  INFO("planted " << to_string(planted) << " to " << format(output).name << ", " << before
                  << " before, " << calls << " calls, left:" << left);
  CHECK(before > 1);
  CHECK(finding.fitting == std::vector{planted});
}

TEST_CASE("a library that is none of the candidates after all fits none", "[cuda]") {
  // Its first output is that of a candidate, its second one of another unit.
  const Simulated call(FormatId::bf16);
  LtFinding finding = find_lt_model(call.product, asked(call.product, {512, kWhole}));
  REQUIRE(finding.fitting.size() > 1);
  separate(
      finding, call.product,
      [&](const Product& other) {
        Product narrower = other;
        narrower.problem.model.alignment_fraction_bits -= 1;
        return asked(narrower, {512, kWhole});
      },
      3);
  CHECK(finding.fitting.empty());
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
