#include "fp8lab/verify/grouped.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/group_mistakes.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kTerms = 128;
constexpr std::int64_t kColumns = 8;

/// Weights, scales and bias that are each group's own, on rows that belong to one group after the
/// other.
struct Grouped {
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  std::vector<float> scale_a;
  std::vector<float> scale_b;
  std::vector<float> bias;
  GroupedProduct product;

  /// `ends`: where the groups' rows end. Rows have scales of 96 terms and of the 32 left over, or
  /// one.
  explicit Grouped(const std::vector<std::int64_t>& ends, bool tiles = false) {
    const auto groups = static_cast<std::int64_t>(ends.size());
    const std::int64_t rows = ends.back();
    const RandomStream random(9, "grouped");
    std::uint64_t at = 0;
    const auto codes = [&](std::int64_t count) {
      std::vector<std::uint8_t> made;
      for (std::int64_t i = 0; i < count; ++i)
        made.push_back(static_cast<std::uint8_t>(random.bits32(at++) % 0x78));
      return made;
    };
    const auto floats = [&](std::int64_t count) {
      std::vector<float> made;
      for (std::int64_t i = 0; i < count; ++i)
        made.push_back(static_cast<float>(1.0 + random.uniform(at++)));
      return made;
    };
    a = codes(rows * kTerms);
    b = codes(groups * kColumns * kTerms);
    scale_a = floats(tiles ? 2 * rows : rows);
    scale_b = floats(groups * kColumns);
    bias = floats(groups * kColumns);
    for (float& x : bias) x *= 4096.0F;
    GemmOperands all;
    all.a.codes = view_of(ElementType::e4m3fn, {rows, kTerms}, std::span<const std::uint8_t>(a));
    all.b.codes =
        view_of(ElementType::e4m3fn, {groups, kColumns, kTerms}, std::span<const std::uint8_t>(b));
    all.a.scales =
        view_of(ElementType::f32, {rows, tiles ? 2 : 1}, std::span<const float>(scale_a));
    if (tiles) all.a.tiles = ScaleTiles{1, 96};
    all.b.scales =
        view_of(ElementType::f32, {groups, kColumns, 1}, std::span<const float>(scale_b));
    all.bias = view_of(ElementType::f32, {groups, kColumns}, std::span<const float>(bias));
    product = make_grouped_product(
        all, {.model = "sm90.wgmma.e4m3", .promotion_interval = tiles ? 32 : 0},
        {GroupKind::row_ends, ends, 0});
  }

  [[nodiscard]] GroupedReport verified(const std::vector<float>& got) const {
    VerifyOptions options;
    options.threads = 1;
    return verify(
        product,
        Operand("d", view_of(ElementType::f32, product.shape, std::span<const float>(got)),
                nullptr),
        options);
  }
};

}  // namespace

