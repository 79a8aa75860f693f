// The grid that `identify` searches, and what it says of what it found.

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("identify: promotion is tried every 16, 32 ... terms below K", "[identify]") {
  for (const std::int64_t k : {512, 513, 1024}) {
    const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {2, 2, k}, Data::normal,
                            Start::none, 1);
    const std::vector<NamedAccumulator> models = accumulators_for(operands.problem);
    std::vector<std::int64_t> intervals;
    for (const Accumulation& one : accumulations(operands.problem, models)) {
      const auto& names = models[one.accumulator].names;
      if (one.split_k == 1 && std::ranges::count(names, "sm90.wgmma.e4m3") > 0)
        intervals.push_back(one.promotion_interval);
    }
    std::vector<std::int64_t> expected{0, 32, 64, 128, 256};
    if (k > 512) expected.push_back(512);
    INFO("k = " << k);
    CHECK(intervals == expected);
  }
}

TEST_CASE("identify: promotion divides the tiles of both operands' scales", "[identify]") {
  constexpr std::int64_t kTerms = 384;
  const std::vector<float> ones(2 * kTerms, 1.0F);
  const auto intervals = [&](std::int64_t of_a, std::int64_t of_b) {
    Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {2, 2, kTerms}, Data::normal,
                      Start::none, 1);
    const auto scales = [&](std::int64_t k_block) -> InverseScales {
      if (k_block == 0) return {};
      return {std::span(ones).first(static_cast<std::size_t>(2 * kTerms / k_block)), 1, k_block};
    };
    operands.problem.scale_a = scales(of_a);
    operands.problem.scale_b = scales(of_b);
    const std::vector<NamedAccumulator> models = accumulators_for(operands.problem);
    std::vector<std::int64_t> found;
    for (const Accumulation& one : accumulations(operands.problem, models))
      if (std::ranges::count(models[one.accumulator].names, "sm90.wgmma.e4m3") > 0 &&
          one.split_k == 1 && one.scale_order == ScaleOrder::product_then_fma)
        found.push_back(one.promotion_interval);
    return found;
  };
  using Intervals = std::vector<std::int64_t>;
  CHECK(intervals(0, 0) == Intervals{0, 32, 64, 128, 256});
  CHECK(intervals(kTerms, kTerms) == Intervals{0, 32, 64, 128, 256});
  CHECK(intervals(128, 0) == Intervals{32, 64, 128});
  CHECK(intervals(0, 128) == Intervals{32, 64, 128});
  CHECK(intervals(kTerms, 96) == Intervals{32, 96});
  CHECK(intervals(192, 128) == Intervals{32, 64});
  CHECK(intervals(128, 96) == Intervals{32});
}

TEST_CASE("identify: the roundings that are tried, and what each makes", "[identify]") {
  const auto names = [](FormatId output) {
    std::vector<std::string> all;
    for (const OutputRounding& one : output_roundings(output)) all.emplace_back(one.name);
    return all;
  };
  using Names = std::vector<std::string>;
  CHECK(names(FormatId::f32) == Names{"kept", "through_bf16", "through_f16"});
  CHECK(names(FormatId::bf16) == Names{"nearest_even", "toward_zero", "nearest_away",
                                       "nearest_even_saturating", "through_f16"});
  CHECK(names(FormatId::f16) == Names{"nearest_even", "toward_zero", "nearest_away",
                                      "nearest_even_saturating", "through_bf16"});
  CHECK(names(FormatId::e4m3fn) == Names{"nearest_even", "toward_zero", "nearest_away",
                                         "nearest_even_not_saturating", "through_f16",
                                         "through_bf16"});
  // Ties to an even and an odd neighbour, one that FP16 makes a tie, too large, and NaN.
  const std::vector<float> d{1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 1.0F + 0x1p-8F + 0x1p-12F, 0x1.ffp127F,
                             -std::numeric_limits<float>::quiet_NaN()};
  const auto codes = [&](std::string_view name) {
    for (const OutputRounding& one : output_roundings(FormatId::bf16))
      if (one.name == name) return round_output(d, one);
    return std::vector<std::uint32_t>{};
  };
  using Codes = std::vector<std::uint32_t>;
  CHECK(codes("nearest_even") == Codes{0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7fff});
  CHECK(codes("nearest_away") == Codes{0x3f81, 0x3f82, 0x3f81, 0x7f80, 0x7fff});
  CHECK(codes("nearest_even_saturating") == Codes{0x3f80, 0x3f82, 0x3f81, 0x7f7f, 0x7fff});
  CHECK(codes("through_f16") == Codes{0x3f80, 0x3f82, 0x3f80, 0x7f80, 0x7fff});
  Codes toward_zero = codes("toward_zero");
  toward_zero.resize(3);
  CHECK(toward_zero == Codes{0x3f80, 0x3f81, 0x3f80});
}

