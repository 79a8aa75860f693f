// Operands that products seldom have: codes with strides on both sides, scales of one or two bytes
// in rows that are padded, groups without terms, and models whose names begin with another's.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("calls: a model that reads other operands has the same accumulator", "[product]") {
  // Its family is what stands before the last dot; the registry's order decides among equals.
  int found = 0;
  for (const InstructionModel& own : instruction_models())
    for (const FormatId a : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16})
      for (const FormatId b : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16}) {
        const std::string family(own.name.substr(0, own.name.rfind('.')));
        std::string expected = "none";
        for (const InstructionModel& other : instruction_models())
          if (expected == "none" && other.name.starts_with(family) && other.a_format == a &&
              other.b_format == b && other.accumulator == own.accumulator)
            expected = other.name;
        std::string got;
        const std::string refused =
            test::message_of([&] { got = model_reading(own.name, "a caller", a, b); }, "");
        INFO(own.name << ", " << format(a).name << " x " << format(b).name);
        CHECK((refused.empty() ? got : "none") == expected);
        found += expected == "none" ? 0 : 1;
        if (!refused.empty())
          CHECK(refused.starts_with("call: expected operands in formats that a caller reads ("));
      }
  CHECK(found > 20);
}

TEST_CASE("groups: only those that have rows or terms start at multiples", "[product]") {
  const auto parts = [](GroupKind kind, std::vector<std::int64_t> values) {
    const Groups groups{kind, std::move(values), 16};
    return test::message_of([&] { (void)parts_of(groups, 64, 3); });
  };
  for (const GroupKind kind : {GroupKind::row_ends, GroupKind::k_ends}) {
    INFO(to_string(kind));
    CHECK(parts(kind, {16, 32, 64}) == "accepted");
    CHECK(parts(kind, {40, 40, 40}) == "accepted");
    CHECK(parts(kind, {16, 16, 40}) == "accepted");
    CHECK(parts(kind, {40, 40, 41}) == std::string(to_string(kind)) +
                                           ": expected groups that start at multiples of 16, got "
                                           "group 2 at 40");
  }
}

TEST_CASE("groups: one without terms is not split, beside others that are", "[product]") {
  const RandomProduct random({}, {.shape = {4, 3, 256}});
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {4, 256}, std::span(std::as_const(random.a)));
  all.b.codes = view_of(ElementType::e4m3fn, {3, 256}, std::span(std::as_const(random.b)));
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  spec.split = {.parts = 2, .tile = 32};
  const GroupedProduct product =
      make_grouped_product(all, spec, {GroupKind::k_ends, {0, 128, 128, 256}, 0});
  REQUIRE(product.parts.size() == 4);
  for (const GroupProduct& part : product.parts) {
    INFO("group " << part.group);
    CHECK(part.product.split.parts == (part.group % 2 == 1 ? 2 : 1));
  }
  const std::vector<float> d = compute(product);
  for (const std::size_t group : {0U, 2U})
    CHECK(std::count(d.begin() + static_cast<std::ptrdiff_t>(12 * group),
                     d.begin() + static_cast<std::ptrdiff_t>(12 * group + 12), 0.0F) == 12);
}

TEST_CASE("product: NaN are counted in codes of any strides, between which others lie",
          "[product]") {
  // 3 x 4 codes, 2 apart along K and 11 along rows, or the reverse; what lies between is NaN.
  for (const auto& [row_stride, k_stride] :
       {std::pair<std::int64_t, std::int64_t>{11, 2}, {2, 7}, {4, 1}, {1, 3}, {5, 1}, {1, 4}})
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t k = 0; k < 4; ++k) {
        std::vector<std::uint8_t> codes(64, 0x7f);
        for (std::int64_t r = 0; r < 3; ++r)
          for (std::int64_t c = 0; c < 4; ++c)
            codes[static_cast<std::size_t>(r * row_stride + c * k_stride)] = 0x38;
        codes[static_cast<std::size_t>(row * row_stride + k * k_stride)] = 0xff;
        const CodeMatrix m{FormatId::e4m3fn, codes.data(), 3, 4, row_stride, k_stride};
        INFO("strides " << row_stride << " and " << k_stride << ", at " << row << ", " << k);
        CHECK(count_non_finite(m) == NonFinite{1, 0});
      }
}

TEST_CASE("product: of an unknown model promotion divides the tiles of both operands",
          "[product]") {
  for (const auto& [of_a, of_b, expected] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{192, 128, 64},
        {128, 192, 64},
        {128, 0, 128},
        {0, 96, 96},
        {96, 96, 96},
        {384, 128, 128},
        {384, 384, 0},
        {0, 0, 0}}) {
    const std::vector<float> scales(64, 1.0F);
    const RandomProduct random({}, {.shape = {2, 3, 384}});
    GemmProblem p = random.product.problem;
    const auto tiles = [&](std::int64_t rows, std::int64_t side) -> InverseScales {
      if (side == 0) return {};
      return {std::span(scales).first(static_cast<std::size_t>(rows * (384 / side))), 1, side};
    };
    p.scale_a = tiles(2, of_a);
    p.scale_b = tiles(3, of_b);
    INFO("tiles of " << of_a << " and " << of_b);
    CHECK(of_unknown_model(p).promotion_interval == expected);
  }
}

