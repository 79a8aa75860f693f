#include "fp8lab/verify/explain.hpp"

#include <bit>

#include "catch.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("explain: a budget's diagnosis looks at what is outside of it", "[verify]") {
  // All outputs are off by one step, which the budget allows; one in row 21 is 25 % too large.
  constexpr std::int64_t kRows = 48;
  constexpr std::int64_t kColumns = 40;
  constexpr std::size_t kOutside = 21 * kColumns + 17;
  const RandomProduct random({.promotion_interval = 128}, {.shape = {kRows, kColumns, 512}});
  std::vector<float> values = decode_codes(FormatId::f32, golden_output(random.product));
  for (float& x : values) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + 1);
  values[kOutside] *= 1.25F;
  const std::vector<std::byte> codes = cast_output(values, {});
  const Operand got{"got", {ElementType::f32, {kRows, kColumns}, codes}, nullptr};

  const VerifyReport budget = verify(random.product, got, {.check = find_check("budget")});
  INFO(describe(budget));
  REQUIRE(budget.verdict == Verdict::mismatch);
  REQUIRE(budget.budget);
  CHECK(budget.budget->outside == std::vector<std::int64_t>{kOutside});
  REQUIRE(budget.diagnosis);
  CHECK(budget.diagnosis->mismatches == 1);
  CHECK(budget.diagnosis->right == 5 * kColumns - 1);  // of row 21 and four others

  const VerifyReport bits = verify(random.product, got);
  REQUIRE(bits.diagnosis);
  CHECK(bits.diagnosis->right == 0);
  CHECK(bits.diagnosis->mismatches > 10 * kColumns);
}
