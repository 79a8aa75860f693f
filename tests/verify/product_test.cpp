#include "fp8lab/verify/product.hpp"

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/verify/variants.hpp"
#include "verify/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

const std::vector<RandomProduct::Options>& kinds() {
  static const std::vector<RandomProduct::Options> kKinds{
      {},
      {.with_c = true},
      {.tiles_a = {24}, .tiles_b = {1}},
      {.tiles_a = {24, 4}, .tiles_b = {1, 4}, .with_c = true},
      {.tiles_a = {24, 4}, .tiles_b = {20, 4}}};
  return kKinds;
}

}  // namespace

TEST_CASE("product: a sample has the bits of the whole", "[verify]") {
  for (const RandomProduct::Options& options : kinds()) {
    const RandomProduct random({.promotion_interval = 128}, options);
    const std::vector<float> whole = compute(random.product);
    const Sample sample{{0, 7, 23}, {1, 2, 19}};
    const std::vector<float> part = compute(take(random.product, sample));
    for (std::size_t i = 0; i < 9; ++i) {
      const auto at = static_cast<std::size_t>(sample.rows[i / 3] * 20 + sample.columns[i % 3]);
      CHECK(std::bit_cast<std::uint32_t>(part[i]) == std::bit_cast<std::uint32_t>(whole[at]));
    }
  }
}

TEST_CASE("product: one part of a split sum is the sum itself", "[verify]") {
  for (const RandomProduct::Options& options : kinds()) {
    const RandomProduct random({.promotion_interval = 128}, options);
    const GemmProblem& p = random.product.problem;
    const std::vector<float> whole = compute(take_k(random.product, 0, 512));
    Product no_c = random.product;
    no_c.problem.c = nullptr;
    CHECK(compare(p, compute(no_c), whole) == "equal");
    const std::vector<float> halves = *compute_split_k(random.product, 2);
    const std::vector<float> golden = compute(random.product);
    for (std::size_t i = 0; i < halves.size(); ++i) CHECK(std::abs(halves[i] - golden[i]) < 1e-2F);
  }
}

TEST_CASE("product: without promotion, two halves are two accumulators", "[verify]") {
  const RandomProduct random({}, {});
  Product promoted = random.product;
  promoted.problem.promotion_interval = 256;
  const std::vector<float> halves = *compute_split_k(random.product, 2);
  CHECK(compare(promoted.problem, compute(promoted), halves) == "equal");
  CHECK(compare(promoted.problem, compute(random.product), halves) != "equal");
}

TEST_CASE("product: a missing promotion is two intervals in one accumulator", "[verify]") {
  // With 256 terms and promotion every 128, that is the product without promotion.
  const RandomProduct random({.promotion_interval = 128}, {.shape = {16, 16, 256}});
  Product unpromoted = random.product;
  unpromoted.problem.promotion_interval = 0;
  CHECK(compare(random.product.problem, compute(unpromoted),
                *compute_missing_promotion(random.product)) == "equal");
  // Beyond the second interval everything is promoted as before.
  const RandomProduct longer({.promotion_interval = 128},
                             {.shape = {16, 16, 512}, .tiles_a = {16, 4}, .tiles_b = {1, 4}});
  const std::vector<float> missing = *compute_missing_promotion(longer.product);
  const std::vector<float> golden = compute(longer.product);
  CHECK(compare(longer.product.problem, golden, missing) != "equal");
  CHECK_FALSE(compute_missing_promotion(take_k(longer.product, 0, 128)));
}

TEST_CASE("product: operands that do not fit are refused with the way out", "[verify]") {
  const std::vector<std::uint8_t> codes(64 * 32, 0x38);
  const std::vector<float> floats(64 * 32, 1.0F);
  const auto matrix = [&](ElementType type, std::int64_t rows, std::int64_t k) {
    if (type == ElementType::f32)
      return view_of(type, {rows, k},
                     std::span<const float>(floats).first(static_cast<std::size_t>(rows * k)));
    return view_of(type, {rows, k},
                   std::span<const std::uint8_t>(codes).first(static_cast<std::size_t>(rows * k)));
  };
  const auto message = [](const GemmOperands& operands, const GemmSpec& spec = {}) -> std::string {
    try {
      (void)make_product(operands, spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const ElementType e4m3fn = ElementType::e4m3fn;
  const TensorView a = matrix(e4m3fn, 32, 64);
  CHECK(message({.a = a, .b = a}) == "accepted");
  CHECK(message({.a = a, .b = matrix(e4m3fn, 64, 32), .transpose_b = true}) == "accepted");
  CHECK_THAT(message({.a = a, .b = matrix(e4m3fn, 64, 32)}), contains("give --transpose-b"));
  CHECK_THAT(message({.a = matrix(ElementType::u8, 32, 64), .b = a}), contains("--dtype e4m3fn"));
  CHECK_THAT(message({.a = matrix(ElementType::f32, 32, 64), .b = a}), contains("--recipe"));
  CHECK_THAT(message({.a = matrix(ElementType::e5m2, 32, 64), .b = a}), contains("e4m3fn for"));
  const TensorView fnuz = matrix(ElementType::e4m3fnuz, 32, 64);
  CHECK_THAT(message({.a = fnuz, .b = fnuz}), contains("no registered instruction reads them"));
  CHECK(message({.a = fnuz, .b = fnuz}, {.model = "exact"}) == "accepted");
  const OutputCast fnuz_output = default_output(FormatId::e4m3fnuz);
  CHECK_THAT(message({.a = a, .b = a}, {.output = fnuz_output}), contains("FNUZ is AMD's"));
  CHECK(message({.a = a, .b = a}, {.model = "fp32", .output = fnuz_output}) == "accepted");
  CHECK_THAT(message({.a = a, .b = a, .recipe = "te-current"}), contains("floats"));
  CHECK_THAT(
      message({.a = a,
               .b = a,
               .scale_a = view_of(ElementType::f32, {5}, std::span<const float>(floats).first(5))}),
      contains("scale_a: rows"));
  CHECK_THAT(message({.a = a, .b = a, .c = matrix(ElementType::f32, 32, 64)}),
             contains("[m, n] = [32, 32]"));
  CHECK_THAT(message({.a = a, .b = a}, {.promotion_interval = 100}), contains("multiple"));
  const TensorView f = matrix(ElementType::f32, 32, 64);
  CHECK_THAT(message({.a = f, .b = f, .recipe = "te-current"}, {.model = "sm90.wgmma.e5m2"}),
             contains("e5m2"));
  CHECK_THROWS_WITH(default_output(FormatId::e8m0fnu), contains("e8m0fnu"));
}
