// What reports say, word for word, and what is found at the edges of groups.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/expect.hpp"
#include "fp8lab/verify/group_mistakes.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "fp8lab/verify/verify.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Values = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

VerifyReport verified(const Product& product, const Values& values,
                      const VerifyOptions& options = {}) {
  return verify(product,
                {"got",
                 view_of(ElementType::f32, {product.rows(), product.columns()},
                         std::span<const float>(values)),
                 nullptr},
                options);
}

/// Groups of rows that have random weights of their own.
struct Rows {
  RandomProduct random;
  GroupedProduct product;

  explicit Rows(const std::vector<std::int64_t>& ends, std::int64_t rows)
      : random({}, {.shape = {rows, 8 * static_cast<std::int64_t>(ends.size()), 64}}) {
    GemmOperands all;
    all.a.codes = view_of(ElementType::e4m3fn, {rows, 64}, std::span(std::as_const(random.a)));
    all.b.codes = view_of(ElementType::e4m3fn, {static_cast<std::int64_t>(ends.size()), 8, 64},
                          std::span(std::as_const(random.b)));
    product =
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_ends, ends, 0});
  }
  [[nodiscard]] GroupedReport verified(const Values& got, UngroupedRule rule = UngroupedRule::any,
                                       const VerifyOptions& options = {}) const {
    return verify(product,
                  Operand("d", view_of(ElementType::f32, product.shape, std::span(got)), nullptr),
                  options, rule);
  }
};

}  // namespace

TEST_CASE("verify: the map's last tiles are as large as what is left of the output", "[verify]") {
  // 100 x 70 outputs in tiles of 4 x 3: the last column of tiles is one output wide.
  const RandomProduct random({}, {.shape = {101, 70, 32}});
  const Values golden = compute(random.product);
  Values got = golden;
  const VerifyReport plain = verified(random.product, got, {.judge_power = false});
  const MismatchMap& map = plain.map;
  CAPTURE(map.rows, map.columns, map.tile_rows, map.tile_columns);
  REQUIRE((map.tile_rows > 1 && map.tile_columns > 1));
  REQUIRE((101 % map.tile_rows != 0 && 70 % map.tile_columns != 0));
  // All of the last tile, and one element of the first.
  const std::int64_t top = (map.rows - 1) * map.tile_rows;
  const std::int64_t left = (map.columns - 1) * map.tile_columns;
  for (std::int64_t i = top; i < 101; ++i)
    for (std::int64_t j = left; j < 70; ++j) got[static_cast<std::size_t>(i * 70 + j)] += 1.0F;
  got[0] += 1.0F;
  const std::string text = describe(verified(random.product, got));
  const std::size_t begin = text.find("  map, one character per tile of ");
  REQUIRE(begin != std::string::npos);
  std::string expected = "  map, one character per tile of " + std::to_string(map.tile_rows) +
                         " x " + std::to_string(map.tile_columns) +
                         " (. none, 1-9 tenths wrong, # all):\n";
  const auto share = static_cast<int>(10.0 / static_cast<double>(map.tile_rows * map.tile_columns));
  for (std::int64_t i = 0; i < map.rows; ++i) {
    std::string line(static_cast<std::size_t>(map.columns), '.');
    if (i == 0) line.front() = static_cast<char>('0' + std::max(share, 1));
    if (i + 1 == map.rows) line.back() = '#';
    expected += "    " + line + "\n";
  }
  CHECK(text.substr(begin, expected.size()) == expected);
}

TEST_CASE("verify: NaN of other bits and on one side alone are told", "[verify]") {
  RandomProduct random({}, {.shape = {4, 5, 64}});
  random.a[3] = 0x7f;  // row 0 is NaN
  Values got = compute(random.product);
  got[1] = -kNan;
  got[2] = -kNan;
  const VerifyReport same = verified(random.product, got, {.judge_power = false});
  CHECK(same.verdict == Verdict::pass);
  CHECK_THAT(describe(same), contains("pass: all 20 outputs have the golden bits [4, 5] f32") &&
                                 contains("\n  2 NaN outputs have other NaN bits (not counted)\n"));
  got[7] = kNan;
  const VerifyReport wrong = verified(random.product, got);
  const std::string text = describe(wrong);
  CHECK_THAT(text, contains("mismatch: 1 of 20 outputs differ in bits (5 %) [4, 5] f32") &&
                       contains("\n  2 NaN outputs have other NaN bits (not counted)\n") &&
                       contains("  first mismatch: row 1 column 2: expected ") &&
                       contains(", got 0x7fc00000 (nan), NaN on one side\n") &&
                       contains("  1 pairs with a NaN or an infinity in only one of the two\n"));
}

