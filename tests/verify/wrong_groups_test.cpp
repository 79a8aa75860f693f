// Groups of equal sizes that are wrong as a whole, regions beside NaN of other codes, samples of a
// diagnosis, and what references and budgets take of odd sizes, splits and gates.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/group_mistakes.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "fp8lab/verify/kernel_causes.hpp"
#include "fp8lab/verify/references.hpp"
#include "fp8lab/verify/regions.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Three groups of 5 x 6 outputs.
struct EqualGroups {
  RandomProduct random{{}, {.shape = {15, 18, 64}}};
  GroupedProduct product;

  EqualGroups() {
    GemmOperands all;
    all.a.codes = view_of(ElementType::e4m3fn, {3, 5, 64}, std::span(std::as_const(random.a)));
    all.b.codes = view_of(ElementType::e4m3fn, {3, 6, 64}, std::span(std::as_const(random.b)));
    product = make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
  }
  [[nodiscard]] std::string findings(const std::vector<float>& got) const {
    std::string text;
    const GroupedReport report =
        verify(product, Operand("d", view_of(ElementType::f32, {3, 5, 6}, std::span(got)), nullptr),
               {}, UngroupedRule::any);
    for (const GroupOutcome& group : report.groups)
      for (const Cause& one : group.findings)
        text += std::to_string(group.group) + ": " + one.name + ": " + one.text + "\n";
    return text;
  }
};

}  // namespace

TEST_CASE("grouped verify: another group's output, of as many rows, is found", "[verify]") {
  const EqualGroups groups;
  const std::vector<float> right = compute(groups.product);
  for (const auto& [to, from] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {2, 0}}) {
    std::vector<float> got = right;
    std::copy_n(right.begin() + static_cast<std::ptrdiff_t>(30 * from), 30,
                got.begin() + static_cast<std::ptrdiff_t>(30 * to));
    CHECK(groups.findings(got) == std::to_string(to) + ": output_of_another_group: group " +
                                      std::to_string(from) + "'s output\n");
  }
  // All of a group is no row at its end.
  std::vector<float> got = right;
  std::fill_n(got.begin() + 30, 30, 0.0F);
  CHECK(groups.findings(got).empty());
  // Rows of another group are possible in place of as many.
  std::string names;
  for (const WrongProduct& one : group_mistakes(groups.product, 1)) names += one.name + " ";
  CHECK(names ==
        "weight_of_previous_group input_of_previous_group weight_of_next_group "
        "input_of_next_group ");
}

TEST_CASE("regions: NaN of other codes at its side make a region no larger", "[verify]") {
  // Map tiles have 4 x 2 elements: the region ends inside of some.
  constexpr std::int64_t kHigh = 100;
  constexpr std::int64_t kWide = 60;
  std::vector<float> golden(kHigh * kWide);
  for (std::size_t i = 0; i < golden.size(); ++i) golden[i] = 1.0F + static_cast<float>(i);
  std::vector<float> got = golden;
  for (std::int64_t row = 40; row < 52; ++row)
    for (std::int64_t column = 20; column < 30; ++column) {
      const auto at = static_cast<std::size_t>(row * kWide + column);
      const bool inside = row >= 41 && row < 51 && column >= 21 && column < 29;
      if (inside) got[at] = 0.5F / static_cast<float>(at);
      if (inside) continue;
      golden[at] = std::numeric_limits<float>::quiet_NaN();
      got[at] = -golden[at];
    }
  const auto bytes = [](const std::vector<float>& x) { return std::as_bytes(std::span(x)); };
  MismatchMap map = make_map(kHigh, kWide);
  const CodeComparison compared =
      compare_codes(format(FormatId::f32), bytes(golden), bytes(got), {.map = &map});
  CHECK(compared.nan_payloads == 12 * 10 - 10 * 8);
  CHECK(map.tile_rows == 4);
  const std::vector<Region> found =
      find_regions(FormatId::f32, bytes(golden), bytes(got), kHigh, kWide, map,
                   WrongElements(FormatId::f32, bytes(golden), bytes(got)));
  REQUIRE(found.size() == 1);
  CHECK(describe(found[0]) == "rows 41-50, columns 21-28: 80 of 80 differ");
}

