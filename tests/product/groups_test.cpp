#include "fp8lab/product/groups.hpp"

#include <bit>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kRows = 20;
constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kTerms = 256;

std::vector<std::uint8_t> codes(std::int64_t count, std::string_view name) {
  const RandomStream stream(1, name);
  std::vector<std::uint8_t> result;
  for (std::int64_t i = 0; i < count; ++i)  // finite ones
    result.push_back(
        static_cast<std::uint8_t>(stream.bits32(static_cast<std::uint64_t>(i)) % 0x7f));
  return result;
}

std::vector<float> scales(std::int64_t count) {
  const RandomStream stream(1, "scales");
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<float>(1.0 + stream.uniform(static_cast<std::uint64_t>(i))));
  return result;
}

std::vector<GroupPart> parts(GroupKind kind, std::vector<std::int64_t> values, std::int64_t length,
                             std::int64_t count) {
  return parts_of({kind, std::move(values), 0}, length, count);
}

}  // namespace

TEST_CASE("groups: rows and terms of each", "[product]") {
  using Parts = std::vector<GroupPart>;
  CHECK(parts(GroupKind::batched, {}, 7, 2) == Parts{{0, 0, 7}, {1, 0, 7}});
  CHECK(parts(GroupKind::row_ends, {3, 3, 9}, 10, 3) == Parts{{0, 0, 3}, {1, 3, 3}, {2, 3, 9}});
  CHECK(parts(GroupKind::row_indices, {1, 1, -1, 0, 1}, 5, 2) ==
        Parts{{1, 0, 2}, {0, 3, 4}, {1, 4, 5}});
  // The same group on both sides of a gap is two parts.
  CHECK(parts(GroupKind::row_indices, {0, -1, 0}, 3, 1) == Parts{{0, 0, 1}, {0, 2, 3}});
  CHECK(parts(GroupKind::row_counts, {2, 0}, 4, 2) == Parts{{0, 0, 2}, {1, 0, 0}});
  CHECK_THROWS_AS(parts(GroupKind::row_ends, {3, 2}, 9, 2), Error);
  CHECK_THROWS_AS(parts(GroupKind::k_ends, {3, 10}, 9, 2), Error);
  CHECK_THROWS_AS(parts(GroupKind::row_indices, {0, 2}, 2, 2), Error);
  CHECK_THROWS_AS(parts(GroupKind::row_counts, {5}, 4, 1), Error);
  CHECK_THROWS_AS(parts_of({GroupKind::row_ends, {4, 8}, 8}, 8, 2), Error);
  CHECK(parts_of({GroupKind::row_ends, {8, 8, 9}, 8}, 9, 3).size() == 3);
  CHECK_THROWS_WITH(parts_of({GroupKind::row_ends, {3, 9}, -1}, 9, 2),
                    contains("alignment: expected 0 or more, got -1"));
}

TEST_CASE("groups: each group of terms has its own C", "[product]") {
  constexpr std::int64_t kHalf = kTerms / 2;
  const std::vector<std::uint8_t> a = codes(kRows * kTerms, "a");
  const std::vector<std::uint8_t> b = codes(kColumns * kTerms, "b");
  const std::vector<float> c = scales(2 * kRows * kColumns);
  const auto half_of = [](const std::vector<std::uint8_t>& all, std::int64_t rows,
                          std::int64_t begin) {
    std::vector<std::uint8_t> half;
    for (std::int64_t row = 0; row < rows; ++row)
      half.insert(half.end(), all.begin() + row * kTerms + begin,
                  all.begin() + row * kTerms + begin + kHalf);
    return half;
  };
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  spec.epilogue.beta = 2.0F;
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {kRows, kTerms}, std::span(a));
  all.b.codes = view_of(ElementType::e4m3fn, {kColumns, kTerms}, std::span(b));
  all.c = view_of(ElementType::f32, {2, kRows, kColumns}, std::span(c));
  const std::vector<float> d =
      compute(make_grouped_product(all, spec, {GroupKind::k_ends, {kHalf, kTerms}, 0}));
  constexpr auto kOutputs = static_cast<std::size_t>(kRows * kColumns);
  REQUIRE(d.size() == 2 * kOutputs);
  for (const std::size_t group : {0U, 1U}) {
    const auto begin = static_cast<std::int64_t>(group) * kHalf;
    const std::vector<std::uint8_t> of_a = half_of(a, kRows, begin);
    const std::vector<std::uint8_t> of_b = half_of(b, kColumns, begin);
    GemmOperands one;
    one.a.codes = view_of(ElementType::e4m3fn, {kRows, kHalf}, std::span(of_a));
    one.b.codes = view_of(ElementType::e4m3fn, {kColumns, kHalf}, std::span(of_b));
    one.c = view_of(ElementType::f32, {kRows, kColumns},
                    std::span(c).subspan(group * kOutputs, kOutputs));
    const std::vector<float> right = compute(make_product(one, spec));
    for (std::size_t i = 0; i < kOutputs; ++i) {
      const float got = d[group * kOutputs + i];
      INFO("group " << group << ", output " << i << ": expected " << right[i] << ", got " << got);
      CHECK(std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(right[i]));
    }
  }
}

