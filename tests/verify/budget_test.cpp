#include "fp8lab/verify/budget.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget_check.hpp"
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

TEST_CASE("budget: scales of a block move terms and their alignment alike", "[verify][budget]") {
  // 2^s for A and 2^-s for B change nothing, and 2^s for both is a factor of 4^s.
  RandomProduct random({.model = "sm100.tcgen05.mxf8f6f4.e4m3"}, {.shape = {2, 3, 64}});
  const auto budget = [&](int of_a, int of_b) {
    const std::vector<float> a(4, std::ldexp(1.0F, of_a));
    const std::vector<float> b(6, std::ldexp(1.0F, of_b));
    random.product.problem.scale_a = {a, 1, 32, FormatId::e8m0fnu};
    random.product.problem.scale_b = {b, 1, 32, FormatId::e8m0fnu};
    return error_budget(random.product, 1, 2);
  };
  const ErrorBudget one = budget(0, 0);
  REQUIRE(one.accumulation > 0.0);
  for (const int s : {-20, -3, 5, 20}) {
    CAPTURE(s, one.accumulation);
    for (const auto& [of_a, of_b] :
         {std::pair{s, -s}, std::pair{s, 0}, std::pair{0, s}, std::pair{s, s}}) {
      const ErrorBudget got = budget(of_a, of_b);
      CAPTURE(of_a, of_b, got.accumulation);
      CHECK(got.exact == std::ldexp(one.exact, of_a + of_b));
      CHECK(std::abs(std::ldexp(got.accumulation, -of_a - of_b) / one.accumulation - 1.0) < 1e-6);
    }
  }
}

TEST_CASE("budget: quantizing the inputs is part of it", "[verify]") {
  std::vector<float> x(4 * 128);
  const RandomStream stream(1, "budget");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  GemmOperands operands;
  operands.a.codes = operands.b.codes =
      view_of(ElementType::f32, {4, 128}, std::span<const float>(x));
  operands.recipe = "te-current";
  const Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
  double original = 0.0;
  for (std::size_t k = 0; k < 128; ++k) original += double{x[k]} * double{x[128 + k]};
  const ErrorBudget budget = error_budget(product, 0, 1);
  CHECK(budget.quantization > 0.0);
  CHECK(std::abs(original - budget.exact) <= budget.quantization);
  CHECK(within(budget, {}, std::bit_cast<std::uint32_t>(static_cast<float>(original))));
}

TEST_CASE("budget: quantizing moves each element by its own row and column", "[verify]") {
  constexpr std::int64_t kM = 3;
  constexpr std::int64_t kN = 4;
  constexpr std::int64_t kK = 96;
  const RandomStream stream(2, "budget of rows");
  std::vector<float> a(kM * kK);
  std::vector<float> b(kN * kK);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = std::ldexp(static_cast<float>(stream.normal(i)), static_cast<int>(i / kK));
  for (std::size_t i = 0; i < b.size(); ++i)
    b[i] = std::ldexp(static_cast<float>(stream.normal(1000 + i)), 3 * static_cast<int>(i / kK));
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::f32, {kM, kK}, std::span<const float>(a));
  operands.b.codes = view_of(ElementType::f32, {kN, kK}, std::span<const float>(b));
  for (const char* recipe : {"te-current", "torchao-rowwise"}) {
    operands.recipe = recipe;
    const Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
    const Preset& preset = find_preset(recipe);
    const std::vector<float> x = dequantize(quantize(preset.activation, {a, kM, kK}));
    const std::vector<float> y = dequantize(quantize(preset.weight, {b, kN, kK}));
    for (std::int64_t i = 0; i < kM; ++i)
      for (std::int64_t j = 0; j < kN; ++j) {
        double moved = 0.0;
        for (std::int64_t k = 0; k < kK; ++k) {
          const auto of_a = static_cast<std::size_t>(i * kK + k);
          const auto of_b = static_cast<std::size_t>(j * kK + k);
          moved += std::abs(double{a[of_a]} * double{b[of_b]} - double{x[of_a]} * double{y[of_b]});
        }
        const ErrorBudget budget = error_budget(product, i, j);
        INFO(recipe << " [" << i << ", " << j << "]: expected " << moved << ", got "
                    << budget.quantization);
        CHECK(std::abs(budget.quantization / moved - 1.0) < 1e-4);
      }
    // With only one of the floats nothing is known of what quantizing did.
    for (const bool of_a : {false, true}) {
      Product one = product;
      (of_a ? one.a_original : one.b_original) = nullptr;
      CHECK(error_budget(one, 1, 2).quantization == 0.0);
    }
  }
}