TEST_CASE("grouped verify: all mistakes, and which of them a check must detect", "[verify]") {
  const Grouped grouped({3, 8, 12});
  const auto mistakes = [&](std::size_t part, bool must) {
    std::vector<std::string> names;
    for (const WrongProduct& one : group_mistakes(grouped.product, part))
      if (one.must_be_seen == must) names.push_back(one.name);
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(mistakes(1, true) == Names{"weight_of_previous_group", "scale_b_of_previous_group",
                                   "bias_of_previous_group", "weight_of_next_group",
                                   "scale_b_of_next_group", "bias_of_next_group"});
  const auto with_offsets = [](Names names) {
    names.insert(names.end(), 14, "scale_b_at_other_offset");
    return names;
  };
  CHECK(mistakes(1, false) ==
        with_offsets({"weight_codes_of_previous_group", "weight_codes_of_next_group"}));
  CHECK(mistakes(0, true) == Names{"weight_of_next_group", "scale_b_of_next_group",
                                   "bias_of_next_group", "weight_of_last_group",
                                   "scale_b_of_last_group", "bias_of_last_group"});
  // The others have rows enough for this one's.
  CHECK(mistakes(0, false) == with_offsets({"weight_codes_of_next_group", "input_of_next_group",
                                            "scale_a_of_next_group", "weight_codes_of_last_group",
                                            "input_of_last_group", "scale_a_of_last_group"}));
  // Each is another product, and is named where its output is found.
  for (const WrongProduct& one : group_mistakes(grouped.product, 0)) {
    std::vector<float> got = compute(grouped.product);
    const std::vector<float> wrong = compute(one.product);
    REQUIRE(wrong.size() == 3 * kColumns);
    REQUIRE_FALSE(std::equal(wrong.begin(), wrong.end(), got.begin()));
    std::copy(wrong.begin(), wrong.end(), got.begin());
    const GroupedReport report = grouped.verified(got);
    CHECK(report.verdict == Verdict::mismatch);
    REQUIRE(report.groups.size() == 3);
    CHECK(report.groups[1].report.verdict == Verdict::pass);
    REQUIRE(report.groups[0].report.diagnosis);
    const auto& causes = report.groups[0].report.diagnosis->causes;
    INFO(one.name << "\n" << describe(report));
    CHECK(std::ranges::find(causes, one.name, &Cause::name) != causes.end());
  }
}

TEST_CASE("grouped verify: another group's rows come with all their scales", "[verify]") {
  const Grouped grouped({3, 8, 12}, true);
  const std::vector<WrongProduct> mistakes = group_mistakes(grouped.product, 0);
  const auto of = [&](std::string_view name) {
    const auto found = std::ranges::find(mistakes, name, &WrongProduct::name);
    REQUIRE(found != mistakes.end());
    return found->product.problem.scale_a.values;
  };
  // Rows 3 to 5 and 8 to 10 of the whole, two scales each.
  for (const auto& [group, row] : {std::pair{"next", std::size_t{3}}, {"last", 8}})
    for (const std::string what : {"input", "scale_a"}) {
      const std::span<const float> scales = of(what + "_of_" + group + "_group");
      INFO(what << " of the " << group << " group");
      CHECK(std::ranges::equal(scales, std::span(grouped.scale_a).subspan(2 * row, 6)));
    }
}

TEST_CASE(
    "grouped verify: of one grid of scales over all terms, another group has its tensor scale "
    "alone",
    "[verify]") {
  constexpr std::int64_t kSide = 8;
  const std::vector<std::uint8_t> ones(kSide * 256, 0x38);
  const std::vector<float> grid{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {kSide, 256}, std::span(ones));
  all.b.codes = view_of(ElementType::e4m3fn, {kSide, 256}, std::span(ones));
  all.a.scales = view_of(ElementType::f32, {kSide, 2}, std::span(grid));
  all.a.tiles = ScaleTiles{1, 128};
  all.a.group_tensor_scales = {1.25F, 0.3F};
  const GroupedProduct grouped =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3", .promotion_interval = 128},
                           {GroupKind::k_ends, {128, 256}, 0});
  const InverseScales& own = grouped.parts[0].product.problem.scale_a;
  std::vector<std::string> names;
  for (const WrongProduct& one : group_mistakes(grouped, 0)) {
    if (one.name.find("scale") == std::string::npos) continue;
    names.push_back(one.name);
    const InverseScales& wrong = one.product.problem.scale_a;
    CHECK(std::ranges::equal(wrong.values, own.values));
    CHECK(wrong.tensor_scale == 0.3F);
  }
  CHECK(names == std::vector<std::string>{"tensor_scale_a_of_next_group"});
}