TEST_CASE("verify: three causes are shown, the others are counted", "[verify]") {
  VerifyReport report;
  report.rows = 1;
  report.columns = 2;
  report.comparison.bit_mismatches = 1;
  report.comparison.values.count = 2;
  report.map = make_map(1, 2);
  Diagnosis d;
  d.mismatches = 9;
  d.right = 7;
  d.tried = 33;
  for (std::uint64_t i = 0; i < 5; ++i) {
    report.diagnosis = d;
    std::string expected;
    const std::size_t shown = std::min<std::size_t>(d.causes.size(), 3);
    for (std::size_t c = 0; c < shown; ++c)
      expected += std::string(c == 0 ? "  cause: " : "  or:    ") + d.causes[c].name + ": " +
                  d.causes[c].text + " (" + std::to_string(d.causes[c].explained) +
                  " of 9 sampled mismatches; would change " +
                  std::to_string(d.causes[c].contradicted) + " of 7 right ones)\n";
    if (i == 0) expected = "  cause: none of 33 known mistakes explains it\n";
    if (i > 3) expected += "  and " + std::to_string(i - 3) + " more that explain equally many\n";
    INFO(i << " causes");
    CHECK_THAT(describe(report), contains("\n" + expected + "  ULP of "));
    d.causes.push_back({"name" + std::to_string(i), "text" + std::to_string(i), 8 - i, i});
  }
}

TEST_CASE("grouped verify: rows that were not written are told at a group's end alone",
          "[verify]") {
  const Rows rows({20, 45}, 48);
  const Values right = compute(rows.product);
  const auto findings = [&](std::int64_t first, std::int64_t count, const auto& value) {
    Values got = right;
    for (std::int64_t i = first * 8; i < (first + count) * 8; ++i)
      got[static_cast<std::size_t>(i)] = value(i);
    std::string text;
    for (const GroupOutcome& group : rows.verified(got).groups)
      for (const Cause& one : group.findings) text += one.name + ": " + one.text + "\n";
    return text;
  };
  const auto zero = [](std::int64_t) { return 0.0F; };
  const auto seven = [](std::int64_t) { return 7.0F; };
  const auto nan = [](std::int64_t) { return kNan; };
  const std::string one =
      "rows_not_written: the last row of group 0 not written: its end or its "
      "count is 1 too small\n";
  const std::string three =
      "rows_not_written: the last 3 rows of group 1 not written: its end or "
      "its count is 3 too small\n";
  CHECK(findings(19, 1, zero) == one);
  CHECK(findings(19, 1, seven) == one);
  CHECK(findings(19, 1, nan) ==
        "last_rows_nan: the last row of group 0 is NaN: not written, or spoilt by NaN in rows of "
        "padding that share their tile\n");
  CHECK(findings(42, 3, zero) == three);
  CHECK(findings(42, 3, seven) == three);
  // At its begin, or in the middle, a count explains nothing.
  CHECK(findings(0, 2, zero).empty());
  CHECK(findings(20, 2, seven).empty());
  CHECK(findings(30, 2, zero).empty());
}

TEST_CASE("grouped verify: in no group zeros of either sign are zeros", "[verify]") {
  const Rows rows({3, 5}, 9);
  Values got = compute(rows.product);
  for (std::size_t i = 5 * 8; i < got.size(); ++i) got[i] = -0.0F;
  const GroupedReport zeros = rows.verified(got, UngroupedRule::zero);
  CHECK(zeros.ungrouped_wrong.empty());
  CHECK_THAT(describe(zeros), contains("\n  4 rows are in no group, all zero\n"));
  got[5 * 8 + 1] = 1.0F;
  got[7 * 8] = kNan;
  const GroupedReport wrong = rows.verified(got, UngroupedRule::zero);
  REQUIRE(wrong.ungrouped_wrong.size() == 1);
  CHECK(wrong.ungrouped_wrong[0].wrong == 2);
  CHECK_THAT(describe(wrong), contains("\n  rows 5-8, in no group: 2 elements are not zero\n"));
  CHECK(rows.verified(got).verdict == rows.verified(compute(rows.product)).verdict);
}

TEST_CASE("grouped verify: three wrong groups are shown in full, power is sought from the largest",
          "[verify]") {
  const Rows rows({4, 10, 14, 22, 26}, 26);
  Values got = compute(rows.product);
  for (const std::size_t row : {0U, 5U, 11U, 15U, 23U}) got[row * 8] += 100.0F;
  const GroupedReport report = rows.verified(got);
  const std::string text = describe(report);
  CHECK_THAT(text,
             contains("mismatch: 5 of 208 outputs differ in bits (2.404 %), in 5 of 5 groups"));
  for (const auto& [group, range, in_full] : {std::tuple{0, "rows 0-3", true},
                                              {1, "rows 4-9", true},
                                              {2, "rows 10-13", true},
                                              {3, "rows 14-21", false},
                                              {4, "rows 22-25", false}})
    CHECK_THAT(text, contains("\n  group " + std::to_string(group) + " (" + range +
                              " of the output): " + (in_full ? "\n  mismatch: " : "1 of ")));
  const GroupedReport right = rows.verified(compute(rows.product));
  REQUIRE(right.power);
  CHECK(right.verdict == Verdict::pass);
  CHECK(right.power_group == 3);
  // Where no group has power, the largest one's is told.
  Rows zeros({4, 10, 14, 22, 26}, 26);
  std::fill(zeros.random.a.begin(), zeros.random.a.end(), std::uint8_t{0});
  const GroupedReport blind = zeros.verified(compute(zeros.product));
  CHECK(blind.verdict == Verdict::no_power);
  CHECK(blind.power_group == 3);
  REQUIRE(blind.power);
  CHECK(blind.power->rows == 8);
}