TEST_CASE("budget check: mismatches inside and outside are counted, those outside are named",
          "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {3, 4, 512}});
  const Product& product = random.product;
  const std::vector<std::byte> golden = golden_output(product);
  const auto with = [&](std::vector<std::byte> codes, std::int64_t at, double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    std::memcpy(codes.data() + 4 * at, &bits, sizeof(bits));
    return codes;
  };
  const auto budget = [&](std::int64_t at) { return error_budget(product, at / 4, at % 4); };
  std::vector<std::byte> got = with(golden, 10, budget(10).exact + 2.0 * budget(10).total());
  got = with(got, 1, budget(1).exact - 2.0 * budget(1).total());
  got = with(got, 6, budget(6).exact + 0.5 * budget(6).accumulation);
  const std::vector<std::int64_t> mismatches{1, 6, 10};
  std::vector<double> relative;
  for (const std::int64_t at : mismatches)
    relative.push_back(budget(at).total() / std::abs(budget(at).exact));
  std::sort(relative.begin(), relative.end());
  for (const bool decides : {false, true})
    for (const int threads : {1, 3}) {
      INFO("decides " << decides << ", threads " << threads);
      const BudgetSummary all = check_budgets(product, {golden, got}, mismatches, decides, threads);
      CHECK(all.checked == 3);
      CHECK(all.within == 1);
      CHECK(all.outside == std::vector<std::int64_t>{1, 10});
      CHECK(all.median == relative[1]);
      // The largest differences are found, whether they were given or not.
      const BudgetSummary one =
          check_budgets(product, {golden, got}, std::vector<std::int64_t>{6}, decides, threads);
      CHECK(one.checked == (decides ? 3 : 1));
      CHECK(one.within == 1);
      CHECK(one.outside ==
            (decides ? std::vector<std::int64_t>{1, 10} : std::vector<std::int64_t>{}));
      const BudgetSummary none = check_budgets(product, {golden, golden}, {}, decides, threads);
      CHECK((none.checked == 0 && none.within == 0 && none.outside.empty() && none.median == 0.0));
    }
}

TEST_CASE("budget check: among more mismatches than are looked at the farthest are found",
          "[verify]") {
  const RandomProduct random({.output = default_output(FormatId::f32)}, {.shape = {66, 66, 8}});
  const Product& product = random.product;
  const std::vector<std::byte> right = golden_output(product);
  const auto put = [](std::vector<std::byte>& codes, std::int64_t at, std::uint32_t code) {
    std::memcpy(codes.data() + 4 * at, &code, sizeof(code));
  };
  const auto value = [&](std::int64_t at) {
    return static_cast<float>(error_budget(product, at / 66, at % 66).exact);
  };
  // 4356 last bits are wrong, of which at most 4096 are looked at.
  std::vector<std::byte> near = right;
  for (std::size_t i = 0; i < near.size(); i += 4) near[i] ^= std::byte{1};
  const BudgetSummary none = check_budgets(product, {right, near}, {}, true, 1);
  CHECK(none.checked == 4096);
  CHECK(none.outside.empty());
  const std::uint32_t nan = 0x7fc00000;
  const std::uint32_t infinity = 0x7f800000;
  const std::uint32_t minus = 0x80000000;
  struct Pair {
    const char* what;
    std::optional<std::uint32_t> golden, got;
  };
  for (const Pair& pair :
       {Pair{"a NaN for a number", {}, nan}, Pair{"an infinity for a number", {}, infinity},
        Pair{"a NaN for an infinity", infinity, nan}, Pair{"an infinity for a NaN", nan, infinity},
        Pair{"the other infinity", infinity, infinity | minus}})
    for (const std::int64_t at : {0, 131, 4355}) {
      INFO(pair.what << " at " << at);
      std::vector<std::byte> golden = right;
      std::vector<std::byte> got = near;
      if (pair.golden) put(golden, at, *pair.golden);
      if (pair.got) put(got, at, *pair.got);
      CHECK(check_budgets(product, {golden, got}, {}, true, 1).outside ==
            std::vector<std::int64_t>{at});
    }
  // Finite ones far off, too.
  std::vector<std::byte> got = near;
  const std::vector<std::int64_t> far{0, 65, 66, 2178, 4289, 4355};
  for (const std::int64_t at : far)
    put(got, at, std::bit_cast<std::uint32_t>(-1.5F * value(at) + 1.0F));
  CHECK(check_budgets(product, {right, got}, {}, true, 1).outside == far);
}

