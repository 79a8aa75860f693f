#include "fp8lab/verify/budget.hpp"

#include "catch.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("budget: every FP8 model's own output lies within it", "[verify]") {
  const std::vector<RandomProduct::Options> kinds{
      {.shape = {6, 5, 300}},
      {.shape = {6, 5, 300}, .data = Data::positive, .with_c = true},
      {.shape = {6, 5, 300}, .data = Data::wide},
      {.shape = {6, 5, 512}, .tiles_a = {6}, .tiles_b = {5}, .with_c = true}};
  int ordinary = 0;
  for (const InstructionModel& model : instruction_models()) {
    // Files have no type of E2M1.
    if (format(model.a_format).storage_bits != 8 || model.a_format == FormatId::e2m1) continue;
    for (const std::int64_t promotion : {0, 128})
      for (const FormatId output : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn})
        for (const RandomProduct::Options& options : kinds) {
          const RandomProduct random({.model = std::string(model.name),
                                      .promotion_interval = promotion,
                                      .output = default_output(output)},
                                     options);
          const std::vector<std::byte> golden = golden_output(random.product);
          for (std::int64_t i = 0; i < 6; ++i)
            for (std::int64_t j = 0; j < 5; ++j) {
              const ErrorBudget budget = error_budget(random.product, i, j);
              const std::uint32_t code =
                  code_at(output, golden, static_cast<std::size_t>(i * 5 + j));
              INFO(model.name << " promotion " << promotion << " output " << format(output).name
                              << " exact " << budget.exact << " total " << budget.total() << " got "
                              << decode(format(output), code));
              CHECK((budget.special || within(budget, random.product.output, code)));
              ordinary += budget.special ? 0 : 1;
            }
        }
  }
  CHECK(ordinary > 8000);
}

TEST_CASE("budget: it is about as wide as the accumulator's errors", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {4, 4, 512}});
  const ErrorBudget narrow = error_budget(random.product, 1, 2);
  Product unpromoted = random.product;
  unpromoted.problem.promotion_interval = 0;
  Product exact = random.product;
  exact.problem.model = find_instruction_model("exact").accumulator;
  CHECK(narrow.exact == error_budget(exact, 1, 2).exact);
  CHECK(narrow.accumulation > 100.0 * error_budget(exact, 1, 2).accumulation);
  CHECK(error_budget(unpromoted, 1, 2).accumulation > narrow.accumulation);
  // A step of 32 products near 1 loses at most 33 units of 2^-13 of the largest.
  CHECK(narrow.accumulation < 16 * 33 * 0x1p-13 * 64.0);
  const auto code = [](double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); };
  CHECK(within(narrow, {}, code(narrow.exact)));
  CHECK(within(narrow, {}, code(narrow.exact + 0.99 * narrow.accumulation)));
  CHECK_FALSE(within(narrow, {}, code(narrow.exact + 1.01 * narrow.accumulation)));
  CHECK_FALSE(within(narrow, {}, code(narrow.exact - 1.01 * narrow.accumulation)));
  CHECK_FALSE(within(narrow, {}, 0x7fc00000u));
}

TEST_CASE("budget: by halves a sum can lose nearly all that it allows", "[verify]") {
  // One product of 2^16 and, in its half, fifteen just below two units of 2^(16 - 25).
  RandomProduct random({.model = "sm100.mma.e4m3"}, {.shape = {1, 1, 32}});
  std::fill(random.a.begin(), random.a.end(), std::uint8_t{0});
  for (std::size_t k = 0; k < 32; ++k)
    if (k % 4 < 2) random.a[k] = 0x07;                              // 7 * 2^-9
  std::fill(random.b.begin(), random.b.end(), std::uint8_t{0x29});  // 1.125 * 2^-2
  random.a[0] = 0x78;
  random.b[0] = 0x78;
  // Without the large product's own bits the loss of the others stays to be seen.
  std::vector<float> c{-65536.0F};
  random.product.problem.c = c.data();
  const ErrorBudget budget = error_budget(random.product, 0, 0);
  const double got = compute(random.product)[0];
  const double exact = 15 * 7 * 0x1p-9 * 1.125 * 0x1p-2;
  CHECK(budget.exact == exact);
  CHECK(exact - got <= budget.accumulation);
  CHECK(budget.accumulation < 1.6 * (exact - got));
  CHECK(within(budget, {}, std::bit_cast<std::uint32_t>(static_cast<float>(got))));
}

TEST_CASE("budget: a unit that reads subnormal operands as zero may lose their products",
          "[verify][budget]") {
  RandomProduct random({}, {.shape = {1, 1, 4}});
  random.product.problem.model = find_instruction_model("gfx90a.mfma.f16").accumulator;
  std::fill(random.a.begin(), random.a.end(), std::uint8_t{0});
  for (const bool small_a : {false, true})
    for (const bool small_b : {false, true}) {
      random.a[0] = small_a ? 0x07 : 0x08;  // 7 * 2^-9, or 2^-6, the smallest normal number
      random.b[0] = small_b ? 0x07 : 0x08;
      const double exact = (small_a ? 7 * 0x1p-9 : 0x1p-6) * (small_b ? 7 * 0x1p-9 : 0x1p-6);
      const ErrorBudget budget = error_budget(random.product, 0, 0);
      INFO("subnormal: A " << small_a << ", B " << small_b << ", budget " << budget.accumulation);
      CHECK(budget.exact == exact);
      CHECK(within(budget, {}, 0) == (small_a || small_b));
      CHECK(within(budget, {}, std::bit_cast<std::uint32_t>(static_cast<float>(exact))));
    }
}

TEST_CASE("budget: quantizing the inputs is part of it", "[verify]") {
  std::vector<float> x(4 * 128);
  const RandomStream stream(1, "budget");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  GemmOperands operands;
  operands.a = operands.b = view_of(ElementType::f32, {4, 128}, std::span<const float>(x));
  operands.recipe = "te-current";
  const Product product = make_product(operands, {});
  double original = 0.0;
  for (std::size_t k = 0; k < 128; ++k) original += double{x[k]} * double{x[128 + k]};
  const ErrorBudget budget = error_budget(product, 0, 1);
  CHECK(budget.quantization > 0.0);
  CHECK(std::abs(original - budget.exact) <= budget.quantization);
  CHECK(within(budget, {}, std::bit_cast<std::uint32_t>(static_cast<float>(original))));
}

TEST_CASE("budget: special operands leave no room", "[verify]") {
  RandomProduct random({}, {.shape = {2, 2, 64}, .data = Data::normal});
  random.a[3] = 0x7f;
  CHECK(error_budget(random.product, 0, 0).special);
  CHECK_FALSE(error_budget(random.product, 1, 0).special);
}