TEST_CASE("product: the scale by amax does not depend on the one that was there", "[product]") {
  const RandomProduct random({.output = default_output(FormatId::e4m3fn)}, {});
  Product product = random.product;
  scale_by_amax(product);
  const float once = product.epilogue.output_scale.value();
  const std::vector<float> sums = compute(random.product);
  float largest = 0.0F;
  for (const float x : sums) largest = std::max(largest, std::abs(x));
  CHECK(once == 448.0F / largest);
  for (const float before : {once, 0.0F, 1e30F, -2.0F}) {
    product.epilogue.output_scale = before;
    scale_by_amax(product);
    CHECK(product.epilogue.output_scale == once);
  }
}

TEST_CASE("scale layouts: rows are padded to 16 bytes of their own elements", "[product]") {
  // Of 6 rows: 8 of four bytes, 8 of two, 16 of one.
  for (const ElementType type : {ElementType::f64, ElementType::f32, ElementType::f16,
                                 ElementType::bf16, ElementType::e8m0fnu, ElementType::e4m3fn}) {
    const auto width = static_cast<std::int64_t>(element_bytes(type));
    for (std::int64_t rows = 3; rows <= 33; ++rows)
      for (const bool named : {false, true})
        for (std::int64_t stored = rows; stored <= rows + 16; ++stored) {
          const std::vector<std::byte> zeros(static_cast<std::size_t>(2 * stored * width));
          std::size_t values = 0;
          const std::string refused = test::message_of(
              [&] {
                const ScaleGrid grid = read_scales(
                    "scale_a", {type, {2, stored}, zeros, false}, ScaleLayout::column_major,
                    named ? std::optional(ScaleTiles{1, 128}) : std::nullopt, rows, 256);
                values = grid.values.size();
                CHECK((grid.tiles == ScaleTiles{1, 128}));
              },
              "");
          const std::int64_t each = 16 / width;
          const std::int64_t padded = (rows + each - 1) / each * each;
          const bool fits = stored == rows || stored == padded;
          if (refused.empty() != fits || (fits && values != static_cast<std::size_t>(2 * rows))) {
            INFO(to_string(type) << ", " << rows << " rows, " << stored << " stored, named "
                                 << named << ": " << refused);
            CHECK(refused.empty() == fits);
            CHECK(values == (fits ? static_cast<std::size_t>(2 * rows) : 0));
          }
        }
  }
}

TEST_CASE("variants: swapped scales go round again where rows are more", "[product]") {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{7, 3}, {3, 8}, {4, 4}}) {
    const RandomProduct random({.promotion_interval = 64},
                               {.shape = {m, n, 384}, .tiles_a = {m, 3}, .tiles_b = {n, 3}});
    Product product = random.product;
    product.problem.scale_a.tensor_scale = 0.5F;
    product.problem.scale_b.tensor_scale = 3.0F;
    const GemmProblem& p = product.problem;
    REQUIRE(p.scale_a.k_block == 128);
    const std::optional<Product> swapped = with_swapped_scales(product);
    REQUIRE(swapped);
    const auto matches = [](const InverseScales& got, const CodeMatrix& own,
                            const InverseScales& other, std::int64_t other_rows) {
      const ScaleLookup lookup(got, own);
      std::int64_t wrong = got.tensor_scale == other.tensor_scale ? 0 : 1;
      for (std::int64_t row = 0; row < own.rows; ++row)
        for (std::int64_t k = 0; k < own.k; ++k)
          wrong +=
              lookup.at(row, k) ==
                      other.tensor_scale *
                          other.values[static_cast<std::size_t>(row % other_rows * 3 + k / 128)]
                  ? 0
                  : 1;
      return wrong == 0;
    };
    INFO(m << " and " << n << " rows");
    CHECK(matches(swapped->problem.scale_a, p.a, p.scale_b, n));
    CHECK(matches(swapped->problem.scale_b, p.b, p.scale_a, m));
  }
}

TEST_CASE("variants: codes that are cast anew are of the numbers that the recipe casts",
          "[product]") {
  // The recipe's own cast gives its own codes, with scales of one level or two.
  std::vector<float> values;
  const RandomStream draws(8, "recast");
  for (std::uint64_t i = 0; i < 24 * 256; ++i)
    values.push_back(static_cast<float>(3.0 * draws.normal(i)));
  const auto view = view_of(ElementType::f32, {24, 256}, std::span<const float>(values));
  for (const auto& [recipe, model] : {std::pair{"te-current", "sm90.wgmma.e4m3"},
                                      {"deepgemm", "sm90.wgmma.e4m3"},
                                      {"nvfp4", "sm100.tcgen05.mxf4nvf4"},
                                      {"ocp-mxfp8", "sm100.tcgen05.mxf8f6f4.e4m3"}}) {
    GemmOperands operands;
    operands.a.codes = operands.b.codes = view;
    operands.recipe = recipe;
    GemmSpec spec{.model = model};
    if (std::string(recipe) == "deepgemm") spec.promotion_interval = 128;
    const Product product = make_product(operands, spec);
    const Sample sample{{0, 5, 23}, {1, 2, 22}};
    const auto recast = [&](Side side) {
      return take_with_recast_codes(product, sample, side, [](const Format& to, float x) {
        return encode(to, kNvidiaSatfinite, x);
      });
    };
    const Product right = take(product, sample);
    INFO(recipe);
    for (const Side side : {Side::a, Side::b, Side::both}) {
      const std::optional<Product> again = recast(side);
      REQUIRE(again);
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < 3; ++row)
        for (std::int64_t k = 0; k < 256; ++k) {
          wrong += code_at(again->problem.a, row, k) == code_at(right.problem.a, row, k) ? 0 : 1;
          wrong += code_at(again->problem.b, row, k) == code_at(right.problem.b, row, k) ? 0 : 1;
        }
      CHECK(wrong == 0);
    }
  }
}