TEST_CASE("grouped verify: groups without rows or terms are no neighbours", "[verify]") {
  const std::vector<std::uint8_t> ones(4 * 256, 0x38);
  GemmOperands all;
  all.a.codes = all.b.codes = view_of(ElementType::e4m3fn, {4, 256}, std::span(ones));
  const GroupedProduct product = make_grouped_product(
      all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::k_ends, {64, 64, 192, 192, 256}, 0});
  const auto names = [&](std::size_t part) {
    std::vector<std::string> found;
    for (const WrongProduct& one : group_mistakes(product, part))
      if (one.name.starts_with("terms")) found.push_back(one.name + ": " + one.text);
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(names(0) == Names{"terms_of_next_group: the terms of group 2",
                          "terms_of_last_group: the terms of group 4"});
  CHECK(names(2) == Names{"terms_of_previous_group: the terms of group 0",
                          "terms_of_next_group: the terms of group 4"});
  // Scales of 32 and of 48 terms lie together every 96 terms.
  const std::vector<float> scales(4 * 8, 2.0F);
  all.a.codes = all.b.codes =
      view_of(ElementType::e4m3fn, {4, 192}, std::span(ones).first(4 * 192));
  all.a.scales = view_of(ElementType::f32, {4, 6}, std::span(scales).first(24));
  all.a.tiles = ScaleTiles{1, 32};
  all.b.scales = view_of(ElementType::f32, {4, 4}, std::span(scales).first(16));
  all.b.tiles = ScaleTiles{1, 48};
  const GroupedProduct tiles = make_grouped_product(
      all, {.model = "exact", .promotion_interval = 16}, {GroupKind::k_ends, {96, 192}, 0});
  Names moved;
  for (const WrongProduct& one : group_mistakes(tiles, 0))
    if (one.name.starts_with("k_")) moved.push_back(one.name + ": " + one.text);
  CHECK(moved == Names{"k_ends_late: the group's terms end too late by 96 terms",
                       "k_offset_high: the group's terms begin and end too late by 96 terms"});
}

TEST_CASE("expect: limits of the options, and what is said of each fault", "[verify]") {
  const auto message = [](const auto& change) -> std::string {
    ExpectOptions o;
    o.m = o.n = 4;
    o.k = 32;
    o.trials = 10;
    change(o);
    return test::message_of([&] { (void)expect_errors(o); });
  };
  CHECK(message([](ExpectOptions&) {}) == "accepted");
  CHECK(message([](ExpectOptions& o) { o.trials = 9; }) == "trials: expected 10 to 100000, got 9");
  CHECK(message([](ExpectOptions& o) { o.trials = 100001; }) ==
        "trials: expected 10 to 100000, got 100001");
  CHECK(message([](ExpectOptions& o) { o.risk = 0.1; }) == "accepted");
  CHECK(message([](ExpectOptions& o) { o.risk = 0.11; }) ==
        "risk: expected above 0, at most 0.1, got 0.11");
  CHECK(message([](ExpectOptions& o) { o.risk = 0.0; }) ==
        "risk: expected above 0, at most 0.1, got 0");
  CHECK(message([](ExpectOptions& o) { o.k = (1 << 20) + 1; }) ==
        "shape: expected k of at most 1048576, got 1048577");
  CHECK(message([](ExpectOptions& o) { o.n = 0; }) ==
        "shape: expected m, n and k above 0, got 4 x 0 x 32");
  CHECK(message([](ExpectOptions& o) { o.against_originals = true; }) ==
        "against_originals: expected a recipe, which has floats to compare with, got codes");
  // A gated activation has half as many outputs as sums; at most 128 of each side are looked at.
  ExpectOptions gated;
  gated.gemm.epilogue.activation = Activation::swiglu;
  gated.m = 130;
  gated.n = 300;
  gated.k = 32;
  gated.trials = 10;
  const Expectation e = expect_errors(gated);
  CHECK((e.sample_rows == 128 && e.sample_columns == 128));
  // What changes nothing is neither caught nor missed.
  Expectation shown;
  shown.gates.resize(2);
  shown.gates[0].max_ulp = (std::uint64_t{1} << 32) - 1;
  ExpectedFault nothing;
  nothing.name = "nothing";
  ExpectedFault all;
  all.name = "all";
  all.size = 0.5;
  all.close = all.calc_diff = all.cosine = all.max_ulp = true;
  shown.faults.assign(2, {nothing, all});
  const std::string text = describe(shown);
  CHECK_THAT(text,
             contains("max_ulp 4294967295\n") && contains("max_ulp none\n") &&
                 contains("  max_ulp    smallest fault caught all (0.5), largest missed none\n") &&
                 contains("  rtol/atol  smallest fault caught all (0.5), largest missed none\n"));
  CHECK_THAT(text, contains("  nothing                    0          passes all") &&
                       contains("  all                        0.5        rtol/atol, calc_diff, "
                                "cosine, max_ulp"));
}

