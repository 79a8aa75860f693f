// What a report of a product is made of: what is counted, what is diagnosed, which faults are
// tried.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

VerifyReport report_on(const Product& product, const std::vector<float>& values,
                       const VerifyOptions& options) {
  const std::vector<std::byte> codes = cast_output(values, product.output, 1);
  return verify(
      product,
      {"got",
       {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
       nullptr},
      options);
}

}  // namespace

TEST_CASE("verify: what an activation allows is right for every part of a report", "[verify]") {
  GemmSpec spec{.model = "sm90.wgmma.e4m3", .promotion_interval = 128};
  spec.epilogue.activation = Activation::gelu;
  const RandomProduct random(spec, {.shape = {24, 20, 128}});
  const std::vector<float> right = compute(random.product);
  std::vector<float> got = right;
  for (float& x : got) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + 1);
  constexpr std::size_t kWrong = 7 * 20 + 3;
  got[kWrong] = 1.5F * right[kWrong] + 1.0F;
  for (const char* check : {"bitwise", "deepgemm", "budget"}) {
    const VerifyReport report =
        report_on(random.product, got, {.check = find_check(check), .judge_power = false});
    INFO(check << "\n" << describe(report));
    CHECK(report.within_activation == got.size() - 1);
    CHECK(report.comparison.bit_mismatches == 1);
    REQUIRE(report.elements.size() == 1);
    CHECK((report.elements[0].row == 7 && report.elements[0].column == 3));
    REQUIRE(report.budget);
    CHECK(report.budget->checked == 1);
    REQUIRE(report.diagnosis);
    CHECK(report.diagnosis->mismatches == 1);
    CHECK(report.diagnosis->right == 79);  // of rows 0, 7, 15 and 23
    std::uint64_t on_map = 0;
    for (const auto count : report.map.counts) on_map += count;
    CHECK(on_map == 1);
  }
}

TEST_CASE("verify: special values of each side are counted on their own side", "[verify]") {
  constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinite = std::numeric_limits<float>::infinity();
  RandomProduct random({}, {.shape = {5, 4, 64}, .with_c = true});
  random.b[2 * 64 + 5] = 0x7f;  // column 2
  random.c[0] = infinite;
  random.product.problem.c = random.c.data();
  std::vector<float> got = compute(random.product);
  got[6] = 1.0F;
  got[9] = nan_value;
  got[13] = nan_value;
  got[15] = -infinite;
  const VerifyReport report = report_on(random.product, got, {.judge_power = false});
  CHECK(describe(report.non_finite) ==
        "B has 1 NaN; C has 1 infinite; the golden output has 5 NaN and 1 infinite; got has 6 NaN "
        "and 2 infinite");
}

TEST_CASE("verify: further mistakes are tried as causes, and as faults where they must be seen",
          "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {24, 20, 256}});
  const std::vector<float> right = compute(random.product);
  // Half of each output, and one that changes nothing.
  Product half = random.product;
  half.epilogue.alpha = 0.5F;
  for (const bool must : {false, true})
    for (const char* check : {"bitwise", "budget", "deepgemm"}) {
      VerifyOptions options{.check = find_check(check), .threads = 1};
      options.more = [&] {
        return std::vector<WrongProduct>{{"half", "half of it", half, must},
                                         {"the_same", "itself", random.product, must}};
      };
      const VerifyReport pass = report_on(random.product, right, options);
      INFO(check << ", must be seen " << must << "\n" << describe(pass));
      REQUIRE(pass.power);
      std::string faults;
      for (const FaultOutcome& fault : pass.power->faults)
        if (fault.name == "half" || fault.name == "the_same")
          faults += fault.name + (fault.detected.at(0) ? " seen; " : " missed; ");
      CHECK(faults == (must ? "half seen; the_same missed; " : ""));
      const bool bitwise = options.check.kind == Check::Kind::bitwise;
      CHECK((pass.verdict == Verdict::no_power) == (must && bitwise));
      const VerifyReport wrong = report_on(random.product, compute(half), options);
      REQUIRE(wrong.diagnosis);
      REQUIRE_FALSE(wrong.diagnosis->causes.empty());
      CHECK(wrong.diagnosis->causes.front().name == "half");
      CHECK(wrong.diagnosis->causes.front().text == "half of it");
    }
  // In a region, too.
  std::vector<float> part = right;
  for (std::size_t i = 8; i < 24; ++i)
    for (std::size_t j = 4; j < 20; ++j) part[i * 20 + j] *= 0.5F;
  for (const char* check : {"bitwise", "budget"}) {
    VerifyOptions options{.check = find_check(check), .threads = 1, .judge_power = false};
    options.more = [&] { return std::vector<WrongProduct>{{"half", "half of it", half, false}}; };
    const VerifyReport report = report_on(random.product, part, options);
    REQUIRE(report.regions.size() == 1);
    const std::uint64_t wrong = report.regions[0].mismatches;
    CHECK(describe(report.regions[0]) == "rows 8-23, columns 4-19: " + std::to_string(wrong) +
                                             " of 256 differ; cause: half: half of it (" +
                                             std::to_string(wrong) + " of " +
                                             std::to_string(wrong) + " sampled)");
  }
}