TEST_CASE("regions: what fills the output is one only if its content is known", "[verify]") {
  std::vector<float> golden(12 * 9);
  for (std::size_t i = 0; i < golden.size(); ++i) golden[i] = 1.0F + static_cast<float>(i);
  const auto found = [&](const std::vector<float>& got) {
    const auto bytes = [](const std::vector<float>& x) { return std::as_bytes(std::span(x)); };
    MismatchMap map = make_map(12, 9);
    (void)compare_codes(format(FormatId::f32), bytes(golden), bytes(got), {.map = &map});
    std::string text;
    for (const Region& one : find_regions(FormatId::f32, bytes(golden), bytes(got), 12, 9, map,
                                          WrongElements(FormatId::f32, bytes(golden), bytes(got))))
      text += describe(one) + "; ";
    return text;
  };
  std::vector<float> other = golden;
  for (float& x : other) x = 1000.0F / x;
  CHECK(found(other).empty());
  // One row less is a part of it.
  for (std::size_t i = 0; i < 9; ++i) other[i] = golden[i];
  other[20] = 7.5F;
  CHECK(found(other) == "rows 1-11, columns 0-8: 99 of 99 differ; ");
  CHECK(found(std::vector<float>(12 * 9)) == "rows 0-11, columns 0-8: all zero; ");
  CHECK(found(std::vector<float>(12 * 9, 0.5F)) ==
        "rows 0-11, columns 0-8: one value everywhere; ");
}

TEST_CASE("causes: twelve rows with mismatches and four others are looked at", "[verify]") {
  for (const std::int64_t rows : {5, 12, 40}) {
    const RandomProduct random({}, {.shape = {rows, 10, 64}});
    std::vector<float> got = compute(random.product);
    std::vector<std::int64_t> mismatches;
    for (std::int64_t row = 0; row < rows; ++row) {
      mismatches.push_back(row * 10 + row % 10);
      got[static_cast<std::size_t>(mismatches.back())] += 1000.0F;
    }
    const Diagnosis found =
        diagnose(random.product, std::as_bytes(std::span(got)), mismatches, {.threads = 1});
    // Of 40 rows the first twelve, and 13, 26 and 39 of 0, 13, 26 and 39.
    const std::uint64_t seen = rows == 40 ? 15 : static_cast<std::uint64_t>(rows);
    INFO(rows << " rows");
    CHECK(found.mismatches == seen);
    CHECK(found.right == 9 * seen);
  }
}

TEST_CASE("causes: columns of the rows that were chosen and 128 others are looked at", "[verify]") {
  constexpr std::int64_t kHigh = 40;
  constexpr std::int64_t kWide = 600;
  const RandomProduct random({}, {.shape = {kHigh, kWide, 32}});
  const std::vector<float> right = compute(random.product);
  const std::vector<std::int64_t> even = spread(kWide, 128);
  const auto looked_at = [&](const std::vector<std::int64_t>& mismatches) {
    std::vector<float> got = right;
    for (const std::int64_t at : mismatches) got[static_cast<std::size_t>(at)] += 1000.0F;
    const Diagnosis found =
        diagnose(random.product, std::as_bytes(std::span(got)), mismatches, {.threads = 1});
    return std::pair(found.mismatches, found.mismatches + found.right);
  };
  using Counts = std::pair<std::uint64_t, std::uint64_t>;
  // One in row 5 and a column that is none of the 128; rows 0, 13, 26 and 39 beside it.
  REQUIRE_FALSE(std::ranges::binary_search(even, 1));
  CHECK(looked_at({5 * kWide + 1}) == Counts{1, 5 * 129});
  // In rows 1 to 20 one each, in a column of its own, of which twelve count.
  std::vector<std::int64_t> mismatches;
  std::int64_t column = 0;
  for (std::int64_t row = 1; row <= 20; ++row) {
    do ++column;
    while (std::ranges::binary_search(even, column));
    mismatches.push_back(row * kWide + column);
  }
  // Row 13 is one of the four others: its mismatch, in a column that was not chosen, is not seen.
  CHECK(looked_at(mismatches) == Counts{12, (12 + 4) * (128 + 12)});
  CHECK(looked_at({}) == Counts{0, 0});
}

TEST_CASE("references: FP64's are sums of all terms, of any number, FP32's of a K that is whole",
          "[verify]") {
  for (const std::int64_t k : {1, 7, 8, 9, 13, 100}) {
    const RandomProduct random({}, {.shape = {3, 4, k}});
    const auto found = references_of(random.product, {});
    const GemmProblem& p = random.product.problem;
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 4; ++j) {
        double sum = 0.0;
        for (std::int64_t t = 0; t < k; ++t)
          sum += decode(format(p.a.format), code_at(p.a, i, t)) *
                 decode(format(p.b.format), code_at(p.b, j, t));
        INFO("k " << k << ", row " << i << ", column " << j);
        CHECK(found[0].values[static_cast<std::size_t>(i * 4 + j)] == sum);  // exact in any order
      }
  }
  RandomProduct random({}, {.shape = {3, 4, 512}, .data = Data::wide});
  Product split = random.product;
  split.split = {.parts = 4, .tile = 128};
  CHECK(references_of(split, {})[1].values == references_of(random.product, {})[1].values);
}