TEST_CASE("verify: an element's block of K, terms and models are its own", "[verify]") {
  // Blocks in the middle, at the end, which may be short, and at the beginning.
  for (const auto& [length, begin, end] :
       {std::array<std::int64_t, 3>{512, 256, 384}, {456, 384, 456}, {456, 0, 128}}) {
    const RandomProduct random({.promotion_interval = 128},
                               {.shape = {3, 5, length}, .tiles_a = {3, 4}, .tiles_b = {5, 4}});
    const GemmProblem& p = random.product.problem;
    const Values golden = compute(random.product);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 5; ++j) {
        double sum = 0.0;  // what is missing
        for (std::int64_t k = begin; k < end; ++k)
          sum += decode(format(p.a.format), code_at(p.a, i, k)) *
                 decode(format(p.b.format), code_at(p.b, j, k));
        sum *= static_cast<double>(random.scale_a[static_cast<std::size_t>(4 * i + begin / 128)]) *
               static_cast<double>(random.scale_b[static_cast<std::size_t>(4 * j + begin / 128)]);
        const float right = golden[static_cast<std::size_t>(5 * i + j)];
        ElementReport element;
        element.row = i;
        element.column = j;
        element.mismatch.expected = std::bit_cast<std::uint32_t>(right);
        element.mismatch.got =
            std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<double>(right) - sum));
        explain_element(random.product, element);
        CAPTURE(i, j, element.k_begin, element.k_block_sum, sum);
        CHECK((element.k_begin == begin && element.k_end == end));
        CHECK(std::abs(element.k_block_sum - sum) <= 1e-9 * std::abs(sum));
        REQUIRE(element.terms.size() == 4);
        for (std::size_t t = 1; t < 4; ++t)
          CHECK(std::abs(element.terms[t].product) <= std::abs(element.terms[t - 1].product));
      }
  }
  // Of equal terms the first ones; models whose steps fit between promotions alone.
  RandomProduct equal({.model = "sm89.mma.e4m3", .promotion_interval = 16}, {.shape = {2, 2, 64}});
  std::fill(equal.a.begin(), equal.a.end(), std::uint8_t{0x38});
  std::fill(equal.b.begin(), equal.b.end(), std::uint8_t{0x38});
  ElementReport element;
  element.mismatch.expected = std::bit_cast<std::uint32_t>(64.0F);
  element.mismatch.got = std::bit_cast<std::uint32_t>(48.0F);
  explain_element(equal.product, element);
  for (std::size_t t = 0; t < 4; ++t) CHECK(element.terms.at(t).k == static_cast<std::int64_t>(t));
  REQUIRE_FALSE(element.models.empty());
  for (const ModelAnswer& answer : element.models) {
    INFO(answer.model);
    CHECK(16 % find_instruction_model(answer.model).accumulator.terms == 0);
    CHECK(answer.code == std::bit_cast<std::uint32_t>(64.0F));
  }
}

TEST_CASE("verify: files are row-major, and no budget is tried without inputs", "[verify]") {
  const Values values{1.0F, -2.0F, 3.0F, 4.5F, 0.25F, -6.0F};
  const auto file = [&](bool fortran) {
    TensorView view = view_of(ElementType::f32, {2, 3}, std::span(values));
    view.fortran_order = fortran;
    return Operand(fortran ? "turned" : "plain", view, nullptr);
  };
  const std::string refused =
      "turned: expected row-major order; save np.ascontiguousarray(x), got Fortran order";
  CHECK_THROWS_WITH(verify(file(true), file(false)), refused);
  CHECK_THROWS_WITH(verify(file(false), file(true)), refused);
  const VerifyReport report = verify(file(false), file(false), {.fault_matrix = true});
  REQUIRE(report.power);
  CHECK(report.power->checks.size() == all_checks().size() - 1);
  for (const Check& check : report.power->checks) CHECK(check.kind != Check::Kind::budget);
}