TEST_CASE("grouped verify: another group's output is found, if it has rows enough", "[verify]") {
  const Grouped grouped({3, 8, 12});  // groups of 3, 5 and 4 rows
  const std::vector<float> right = compute(grouped.product);
  CHECK(grouped.verified(right).verdict == Verdict::pass);
  const std::vector<std::int64_t> begins{0, 3, 8};
  const std::vector<std::int64_t> rows{3, 5, 4};
  for (std::size_t own = 0; own < 3; ++own)
    for (std::size_t other = 0; other < 3; ++other) {
      if (other == own) continue;
      std::vector<float> got = right;
      const std::int64_t count = std::min(rows[own], rows[other]) * kColumns;
      std::copy_n(right.begin() + begins[other] * kColumns, count,
                  got.begin() + begins[own] * kColumns);
      const GroupedReport report = grouped.verified(got);
      INFO("group " << other << "'s output in place of group " << own << "'s");
      REQUIRE(report.groups.size() == 3);
      std::vector<std::string> expected;
      if (rows[other] >= rows[own])
        expected.push_back("group " + std::to_string(other) + "'s output");
      std::vector<std::string> found;
      for (const Cause& one : report.groups[own].findings)
        if (one.name == "output_of_another_group") found.push_back(one.text);
      CHECK(found == expected);
    }
}

TEST_CASE("grouped verify: a bias or a tensor scale that all groups share is nobody's mistake",
          "[verify]") {
  const std::vector<std::uint8_t> ones(6 * 64, 0x38);
  const std::vector<float> numbers{1.0F, 2.0F, 3.0F, 4.0F, 1.0F, 2.0F, 3.0F, 4.0F};
  const auto names = [](const GroupedProduct& product, std::size_t part) {
    std::string text;
    for (const WrongProduct& one : group_mistakes(product, part))
      text += one.name + (one.must_be_seen ? "! " : " ");
    return text;
  };
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {2, 3, 64}, std::span(ones));
  all.b.codes = view_of(ElementType::e4m3fn, {2, 2, 64}, std::span(ones).first(4 * 64));
  const Groups batched{GroupKind::batched, {}, 0};
  const std::string codes_alone = "weight_of_next_group! input_of_next_group ";
  CHECK(names(make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, batched), 0) == codes_alone);
  for (const bool shared : {true, false}) {
    all.bias = shared ? view_of(ElementType::f32, {2}, std::span(numbers).first(2))
                      : view_of(ElementType::f32, {2, 2}, std::span(numbers).first(4));
    CHECK(names(make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, batched), 0) ==
          codes_alone + (shared ? "" : "bias_of_next_group! "));
  }
  all.bias.reset();
  all.a.scales = view_of(ElementType::f32, {2, 3, 1}, std::span(numbers).first(6));
  all.b.scales = view_of(ElementType::f32, {2, 2, 1}, std::span(numbers).first(4));
  const std::string start = "weight_codes_of_next_group weight_of_next_group! ";
  for (const bool of_a : {false, true})
    for (const bool of_b : {false, true}) {
      all.a.group_tensor_scales = of_a ? std::vector{1.5F, 0.5F} : std::vector<float>{};
      all.b.group_tensor_scales = of_b ? std::vector{1.5F, 0.5F} : std::vector<float>{};
      INFO("tensor scales of A " << of_a << ", of B " << of_b);
      const std::string own_b =
          of_b
              ? "scale_b_of_next_group! tensor_scale_b_of_next_group! both_scales_b_of_next_group! "
              : "scale_b_of_next_group! ";
      const std::string own_a =
          of_a ? "scale_a_of_next_group tensor_scale_a_of_next_group both_scales_a_of_next_group "
               : "scale_a_of_next_group ";
      CHECK(names(make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, batched), 0) ==
            start + own_b + "input_of_next_group " + own_a + "scale_b_at_other_offset ");
    }
}