TEST_CASE("groups: each is the product of its own operands", "[product]") {
  const std::vector<std::uint8_t> a = codes(kRows * kTerms, "a");
  const std::vector<std::uint8_t> b = codes(3 * kColumns * kTerms, "b");
  const std::vector<float> scale_a = scales(kRows * 2);
  const std::vector<float> scale_b = scales(3 * 2);
  const auto view = [](ElementType type, std::vector<std::int64_t> shape, const auto& values) {
    return view_of(type, std::move(shape), std::span(values));
  };
  GemmOperands all;
  all.a.codes = view(ElementType::e4m3fn, {kRows, kTerms}, a);
  all.b.codes = view(ElementType::e4m3fn, {3, kColumns, kTerms}, b);
  all.a.scales = view(ElementType::f32, {kRows, 2}, scale_a);
  all.b.scales = view(ElementType::f32, {3, 1, 2}, scale_b);
  const GemmSpec spec{.model = "sm90.wgmma.e4m3", .promotion_interval = 128};
  const GroupedProduct grouped =
      make_grouped_product(all, spec, {GroupKind::row_ends, {7, 7, 18}, 0});
  CHECK(grouped.shape == std::vector<std::int64_t>{kRows, kColumns});
  REQUIRE(grouped.rest.size() == 1);
  CHECK(grouped.rest[0].first_row == 18);
  CHECK(grouped.rest[0].group == 2);
  const std::vector<float> d = compute(grouped);
  const auto check_group = [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
    GemmOperands one;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    const std::span<const std::uint8_t> rows(a.data() + begin * kTerms, at((end - begin) * kTerms));
    const std::span<const std::uint8_t> weights(b.data() + group * kColumns * kTerms,
                                                at(kColumns * kTerms));
    const std::span<const float> of_rows(scale_a.data() + begin * 2, at((end - begin) * 2));
    const std::span<const float> of_weights(scale_b.data() + group * 2, 2);
    one.a.codes = view_of(ElementType::e4m3fn, {end - begin, kTerms}, rows);
    one.b.codes = view_of(ElementType::e4m3fn, {kColumns, kTerms}, weights);
    one.a.scales = view_of(ElementType::f32, {end - begin, 2}, of_rows);
    one.b.scales = view_of(ElementType::f32, {1, 2}, of_weights);
    const std::vector<float> right = compute(make_product(one, spec));
    for (std::size_t i = 0; i < right.size(); ++i) {
      const float got = d[at(begin * kColumns) + i];
      INFO("group " << group << ", output " << i << ": expected " << right[i] << ", got " << got);
      CHECK(std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(right[i]));
    }
  };
  check_group(0, 0, 7);
  check_group(2, 7, 18);
  for (std::size_t i = 18 * kColumns; i < d.size(); ++i)
    CHECK(std::bit_cast<std::uint32_t>(d[i]) == 0);
}

TEST_CASE("groups: a vector of each group, and a column of one value a row for all", "[product]") {
  // As many groups as rows and columns: the shapes alone tell what is whose.
  const std::vector<std::uint8_t> ones(2 * 2 * 32, 0x38);
  const std::vector<float> of_groups{1, 2, 3, 5};
  const std::vector<float> of_rows{1, 4};
  const std::vector<float> of_columns{8, 16, 32, 64};
  GemmOperands all;
  all.a.codes = all.b.codes = view_of(ElementType::e4m3fn, {2, 2, 32}, std::span(ones));
  all.bias = view_of(ElementType::f32, {2, 2}, std::span(of_groups));
  const auto d = [&] {
    return compute(
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0}));
  };
  using Values = std::vector<float>;
  CHECK(d() == Values{33, 34, 33, 34, 35, 37, 35, 37});
  all.row_scales = view_of(ElementType::f32, {2, 1}, std::span(of_rows));
  CHECK(d() == Values{33, 34, 129, 130, 35, 37, 131, 133});
  all.row_scales = view_of(ElementType::f32, {2, 2}, std::span(of_columns));
  CHECK(d() == Values{257, 258, 513, 514, 1027, 1029, 2051, 2053});
  all.row_scales.reset();
  all.column_scales = view_of(ElementType::f32, {2, 2}, std::span(of_columns));
  CHECK(d() == Values{257, 514, 257, 514, 1027, 2053, 1027, 2053});
  all.bias = view_of(ElementType::f32, {2}, std::span(of_rows));
  CHECK(d() == Values{257, 516, 257, 516, 1025, 2052, 1025, 2052});
}

TEST_CASE("groups: of a group's parts the first of those with the most rows is found",
          "[product]") {
  const std::vector<std::uint8_t> ones(8 * 3 * 32, 0x38);
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {8, 32}, std::span(ones).first(8 * 32));
  all.b.codes = view_of(ElementType::e4m3fn, {3, 8, 32}, std::span(ones));
  const GroupedProduct product = make_grouped_product(
      all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_indices, {0, -1, 0, 0, -1, 0, 0, 1}, 0});
  REQUIRE(product.find(0) != nullptr);
  CHECK(product.find(0)->first_row == 2);
  CHECK(product.find(0)->product.rows() == 2);
  REQUIRE(product.find(1) != nullptr);
  CHECK(product.find(1)->first_row == 7);
  CHECK(product.find(2) == nullptr);
}

