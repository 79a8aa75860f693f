// What groups are refused for, word for word, and the edges between them.

#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("groups: what does not fit is refused, word for word", "[product]") {
  const auto message = [](GroupKind kind, std::vector<std::int64_t> values,
                          std::int64_t alignment = 0) {
    return message_of([&] { parts_of({kind, std::move(values), alignment}, 8, 2); });
  };
  CHECK(message(GroupKind::row_ends, {0, 4, 8}) ==
        "row_ends: expected one value for each of 2 groups (ends: leave out the leading 0), got 3");
  CHECK(message(GroupKind::row_ends, {1, 4, 8}) ==
        "row_ends: expected one value for each of 2 groups, got 3");
  CHECK(message(GroupKind::row_ends, {0}) ==
        "row_ends: expected one value for each of 2 groups, got 1");
  CHECK(message(GroupKind::k_ends, {4, 3}) ==
        "k_ends: expected ends that increase to at most 8, got 3 after 4 (group 1)");
  CHECK(message(GroupKind::row_ends, {4, 9}) ==
        "row_ends: expected ends that increase to at most 8, got 9 after 4 (group 1)");
  CHECK(message(GroupKind::row_ends, {-1, 8}) ==
        "row_ends: expected ends that increase to at most 8, got -1 after 0 (group 0)");
  CHECK(message(GroupKind::row_counts, {8, -1}) ==
        "row_counts: expected counts of 0 to 8 rows, got -1 (group 1)");
  CHECK(message(GroupKind::row_counts, {9, 0}) ==
        "row_counts: expected counts of 0 to 8 rows, got 9 (group 0)");
  CHECK(message(GroupKind::row_counts, {8, 0}) == "accepted");
  CHECK(message(GroupKind::row_indices, {0, 1, 0, -2, 0, 0, 0, 0}) ==
        "row_indices: expected groups 0 to 1, or -1, got -2 at 3");
  CHECK(message(GroupKind::row_indices, {0, 1, -1, 0, 0, 2, 0, 0}) ==
        "row_indices: expected groups 0 to 1, or -1, got 2 at 5");
  CHECK(message(GroupKind::row_indices, {0, 1}) ==
        "row_indices: expected one index for each of 8 rows, got 2");
  CHECK(message(GroupKind::batched, {1}) == "batched: expected no values, got [1]");
  CHECK(message(GroupKind::row_ends, {3, 8}, 4) ==
        "row_ends: expected groups that start at multiples of 4, got group 1 at 3");
  CHECK(message(GroupKind::row_indices, {-1, -1, 1, 1, 1, 1, 1, 1}, 4) ==
        "row_indices: expected groups that start at multiples of 4, got group 1 at 2");
}

TEST_CASE("groups: vectors of each group with one row or one column", "[product]") {
  for (const auto& [m, n] : {std::pair{4, 1}, std::pair{1, 4}, std::pair{1, 1}}) {
    GemmOperands all;
    all.a.codes = codes({2, m, 64});
    all.b.codes = codes({2, n, 64});
    const Floats of_columns(static_cast<std::size_t>(2 * n), 2.0F);
    const Floats of_rows(static_cast<std::size_t>(2 * m), 0.5F);
    const auto floats = [](std::int64_t length, const Floats& values) {
      return view_of(ElementType::f32, {2, length}, std::span<const float>(values));
    };
    const std::vector<float> plain = compute(
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0}), 1);
    all.bias = floats(n, of_columns);
    all.column_scales = floats(n, of_columns);
    all.row_scales = floats(m, of_rows);
    const std::vector<float> d = compute(
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0}), 1);
    REQUIRE(d.size() == plain.size());
    for (std::size_t i = 0; i < d.size(); ++i) CHECK(d[i] == plain[i] + 2.0F);
  }
}

TEST_CASE("groups: operands that do not fit are refused, word for word", "[product]") {
  GemmOperands all;
  all.a.codes = codes({8, 64});
  all.b.codes = codes({2, 4, 64});
  const auto message = [](const GemmOperands& operands,
                          const GemmSpec& spec = {.model = "sm90.wgmma.e4m3"},
                          Groups groups = {GroupKind::row_ends, {3, 8}, 0}) {
    return message_of([&] { (void)make_grouped_product(operands, spec, groups); });
  };
  CHECK(message(all) == "accepted");
  GemmOperands other = all;
  other.b.group_tensor_scales = {1.0F, 2.0F, 3.0F};
  CHECK(message(other) == "tensor_scale_b: expected one value, or 2, one per group, got 3");
  other = all;
  other.b.tensor_scale = 2.0F;
  other.b.group_tensor_scales = {1.0F, 2.0F};
  CHECK(message(other) ==
        "tensor_scale_b: expected one for all groups, or one per group, got both");
  other = all;
  other.a.codes = real({8, 64});
  other.b.codes = real({2, 4, 64});
  other.recipe = "te-current";
  for (const bool of_a : {true, false}) {
    GemmOperands scaled = other;
    (of_a ? scaled.a.scales : scaled.b.scales) = real({1});
    CHECK(message(scaled) ==
          "scales: expected none, since the recipe makes them, got scales of "
          "your own");
  }
  other = all;
  other.b.scales = real({2, 3});
  CHECK_THAT(message(other), contains("scale_b: expected ") && contains(" (of group 0)"));
  other = all;
  other.b.inverse = InverseScales{std::span(floats()).first(1)};
  CHECK(message(other) ==
        "scales: expected tensors, with groups, got scales that are already "
        "loaded");
  GemmSpec amax{.model = "sm90.wgmma.e4m3"};
  amax.epilogue.scale_by_amax = true;
  CHECK_THAT(message(all, amax), contains("output_scale: expected a number: with groups"));
  // C has the shape of the sums, of which a gated activation makes half as many outputs.
  GemmSpec gated{.model = "sm90.wgmma.e4m3"};
  gated.epilogue.activation = Activation::swiglu;
  gated.epilogue.beta = 1.0F;
  other = all;
  other.c = real({8, 4});
  CHECK(message(other, gated) == "accepted");
  other.c = real({8, 2});
  CHECK(message(other, gated) == "C: expected [8, 4], got [8, 2]");
}