TEST_CASE("grouped verify: terms of another group come under its tensor scales, of both operands",
          "[verify]") {
  const std::vector<std::uint8_t> codes = [] {
    std::vector<std::uint8_t> made;
    for (int i = 0; i < 4 * 256; ++i) made.push_back(static_cast<std::uint8_t>(0x30 + i % 17));
    return made;
  }();
  std::vector<float> grid;
  for (int i = 0; i < 8; ++i) grid.push_back(1.0F + 0.25F * static_cast<float>(i));
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {4, 256}, std::span(codes));
  all.b.codes = view_of(ElementType::e4m3fn, {3, 256}, std::span(codes).first(3 * 256));
  all.a.scales = view_of(ElementType::f32, {4, 2}, std::span<const float>(grid));
  all.b.scales = view_of(ElementType::f32, {3, 2}, std::span<const float>(grid).first(6));
  all.a.tiles = all.b.tiles = ScaleTiles{1, 128};
  all.a.group_tensor_scales = {1.25F, 0.3F};
  all.b.group_tensor_scales = {0.6F, 2.5F};
  const GroupedProduct grouped =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3", .promotion_interval = 128},
                           {GroupKind::k_ends, {128, 256}, 0});
  for (const std::size_t part : {0U, 1U}) {
    const std::string relation = part == 0 ? "next" : "previous";
    int found = 0;
    for (const WrongProduct& one : group_mistakes(grouped, part)) {
      const GemmProblem& p = one.product.problem;
      INFO(part << " " << one.name);
      const GemmProblem& own = grouped.parts[part].product.problem;
      const GemmProblem& other = grouped.parts[1 - part].product.problem;
      if (one.name == "terms_of_" + relation + "_group") {
        ++found;
        CHECK(p.scale_a.tensor_scale == other.scale_a.tensor_scale);
        CHECK(p.scale_b.tensor_scale == other.scale_b.tensor_scale);
        CHECK(compute(one.product) == compute(grouped.parts[1 - part].product));
      }
      if (one.name == "tensor_scale_b_of_" + relation + "_group") {
        ++found;
        CHECK(p.scale_a.tensor_scale == own.scale_a.tensor_scale);
        CHECK(p.scale_b.tensor_scale == other.scale_b.tensor_scale);
        CHECK(std::ranges::equal(p.scale_b.values, own.scale_b.values));
      }
    }
    CHECK(found == 2);
  }
}

TEST_CASE("grouped verify: mistakes with another group's codes have no floats of their own",
          "[verify]") {
  std::vector<float> values;
  const RandomStream random(4, "grouped recipe");
  for (std::uint64_t i = 0; i < 8 * 128; ++i)
    values.push_back(static_cast<float>(random.normal(i)));
  GemmOperands all;
  all.a.codes = view_of(ElementType::f32, {2, 4, 128}, std::span<const float>(values));
  all.b.codes =
      view_of(ElementType::f32, {2, 3, 128}, std::span<const float>(values).first(6 * 128));
  all.recipe = "te-current";
  const GroupedProduct grouped =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
  CHECK(grouped.parts[0].product.a_original != nullptr);
  const std::vector<WrongProduct> mistakes = group_mistakes(grouped, 0);
  CHECK(mistakes.size() >= 4);
  for (const WrongProduct& one : mistakes) {
    INFO(one.name);
    CHECK(one.product.a_original == nullptr);
    CHECK(one.product.b_original == nullptr);
  }
}

TEST_CASE(
    "grouped verify: rows of no group that are not zeros are a mismatch where zeros are wanted",
    "[verify]") {
  const std::vector<std::uint8_t> ones(7 * 64, 0x38);
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {7, 64}, std::span(ones));
  all.b.codes = view_of(ElementType::e4m3fn, {2, 3, 64}, std::span(ones).first(6 * 64));
  const GroupedProduct product = make_grouped_product(
      all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_indices, {0, 0, -1, 1, 1, -1, -1}, 0});
  std::vector<float> got = compute(product);
  for (const UngroupedRule rule : {UngroupedRule::any, UngroupedRule::zero})
    for (const std::int64_t wrong : {-1, 6, 8, 15, 20}) {
      std::vector<float> changed = got;
      if (wrong >= 0) changed[static_cast<std::size_t>(wrong)] = 5.0F;
      const GroupedReport report = verify(
          product,
          Operand("d", view_of(ElementType::f32, {7, 3}, std::span<const float>(changed)), nullptr),
          {.threads = 1, .judge_power = false}, rule);
      INFO("element " << wrong << ", rule " << to_string(rule));
      const bool fails = rule == UngroupedRule::zero && wrong >= 0;
      CHECK((report.verdict == Verdict::mismatch) == fails);
      CHECK(report.mismatches == 0);
      CHECK(report.outputs == 12);
      CHECK(report.ungrouped == 3);
      std::string places;
      for (const UngroupedOutcome& one : report.ungrouped_wrong)
        places += std::to_string(one.first_row) + "+" + std::to_string(one.rows) + ": " +
                  std::to_string(one.wrong);
      CHECK(places == (!fails ? "" : wrong < 9 ? "2+1: 1" : "5+2: 1"));
    }
}