TEST_CASE("identify: options say everything that gemm must know", "[identify]") {
  Explanation one{.models = {"sm90.wgmma.e4m3", "other"}, .rounding = "nearest_even"};
  using Words = std::vector<std::string>;
  CHECK(command_options(one, false) == Words{"--model", "sm90.wgmma.e4m3"});
  one.split_k = 2;
  CHECK(command_options(one, false) == Words{"--model", "sm90.wgmma.e4m3", "--split-k", "2"});
  one.promotion_interval = 64;
  one.scale_order = ScaleOrder::product_then_fma;
  one.c_enters = CPlacement::epilogue;
  CHECK(command_options(one, true) == Words{"--model", "sm90.wgmma.e4m3", "--promotion", "64",
                                            "--scale-order", "product_then_fma", "--c-enters",
                                            "epilogue", "--split-k", "2"});
  one.rounding = "through_bf16";
  CHECK_FALSE(command_options(one, true));
}

TEST_CASE("identify: what is right on the sample alone is counted", "[identify]") {
  // Products of ones cannot tell hypotheses apart; 65 x 65 outputs are more than any sample.
  const std::vector<std::uint8_t> ones(65 * 64, 0x38);
  Product product;
  product.model = "sm90.wgmma.e4m3";
  product.problem.model = find_instruction_model(product.model).accumulator;
  product.problem.a = product.problem.b = CodeMatrix::row_major(FormatId::e4m3fn, ones, 65, 64);
  const Identification result = identify(product, golden_output(product), 1);
  REQUIRE(result.explained());
  CHECK(result.ranking.front().members.size() == 32);
  CHECK(result.beyond > 0);
  CHECK(result.beyond < result.tried);
  CHECK_THAT(describe(result),
             contains(std::to_string(result.beyond) + " more are right on the sample"));
}

TEST_CASE("identify: a class shows twelve members and counts the others", "[identify]") {
  for (const std::int64_t members : {1, 2, 11, 12, 13, 14, 32}) {
    Identification result;
    result.rows = result.columns = 4;
    result.k = 512;
    result.tried = 40;
    ExplanationClass one;
    one.matches = 8;
    one.compared = 16;
    std::string lines;
    for (std::int64_t i = 0; i < members; ++i) {
      one.members.push_back(
          {.models = {"fp32"}, .promotion_interval = 16 * (i + 1), .rounding = "nearest_even"});
      const std::string text = describe(one.members.back(), false);
      if (i == 0) lines += "  50.0000 %  " + text + "\n";
      if (i > 0 && i < 12) lines += "            or " + text + "\n";
    }
    if (members > 12) lines += "            or " + std::to_string(members - 12) + " more\n";
    result.ranking = {one};
    result.beyond = 3;
    INFO(members << " members");
    CHECK(describe(result) ==
          "D [4, 4] over k = 512, f32\nunexplained: the best of 40 hypotheses gives 8 of 16 "
          "outputs\n" +
              lines + "  3 more are right on the sample and were not computed on all outputs\n");
  }
}