TEST_CASE("groups: rows and empty groups have their own scales", "[product]") {
  // Row i of A is scaled by i + 1, group g of rows by another tensor scale; group 0 is empty.
  Floats rows;
  for (int i = 0; i < 8; ++i) rows.push_back(static_cast<float>(i + 1));
  GemmOperands all;
  all.a.codes = codes({8, 32});
  all.b.codes = codes({3, 1, 32});
  all.row_scales = view_of(ElementType::f32, {8}, std::span<const float>(rows));
  const auto d = [&](const Groups& groups) {
    return compute(make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, groups));
  };
  CHECK(d({GroupKind::row_ends, {0, 3, 8}, 0}) == Floats{32, 64, 96, 128, 160, 192, 224, 256});
  all.row_scales.reset();
  all.a.scales = view_of(ElementType::f32, {8}, std::span<const float>(rows));
  all.a.group_tensor_scales = {64.0F, 0.5F, 2.0F};
  CHECK(d({GroupKind::row_ends, {0, 3, 8}, 0}) == Floats{16, 32, 48, 256, 320, 384, 448, 512});
}

TEST_CASE("groups: rows in no group belong to the group before, the first ones to that behind",
          "[product]") {
  GemmOperands all;
  all.a.codes = codes({7, 32});
  all.b.codes = codes({3, 1, 32});
  const GroupedProduct product = make_grouped_product(
      all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_indices, {-1, 2, 2, -1, 1, -1, -1}, 0});
  REQUIRE(product.rest.size() == 3);
  const auto is = [&](std::size_t at, std::int64_t group, std::int64_t first, std::int64_t rows) {
    const UngroupedRows& rest = product.rest[at];
    INFO("rest " << at << ": group " << rest.group << ", row " << rest.first_row << ", "
                 << rest.rows);
    CHECK((rest.group == group && rest.first_row == first && rest.rows == rows));
  };
  is(0, 2, 0, 1);
  is(1, 2, 3, 1);
  is(2, 1, 5, 2);
}

TEST_CASE("groups: of terms each is split as it was asked for, and its C is added", "[product]") {
  const RandomProduct random({.model = "sm100.mma.e4m3"},
                             {.shape = {4, 3, 256}, .data = Data::wide});
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {4, 256}, std::span(random.a));
  all.b.codes = view_of(ElementType::e4m3fn, {3, 256}, std::span(random.b));
  GemmSpec spec{.model = "sm100.mma.e4m3"};
  spec.split = {.parts = 2, .tile = 32};
  const Groups groups{GroupKind::k_ends, {96, 256}, 0};
  const std::vector<float> d = compute(make_grouped_product(all, spec, groups));
  for (const auto& [group, begin, end] : {std::tuple{0, 0, 96}, {1, 96, 256}}) {
    Product part = take_k(random.product, begin, end);
    part.split = spec.split;
    const std::vector<float> right = compute(part);
    const std::vector<float> got(d.begin() + group * 12, d.begin() + (group + 1) * 12);
    CAPTURE(group);
    CHECK(got == right);
    part.split = {};
    if (group == 1) CHECK(got != compute(part));
  }
  // The first group has three tiles.
  spec.split.parts = 4;
  CHECK(message_of([&] { (void)make_grouped_product(all, spec, groups); }) ==
        "group 0: split_k: expected at most 3 parts, one per tile of 32 terms, got 4");
  // Of an unknown model each group is exact, and its C has a place.
  all.c = real({2, 4, 3});
  const GroupedProduct unknown = make_grouped_product_of_unknown_model(all, {}, groups);
  for (const GroupProduct& part : unknown.parts)
    CHECK(part.product.problem.model == find_instruction_model("exact").accumulator);
}

TEST_CASE("groups: numbers that are not finite are counted over all groups", "[product]") {
  std::vector<std::uint8_t> a(6 * 32, 0x38);
  std::vector<std::uint8_t> b(2 * 32, 0x38);
  for (const std::size_t at : {0U, 40U, 100U, 191U}) a[at] = 0x7f;
  b[5] = b[40] = b[41] = 0xff;
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {6, 32}, std::span<const std::uint8_t>(a));
  all.b.codes = view_of(ElementType::e4m3fn, {2, 1, 32}, std::span<const std::uint8_t>(b));
  const GroupedProduct product =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_ends, {2, 6}, 0});
  CHECK(describe(count_non_finite(product)) == "A has 4 NaN; B has 3 NaN");
}
