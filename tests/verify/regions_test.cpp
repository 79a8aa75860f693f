#include "fp8lab/verify/regions.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include "catch.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("verify: a region is a copy only if all of its rows are", "[verify][regions]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {96, 160, 512}});
  const std::vector<float> golden = compute(random.product);
  // Rows 48 to 63 stand at rows 32 to 47: the first `together` from column 20 on, then 21.
  const auto content = [&](std::size_t together) {
    std::vector<float> d = golden;
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 32; ++j)
        d[(32 + i) * 160 + 100 + j] = golden[(48 + i) * 160 + (i < together ? 20 : 21) + j];
    const Operand got{"got", view_of(ElementType::f32, {96, 160}, std::span<const float>(d)),
                      nullptr};
    const VerifyReport report = verify(random.product, got);
    REQUIRE(report.regions.size() == 1);
    CHECK((report.regions[0].row == 32 && report.regions[0].rows == 16));
    CHECK((report.regions[0].column == 100 && report.regions[0].columns == 32));
    return report.regions[0].content;
  };
  CHECK(content(16) == RegionContent::elsewhere);
  for (const std::size_t together : {1u, 8u, 15u}) {
    INFO(together);
    CHECK(content(together) != RegionContent::elsewhere);
  }
}

TEST_CASE("power: a check has power if it detects one fault of each class", "[verify]") {
  // A check with a tolerance: of each class so many faults apply, and so many are detected.
  const auto has_power = [](std::size_t outputs, std::size_t operands) {
    PowerReport report;
    report.checks = {find_check("deepgemm")};
    const auto add = [&](FaultClass kind, bool applies, bool detected) {
      FaultOutcome& fault = report.faults.emplace_back();
      fault.kind = kind;
      fault.applies = applies;
      fault.detected = {detected};
    };
    for (std::size_t i = 0; i < 3; ++i) {
      add(FaultClass::output, true, i < outputs);
      add(FaultClass::operands, true, i < operands);
      add(FaultClass::operands, false, true);
    }
    return report.has_power(0);
  };
  CHECK(has_power(3, 3));
  CHECK(has_power(1, 1));
  CHECK_FALSE(has_power(0, 3));
  CHECK_FALSE(has_power(3, 0));
}