TEST_CASE("groups: each row has the scales of its tile, also where two groups share one",
          "[product]") {
  // Tiles of 4 rows and 32 terms, the last of which may be half a tile.
  const std::vector<std::uint8_t> ones(10 * 64, 0x38);
  const std::vector<float> tiles{1, 2, 4, 8, 16, 32};
  const std::vector<float> of_groups{1, 16, 256};
  for (const std::int64_t k : {64, 48}) {
    GemmOperands all;
    all.a.codes = view_of(ElementType::e4m3fn, {10, k},
                          std::span(ones).first(static_cast<std::size_t>(10 * k)));
    all.b.codes = view_of(ElementType::e4m3fn, {3, 1, k},
                          std::span(ones).first(static_cast<std::size_t>(3 * k)));
    all.a.scales = view_of(ElementType::f32, {3, 2}, std::span(tiles));
    all.a.tiles = ScaleTiles{4, 32};
    all.b.scales = view_of(ElementType::f32, {3}, std::span(of_groups));
    const auto d = [&](std::vector<std::int64_t> ends) {
      return compute(make_grouped_product(all,
                                          {.model = "sm90.wgmma.e4m3", .promotion_interval = 32},
                                          {GroupKind::row_ends, std::move(ends), 0}));
    };
    // Of rows of these tiles in these groups.
    const auto sums = [&](std::string_view tile, std::string_view group) {
      std::vector<float> found;
      for (std::size_t row = 0; row < tile.size(); ++row) {
        const float first = tiles[static_cast<std::size_t>(2 * (tile[row] - '0'))];
        found.push_back((32 * first + static_cast<float>(k - 32) * 2 * first) *
                        of_groups[static_cast<std::size_t>(group[row] - '0')]);
      }
      return found;
    };
    INFO("k = " << k);
    CHECK(d({3, 8, 10}) == sums("0000111122", "0001111122"));
    CHECK(d({4, 8, 10}) == sums("0000111122", "0000111122"));
    CHECK(d({0, 5, 10}) == sums("0000111122", "1111122222"));
  }
}

TEST_CASE("groups: the shape of scales says whether each group has its own", "[product]") {
  const std::vector<float> values{1, 2, 4, 8, 16, 32, 64, 128};
  // The scales of the second group, after 0 for those over all and 1 for those of a group.
  const auto second = [&](bool cut, std::int64_t rows, std::vector<std::int64_t> shape,
                          const std::optional<ScaleTiles>& tiles = {}) {
    const auto size = static_cast<std::size_t>(element_count(shape, "scales"));
    GroupScales scales({"scale_a", false, cut, 2, rows, 256},
                       view_of(ElementType::f32, std::move(shape), std::span(values).first(size)),
                       ScaleLayout::row_major, tiles);
    std::vector<float> found{scales.whole() ? 0.0F : 1.0F};
    const InverseScales of =
        scales.whole() ? scales.all() : scales.of({1, cut ? 128 : 1, cut ? 256 : rows});
    found.insert(found.end(), of.values.begin(), of.values.end());
    return found;
  };
  using Found = std::vector<float>;
  // Of rows: one a group, unless it could be one a row.
  CHECK(second(false, 3, {2}) == Found{1, 2});
  CHECK(second(false, 3, {2, 1, 1}) == Found{1, 2});
  CHECK(second(false, 2, {2, 1, 1}) == Found{1, 2});
  CHECK(second(false, 2, {2}) == Found{0, 1, 2});
  CHECK(second(false, 3, {3}) == Found{0, 1, 2, 4});
  CHECK(second(false, 3, {3, 2}) == Found{0, 1, 2, 4, 8, 16, 32});
  CHECK(second(false, 3, {1}) == Found{1, 1});
  // Along K: one a group, one a row of each group, or a grid over all.
  CHECK(second(true, 3, {2, 1, 1}) == Found{1, 2});
  CHECK(second(true, 3, {2, 3, 1}) == Found{1, 8, 16, 32});
  CHECK(second(true, 3, {2, 3}) == Found{1, 8, 16, 32});
  CHECK(second(true, 3, {3, 2}) == Found{0, 1, 2, 4, 8, 16, 32});
  CHECK(second(true, 2, {2, 2}, ScaleTiles{1, 128}) == Found{0, 1, 2, 4, 8});
  CHECK(second(true, 2, {2, 2, 1}) == Found{1, 4, 8});
  CHECK_THROWS_WITH(second(true, 2, {2, 2}),
                    contains("scale_a: expected [2, 2, 1] for one scale per row of each group") &&
                        contains("got [2, 2], which could be either"));
  CHECK_THROWS_WITH(second(true, 3, {2}), contains("scale_a: expected one value, [3]"));
}