TEST_CASE("budget: what overflows in a part of K, or in the second half of a gate, is special",
          "[verify]") {
  const std::vector<std::uint8_t> large(2 * 64, 0x7e);  // 448
  Product product;
  product.model = "sm90.wgmma.e4m3";
  product.problem.model = find_instruction_model(product.model).accumulator;
  product.problem.a = {FormatId::e4m3fn, large.data(), 1, 64, 64, 1};
  product.problem.b = {FormatId::e4m3fn, large.data(), 2, 64, 64, 1};
  product.epilogue.activation = Activation::swiglu;
  CHECK_FALSE(error_budget(product, 0, 0).special);
  for (const std::size_t half : {0U, 1U}) {
    std::vector<float> scales{1.0F, 1.0F};
    scales[half] = 1e35F;  // times 64 * 448^2
    Product over = product;
    over.epilogue.column_scales = over.keep(scales);
    INFO("half " << half);
    CHECK(error_budget(over, 0, 0).special);
  }
  // Sums of FP16 end at 65504: 32 terms of 448 are beyond it in one of two parts.
  product.model = "sm89.mma.e4m3.f16";
  product.problem.model = find_instruction_model(product.model).accumulator;
  product.epilogue = {};
  product.split = {.parts = 2, .tile = 32};
  for (const std::size_t part : {0U, 1U}) {
    std::vector<std::uint8_t> codes(64, 0x08);
    std::fill_n(codes.begin() + static_cast<std::ptrdiff_t>(32 * part), 32, std::uint8_t{0x7e});
    Product one = product;
    one.problem.a.data = codes.data();
    one.problem.b = {FormatId::e4m3fn, codes.data(), 1, 64, 64, 1};
    INFO("part " << part);
    CHECK(error_budget(one, 0, 0).special);
    codes.assign(64, 0x08);
    CHECK_FALSE(error_budget(one, 0, 0).special);
  }
}

TEST_CASE("causes: a sum rounded before a leaky ReLU keeps the slope", "[verify]") {
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  spec.epilogue.activation = Activation::leaky_relu;
  spec.epilogue.slope = 0.3F;
  spec.epilogue.output_scale = 3.0F;
  const RandomProduct random(spec, {.shape = {4, 6, 64}});
  const std::vector<float> sums = compute_sums(random.product);
  bool any = false;
  for (const KernelMistake& one : kernel_mistakes(random.product)) {
    if (one.name != "bf16_before_activation") continue;
    any = true;
    const std::vector<float> got = one.output(random.product).value();
    const std::vector<float> narrow =
        decode_codes(FormatId::bf16, cast_output(sums, default_output(FormatId::bf16), 1));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float w = narrow[i] > 0.0F ? narrow[i] : narrow[i] * 0.3F;
      CHECK(got[i] == w * 3.0F);
    }
  }
  CHECK(any);
}

TEST_CASE("causes: C of a sum that was not promoted, and blocks of 64 terms, are named",
          "[verify]") {
  const auto named = [](const Product& product, const std::vector<float>& got) {
    const VerifyReport report =
        verify(product,
               {"got",
                view_of(ElementType::f32, {product.rows(), product.columns()},
                        std::span<const float>(got)),
                nullptr},
               {.judge_power = false});
    std::string text;
    if (report.diagnosis)
      for (const Cause& one : report.diagnosis->causes)
        if (one.explained == report.diagnosis->mismatches && one.contradicted == 0)
          text += one.name + ": " + one.text + "; ";
    return text;
  };
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {8, 8, 512}, .data = Data::wide, .with_c = true});
  Product chain = random.product;
  chain.problem.promotion_interval = 0;
  chain.problem.c_enters = CPlacement::epilogue;
  CHECK_THAT(named(random.product, compute(chain)),
             contains("no_promotion: no promotion to FP32 at all; "));
  const RandomProduct plain({}, {.shape = {8, 8, 512}});
  for (const std::int64_t begin : {64, 192, 448})
    CHECK_THAT(named(plain.product, compute(without_terms(plain.product, begin, begin + 64))),
               contains("dropped_k_block: block [" + std::to_string(begin) + ", " +
                        std::to_string(begin + 64) + ") of K left out; "));
}