TEST_CASE("budget check: a product without a budget is refused, whichever thread finds it",
          "[verify]") {
  RandomProduct random({.model = "sm100.tcgen05.mxf8f6f4.e4m3"}, {.shape = {2, 2, 64}});
  const std::vector<float> scales{1.0F, 2.0F, 3.0F, 4.0F};  // 3 is no E8M0 number
  random.product.problem.scale_a = {scales, 1, 32, FormatId::e8m0fnu};
  const std::vector<std::byte> golden(16);
  const std::vector<std::byte> got(16, std::byte{1});
  const std::vector<std::int64_t> mismatches{0, 1, 2, 3};
  CHECK_THROWS_WITH(error_budget(random.product, 0, 0), contains("scale_a: expected values of"));
  for (const bool decides : {false, true})
    for (const int threads : {1, 3})
      CHECK_THROWS_WITH(check_budgets(random.product, {golden, got}, mismatches, decides, threads),
                        contains("scale_a: expected values of"));
}

TEST_CASE("budget check: some mismatches of many are as many apart, of words of any width",
          "[verify]") {
  const auto check = [](FormatId id, std::size_t width) {
    const std::size_t size = 20000;
    const std::vector<std::byte> expected(size * width);
    for (const std::size_t every : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
      std::vector<std::byte> got = expected;
      std::vector<std::int64_t> all;
      for (std::size_t i = every - 1; i < size; i += every) {
        got[i * width + i % width] = std::byte{0x10};
        all.push_back(static_cast<std::int64_t>(i));
      }
      const std::vector<std::int64_t> some = some_mismatches(id, expected, got, all.size());
      // 20000, 10000 and 4000 mismatches: each 4th, each 2nd, all.
      const std::size_t step = every == 1 ? 4 : every == 2 ? 2 : 1;
      std::vector<std::int64_t> wanted;
      for (std::size_t i = 0; i < all.size(); i += step) wanted.push_back(all[i]);
      INFO(format(id).name << ", each " << every << "th differs");
      CHECK((some == wanted));
    }
  };
  check(FormatId::e4m3fn, 1);
  check(FormatId::bf16, 2);
  check(FormatId::f32, 4);
}

TEST_CASE("budget: special operands leave no room", "[verify]") {
  RandomProduct random({}, {.shape = {2, 2, 64}, .data = Data::normal});
  random.a[3] = 0x7f;
  CHECK(error_budget(random.product, 0, 0).special);
  CHECK_FALSE(error_budget(random.product, 1, 0).special);
}

TEST_CASE("budget: a NaN of either scale, or of the second half of a gate, leaves no room",
          "[verify]") {
  for (const bool of_a : {true, false}) {
    RandomProduct random({.model = "sm100.tcgen05.mxf8f6f4.e4m3"}, {.shape = {2, 2, 64}});
    std::vector<float> scales(4, 1.0F);
    const std::vector<float> ones(4, 1.0F);
    scales[3] = std::numeric_limits<float>::quiet_NaN();
    random.product.problem.scale_a = {of_a ? scales : ones, 1, 32, FormatId::e8m0fnu};
    random.product.problem.scale_b = {of_a ? ones : scales, 1, 32, FormatId::e8m0fnu};
    CAPTURE(of_a);
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 2; ++j)
        CHECK(error_budget(random.product, i, j).special == ((of_a ? i : j) == 1));
  }
  RandomProduct gated({}, {.shape = {2, 4, 64}});
  gated.product.epilogue.activation = Activation::swiglu;
  gated.b[3 * 64 + 5] = 0x7f;  // of the columns that are multiplied, the second
  for (std::int64_t i = 0; i < 2; ++i) {
    CHECK_FALSE(error_budget(gated.product, i, 0).special);
    CHECK(error_budget(gated.product, i, 1).special);
  }
}

TEST_CASE("budget: the output's rounding is half a step, of subnormal numbers too", "[verify]") {
  RandomProduct random({.output = default_output(FormatId::e4m3fn)}, {.shape = {1, 1, 32}});
  std::fill(random.a.begin(), random.a.end(), std::uint8_t{0});
  random.b[0] = 0x38;
  // Codes of 1, 1.5, 2^-6 (the least normal number), 2^-7, 2^-9 and 0.
  for (const auto& [code, half] : {std::pair{0x38, 0x1p-4},
                                   {0x3c, 0x1p-4},
                                   {0x08, 0x1p-10},
                                   {0x04, 0x1p-10},
                                   {0x01, 0x1p-10},
                                   {0x00, 0x1p-10}}) {
    random.a[0] = static_cast<std::uint8_t>(code);
    const ErrorBudget budget = error_budget(random.product, 0, 0);
    CAPTURE(code, budget.exact);
    CHECK(budget.rounding == half);
  }
  // Beside an exact 0 every budget is without bound.
  random.a[0] = 0;
  const std::vector<std::byte> golden = golden_output(random.product);
  const std::vector<std::byte> got(1, std::byte{0x38});
  const BudgetSummary summary =
      check_budgets(random.product, {golden, got}, std::vector<std::int64_t>{0}, false, 1);
  CHECK(summary.median == std::numeric_limits<double>::infinity());
  CHECK(summary.checked == 1);
}
