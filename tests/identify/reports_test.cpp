// What `identify` says of the places that separate explanations, and what it counts as one.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("identify: the elements that separate two explanations are those of the output",
          "[identify]") {
  // More rows than columns, so that a place that is turned is another one.
  const RandomProduct random({.promotion_interval = 64}, {.shape = {9, 3, 256}});
  const std::vector<std::byte> got = golden_output(random.product);
  const Identification found = identify(random.product, got, 1);
  REQUIRE(found.explained());
  REQUIRE(found.ranking.size() > 1);
  REQUIRE_FALSE(found.separating.empty());
  const std::vector<NamedAccumulator> accumulators = accumulators_for(random.product.problem);
  const auto code_of = [&](const Explanation& one, const SeparatingElement& at) {
    for (std::size_t i = 0; i < accumulators.size(); ++i) {
      if (accumulators[i].names != one.models) continue;
      const Accumulation how{i, one.promotion_interval, one.scale_order, one.split_k, one.c_enters};
      const Product element = take(random.product, {{at.row}, {at.column}});
      const std::vector<float> d =
          result_of(element, how, accumulators, sums_of(element, how, accumulators, 1));
      for (const OutputRounding& rounding : output_roundings(FormatId::f32))
        if (rounding.name == one.rounding) return round_output(d, rounding).at(0);
    }
    return 0U;
  };
  std::int64_t last = -1;
  for (const SeparatingElement& at : found.separating) {
    CAPTURE(at.row, at.column);
    REQUIRE((at.row < 9 && at.column < 3));
    CHECK(at.row * 3 + at.column > last);
    last = at.row * 3 + at.column;
    CHECK(at.got == code_at(FormatId::f32, got, static_cast<std::size_t>(last)));
    CHECK(at.first == code_of(found.ranking[0].members[0], at));
    CHECK(at.second == code_of(found.ranking[1].members[0], at));
  }
}

TEST_CASE("identify: an explanation's text and options name every part", "[identify]") {
  Explanation one{.models = {"fp32"}, .rounding = "kept"};
  CHECK(describe(one, false) == "fp32, no promotion, output kept");
  CHECK(describe(one, true) ==
        "fp32, no promotion, scales " + std::string(to_string(one.scale_order)) + ", output kept");
  one.models = {"fp32", "x", "y"};
  one.promotion_interval = 64;
  one.split_k = 4;
  one.rounding = "through_f16";
  for (const auto& [place, text] : {std::pair{CPlacement::accumulator, "the accumulator"},
                                    std::pair{CPlacement::promoted_sum, "the promoted sum"},
                                    std::pair{CPlacement::epilogue, "the epilogue"}}) {
    one.c_enters = place;
    CHECK(describe(one, false) == std::string("fp32 (= x, y), promotion 64, C in ") + text +
                                      ", K in 4 parts, output through_f16");
  }
  // The options are those of the first member that has some.
  Identification result;
  result.rows = 1;
  result.columns = 2;
  result.k = 32;
  result.tried = 7;
  result.output = FormatId::bf16;
  Explanation other{.models = {"exact"}, .promotion_interval = 32, .rounding = "nearest_even"};
  result.ranking = {{{one, other}, 2, 2}, {{other}, 1, 2}};
  result.separating = {{0, 1, 0x3f80, 0x3f81, 0xc2f7}};
  result.separating_count = 1;
  result.separating_compared = 2;
  CHECK(describe(result) ==
        "D [1, 2] over k = 32, bf16\n"
        "explained: all 2 outputs, bit for bit, by 2 of 7 hypotheses\n"
        "  which this data cannot tell apart\n"
        "  options of gemm and verify: --model exact --promotion 32\n"
        " 100.0000 %  " +
            describe(one, false) + "\n            or " + describe(other, false) +
            "\n  50.0000 %  " + describe(other, false) +
            "\nthe first two differ on 1 of 2 outputs compared:\n"
            "  row 0 column 1: got 3f80 (1), first 3f81 (1.00781), second c2f7 (-123.5)\n");
  CHECK_THAT(describe(result, 1), !contains("50.0000"));
}

TEST_CASE("identify: outputs of another order, shape or size are refused", "[identify]") {
  const RandomProduct random({}, {.shape = {4, 3, 64}});
  const std::vector<std::byte> codes = golden_output(random.product);
  const auto message = [&](std::vector<std::int64_t> shape, bool fortran) -> std::string {
    return test::message_of([&] {
      (void)identify(random.product,
                     Operand("got", {ElementType::f32, std::move(shape), codes, fortran}, nullptr));
    });
  };
  const std::string expected = "got: expected row-major f32 [m, n] = [4, 3], got f32 ";
  CHECK(message({4, 3}, true) == expected + "[4, 3] in Fortran order");
  CHECK(message({3, 4}, false) == expected + "[3, 4]");
  CHECK_THROWS_WITH(identify(random.product, std::span(codes).first(47)),
                    "got: expected 48 bytes, [4, 3] codes of f32, got 47");
}

TEST_CASE("identify: K of a short last step is split in as many parts as it has steps",
          "[identify]") {
  // 7 steps of 32 terms and a short one.
  const RandomProduct random({}, {.shape = {2, 2, 240}});
  const std::vector<NamedAccumulator> models = accumulators_for(random.product.problem);
  std::vector<int> parts;
  for (const Accumulation& one : accumulations(random.product.problem, models))
    if (models[one.accumulator].names.front() == "sm90.wgmma.e4m3" && one.promotion_interval == 0)
      parts.push_back(one.split_k);
  CHECK(parts == std::vector<int>{1, 2, 4, 8});
}