TEST_CASE("grouped verify: groups behind the third are told in a line, with the best known cause",
          "[verify]") {
  const Grouped grouped({3, 8, 12});
  GroupedReport report = grouped.verified(compute(grouped.product));
  report.verdict = Verdict::mismatch;
  report.power.reset();
  report.outputs = 96;
  const GroupOutcome right = report.groups[0];
  GroupOutcome wrong = right;
  wrong.report.verdict = Verdict::mismatch;
  wrong.report.comparison.bit_mismatches = 5;
  wrong.report.diagnosis.reset();
  report.mismatches = 40;
  report.groups.assign(3, wrong);
  const auto cause = [](const char* name) {
    Diagnosis d;
    d.causes.push_back({name, "text", 1, 0});
    return d;
  };
  Region plain;
  Region known;
  known.diagnosis = cause("of_region");
  const auto last = [&](GroupOutcome outcome) {
    GroupedReport with = report;
    outcome.group = 7;
    outcome.first_row = 30;
    with.groups.push_back(std::move(outcome));
    const std::string text = describe(with);
    const std::size_t at = text.find("  group 7 (");
    return at == std::string::npos ? std::string("none") : text.substr(at);
  };
  const std::string start = "  group 7 (rows 30-32 of the output): 5 of 24 differ; ";
  GroupOutcome one = wrong;
  CHECK(last(one) == start + "no known mistake\n");
  one.report.regions = {plain, known};
  CHECK(last(one) == start + "of_region\n");
  one.report.diagnosis = Diagnosis{};
  CHECK(last(one) == start + "of_region\n");
  one.report.diagnosis = cause("of_group");
  CHECK(last(one) == start + "of_group\n");
  one.findings = {{"found", "text", 1, 0}, {"later", "text", 2, 0}};
  CHECK(last(one) == start + "found\n");
  one.report.rows = 1;
  CHECK(last(one).starts_with("  group 7 (row 30 of the output): "));
  // Other bits within a budget are told too, right groups are not.
  one.report.verdict = Verdict::pass;
  CHECK(last(one) != "none");
  one.report.comparison.bit_mismatches = 0;
  CHECK(last(one) == "none");
  report.groups.push_back(right);
  CHECK_THAT(describe(report), contains("mismatch: 40 of 96 outputs differ in bits (41.67 %), in 3 "
                                        "of 4 groups [12, 8] f32, row_ends, against "));
}

TEST_CASE("grouped verify: wrong groups stay a mismatch where no group has power", "[verify]") {
  const std::vector<std::uint8_t> zeros(4 * 64);
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {2, 2, 64}, std::span(zeros));
  all.b.codes = view_of(ElementType::e4m3fn, {2, 1, 64}, std::span(zeros).first(2 * 64));
  const GroupedProduct product =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
  for (const bool right : {true, false}) {
    std::vector<float> got(4);
    if (!right) got[3] = 1.0F;
    const GroupedReport report = verify(
        product,
        Operand("d", view_of(ElementType::f32, {2, 2, 1}, std::span<const float>(got)), nullptr),
        {.fault_matrix = true, .threads = 1}, UngroupedRule::any);
    INFO("right " << right);
    CHECK(report.verdict == (right ? Verdict::no_power : Verdict::mismatch));
    CHECK(report.power.has_value());
    CHECK(report.power_group == 0);
  }
}