TEST_CASE("verify: all wrong elements of a cast's dump that fits in memory are looked at",
          "[verify]") {
  for (const std::size_t size : {30000U, 65536U, 65537U, 100001U, 131071U}) {
    const std::vector<float> x(size, 1.0F);
    const std::vector<std::byte> codes(size, std::byte{0x39});
    const auto count = static_cast<std::int64_t>(size);
    const VerifyReport report = verify_cast(
        {}, {"x", view_of(ElementType::f32, {count}, std::span(x)), nullptr}, nullptr,
        {"got", {ElementType::e4m3fn, {count}, codes}, nullptr}, {.judge_power = false});
    INFO(size);
    REQUIRE(report.diagnosis);
    CHECK(report.diagnosis->mismatches == size);
    CHECK(report.diagnosis->right == 0);
  }
}

TEST_CASE("verify: the power of a cast's check is that under its scale", "[verify]") {
  // Without their scale all numbers would be zeros of the format, and a fault that makes zeros
  // would not be seen.
  std::vector<float> x;
  for (int i = 0; i < 96; ++i) x.push_back(std::ldexp(1.0F + static_cast<float>(i % 7), -40));
  const float scale = 0x1p40F;
  std::vector<float> scaled;
  for (const float one : x) scaled.push_back(one * scale);
  const std::vector<std::byte> codes = cast_output(scaled, default_output(FormatId::e4m3fn), 1);
  const Operand by{"s", view_of(ElementType::f32, {}, std::span(&scale, 1)), nullptr};
  const VerifyReport report =
      verify_cast({}, {"x", view_of(ElementType::f32, {8, 12}, std::span<const float>(x)), nullptr},
                  &by, {"got", {ElementType::e4m3fn, {8, 12}, codes}, nullptr});
  CHECK(report.comparison.bitwise());
  REQUIRE(report.power);
  for (const FaultOutcome& fault : report.power->faults)
    if (fault.name == "zeros") {
      CHECK(fault.mismatch_rate == 1.0);
      CHECK(fault.detected.at(0));
    }
}

TEST_CASE("verify: a region's cause is sought outside of the budget where that decides",
          "[verify][regions]") {
  // Another accumulator, whose bits may all differ; a part of it lacks the last terms. It begins
  // and ends inside of the map's tiles.
  const RandomProduct random({.promotion_interval = 64}, {.shape = {130, 140, 128}});
  const Product exact =
      with_accumulator(random.product, find_instruction_model("exact").accumulator);
  std::vector<float> got = compute(exact);
  const std::vector<float> dropped = compute(without_terms(exact, 64, 128));
  for (std::size_t i = 31; i < 53; ++i)
    for (std::size_t j = 17; j < 42; ++j) got[i * 140 + j] = dropped[i * 140 + j];
  const VerifyReport report =
      report_on(random.product, got, {.check = find_check("budget"), .judge_power = false});
  INFO(describe(report));
  CHECK(report.verdict == Verdict::mismatch);
  REQUIRE(report.regions.size() == 1);
  const std::string said = describe(report.regions[0]);
  REQUIRE(report.budget);
  const std::string outside = std::to_string(report.budget->outside.size());
  CHECK((report.map.tile_rows > 1 && report.map.tile_columns > 1));
  CHECK_THAT(said, contains("rows 31-52, columns 17-41: " + outside +
                            " of 550 differ; cause: dropped_last_k_tile: the terms from 64 on "
                            "left out ("));
}

TEST_CASE("verify: blocks of an element are those of a promotion, or of 128 terms", "[verify]") {
  for (const std::int64_t interval : {0, 32, 64, 96, 256}) {
    const std::int64_t block = interval == 0 ? 128 : interval;
    const RandomProduct random({.model = "exact", .promotion_interval = interval},
                               {.shape = {2, 3, 456}});
    const GemmProblem& p = random.product.problem;
    const std::vector<float> right = compute(random.product);
    for (std::int64_t begin = 0; begin < 456; begin += block) {
      const std::int64_t end = std::min<std::int64_t>(begin + block, 456);
      double sum = 0.0;
      for (std::int64_t k = begin; k < end; ++k)
        sum += decode(format(p.a.format), code_at(p.a, 1, k)) *
               decode(format(p.b.format), code_at(p.b, 2, k));
      ElementReport element;
      element.row = 1;
      element.column = 2;
      element.mismatch.expected = std::bit_cast<std::uint32_t>(right[5]);
      element.mismatch.got =
          std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<double>(right[5]) - sum));
      explain_element(random.product, element);
      INFO("interval " << interval << ", from " << begin);
      CHECK((element.k_begin == begin && element.k_end == end));
      CHECK(element.k_block_sum == sum);
      REQUIRE(element.terms.size() == 4);
      // The four largest products of the block, the first ones among equals.
      std::vector<std::pair<double, std::int64_t>> terms;
      for (std::int64_t k = begin; k < end; ++k)
        terms.emplace_back(-std::abs(decode(format(p.a.format), code_at(p.a, 1, k)) *
                                     decode(format(p.b.format), code_at(p.b, 2, k))),
                           k);
      std::ranges::sort(terms);
      for (std::size_t i = 0; i < 4; ++i) {
        const TermReport& term = element.terms[i];
        CHECK(term.k == terms[i].second);
        CHECK((term.a_code == code_at(p.a, 1, term.k) && term.b_code == code_at(p.b, 2, term.k)));
        CHECK(std::abs(term.product) == -terms[i].first);
      }
    }
  }
  // Behind an epilogue a difference of outputs says nothing of blocks.
  RandomProduct around({.promotion_interval = 64}, {.shape = {2, 3, 128}});
  around.product.epilogue.alpha = 2.0F;
  ElementReport element;
  explain_element(around.product, element);
  CHECK((element.k_begin == element.k_end && element.terms.empty()));
  CHECK_FALSE(element.models.empty());
}