TEST_CASE("identify: roundings that saturate or not are the other policy of each format",
          "[identify]") {
  const std::vector<float> large{1e6F, -1e6F};
  const auto codes = [&](FormatId id, std::string_view name) {
    for (const OutputRounding& one : output_roundings(id))
      if (one.name == name) return round_output(large, one);
    return std::vector<std::uint32_t>{};
  };
  using Codes = std::vector<std::uint32_t>;
  CHECK(codes(FormatId::f16, "nearest_even") == Codes{0x7c00, 0xfc00});
  CHECK(codes(FormatId::f16, "nearest_even_saturating") == Codes{0x7bff, 0xfbff});
  CHECK(codes(FormatId::e4m3fn, "nearest_even") == Codes{0x7e, 0xfe});
  CHECK(codes(FormatId::e4m3fn, "nearest_even_not_saturating") == Codes{0x7f, 0x7f});
  CHECK(codes(FormatId::e5m2, "nearest_even") == Codes{0x7b, 0xfb});
  CHECK(codes(FormatId::e5m2, "nearest_even_not_saturating") == Codes{0x7c, 0xfc});
}

TEST_CASE("identify: the first of the best explanations holds for every group that can tell",
          "[identify]") {
  // The largest group is of ones, which tell nothing; the other one has 256 terms of any size.
  RandomProduct random({}, {.shape = {20, 3 * 4, 256}, .data = Data::wide});
  std::fill_n(random.a.begin(), 16 * 256, std::uint8_t{0x38});
  std::fill_n(random.b.begin(), 4 * 256, std::uint8_t{0x38});
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::e4m3fn, {20, 256}, std::span(std::as_const(random.a)));
  operands.b.codes = view_of(ElementType::e4m3fn, {3, 4, 256}, std::span(std::as_const(random.b)));
  const GroupedProduct product =
      make_grouped_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 64},
                           {GroupKind::row_ends, {16, 18, 20}, 0});
  const std::vector<std::byte> got = golden_output(product);
  const GroupedIdentification found =
      identify(product, Operand("got", {ElementType::f32, {20, 4}, got}, nullptr), 1);
  CHECK(found.group == 0);
  CHECK(found.explained());
  REQUIRE_FALSE(found.found.ranking.empty());
  CHECK(found.found.ranking.front().members.front().promotion_interval == 64);
}

TEST_CASE(
    "identify: so many others are kept on the last sample, and a whole output is compared "
    "where one is right",
    "[identify]") {
  struct Kept {
    RandomProduct::Shape shape;
    std::uint64_t sampled;  // elements of the last sample
    std::size_t others;
  };
  for (const Kept& kept :
       {Kept{{2, 2, 256}, 4, 64}, Kept{{8, 7, 256}, 56, 16}, Kept{{3, 70, 128}, 192, 8},
        Kept{{66, 5, 128}, 320, 8}, Kept{{66, 65, 128}, 4096, 8}}) {
    const RandomProduct random({.model = "sm100.mma.e4m3", .promotion_interval = 64},
                               {.shape = kept.shape, .data = Data::wide});
    const auto size = static_cast<std::uint64_t>(kept.shape.m * kept.shape.n);
    std::vector<std::byte> got = golden_output(random.product);
    INFO(kept.shape.m << " x " << kept.shape.n);
    for (const bool right : {true, false}) {
      INFO("right " << right);
      // Of the first output, which is in every sample, by more than units differ in.
      if (!right) got[2] ^= std::byte{1};
      const Identification found = identify(random.product, got, 1);
      CHECK(found.explained() == right);
      CHECK(found.separating_compared == kept.sampled);
      REQUIRE_FALSE(found.ranking.empty());
      CHECK(found.ranking.front().compared == (right ? size : kept.sampled));
      std::size_t members = 0;
      for (const ExplanationClass& one : found.ranking) {
        members += one.members.size();
        CHECK(one.matches <= one.compared);
        if (!one.members.empty() && &one != &found.ranking.front() && right)
          CHECK((one.compared == kept.sampled || one.matches < size));
      }
      const std::size_t explained = right ? found.ranking.front().members.size() : 0;
      CHECK(found.beyond == 0);
      CHECK(members == explained + kept.others);
    }
  }
}

TEST_CASE("identify: what was not computed, and no hypothesis at all, are said", "[identify]") {
  Identification result;
  result.rows = 3;
  result.columns = 2;
  result.k = 48;
  result.tried = 5;
  result.output = FormatId::f32;
  CHECK(describe(result) == "D [3, 2] over k = 48, f32\nno hypothesis fits these operands\n");
  const Explanation one{.models = {"fp32"}, .rounding = "kept"};
  result.ranking = {{{one}, 6, 6}};
  const std::string text =
      "D [3, 2] over k = 48, f32\n"
      "explained: all 6 outputs, bit for bit, by 1 of 5 hypotheses\n"
      "  options of gemm and verify: --model fp32\n"
      " 100.0000 %  fp32, no promotion, output kept\n";
  CHECK(describe(result) == text);
  for (const std::size_t beyond : {1U, 2U, 77U}) {
    result.beyond = beyond;
    CHECK(describe(result) == text + "  " + std::to_string(beyond) +
                                  " more are right on the sample and were not computed on all "
                                  "outputs\n");
  }
}
