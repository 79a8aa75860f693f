// Scales as they are stored, and products that read them or their codes in another way.

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("scale layouts: UE4M3 codes have no sign, and tiles of 16 terms", "[product]") {
  std::vector<std::uint8_t> stored(512, 0);
  // Rows 0, 33, 70 and 127 of 128, tiles 0 to 3 of 16 terms, in their places of a block.
  for (const std::size_t row : {0U, 33U, 70U, 127U})
    for (std::size_t tile = 0; tile < 4; ++tile)
      stored[row % 32 * 16 + row / 32 * 4 + tile] =
          static_cast<std::uint8_t>((tile % 2 == 0 ? 0x80U : 0U) + 8 * tile + row / 32 + 8);
  const ScaleGrid grid =
      read_scales("scale_a", view_of(ElementType::e4m3fn, {512}, std::span(std::as_const(stored))),
                  ScaleLayout::blocked_128x4, std::nullopt, 128, 64);
  CHECK(grid.tiles == ScaleTiles{1, 16});
  REQUIRE(grid.values.size() == 128 * 4);
  for (std::size_t row = 0; row < 128; ++row)
    for (std::size_t tile = 0; tile < 4; ++tile) {
      const bool held = row == 0 || row == 33 || row == 70 || row == 127;
      const auto code = static_cast<std::uint32_t>(held ? 8 * tile + row / 32 + 8 : 0);
      CHECK(static_cast<double>(grid.values[row * 4 + tile]) ==
            decode(format(FormatId::e4m3fn), code));
    }
  const std::vector<std::uint8_t> minus(6, 0xb8);
  for (const ScaleLayout layout : {ScaleLayout::row_major, ScaleLayout::column_major})
    CHECK(read_scales("scale_a", view_of(ElementType::e4m3fn, {6}, std::span(minus)), layout,
                      std::nullopt, 6, 64)
              .values == Floats(6, 1.0F));
}

TEST_CASE("scale layouts: shapes that do not fit are refused with those that do", "[product]") {
  const std::vector<std::uint32_t> words(64, 0x7f7f7f7f);
  const auto message = [&](std::vector<std::int64_t> shape, ScaleLayout layout, std::int64_t rows) {
    const auto size = static_cast<std::size_t>(element_count(shape, "words"));
    return message_of([&] {
      (void)read_scales("scale_a", view_of(ElementType::u32, shape, std::span(words).first(size)),
                        layout, std::nullopt, rows, 1024);
    });
  };
  CHECK(message({6, 2}, ScaleLayout::packed_ue8m0, 6) == "accepted");
  CHECK(message({2, 6}, ScaleLayout::packed_ue8m0, 6) ==
        "scale_a: expected [6, 2] words for tiles of 1x128 (packed_ue8m0), got [2, 6]");
  const ScaleLayout turned = ScaleLayout::packed_ue8m0_column_major;
  CHECK(message({2, 6}, turned, 6) == "accepted");
  CHECK(message({2, 8}, turned, 6) == "accepted");
  CHECK(message({2, 7}, turned, 6) ==
        "scale_a: expected [2, 6] words for tiles of 1x128 (packed_ue8m0, or padded [2, 8]), got "
        "[2, 7]");
  CHECK(message({2, 5}, turned, 8) ==
        "scale_a: expected [2, 8] words for tiles of 1x128 (packed_ue8m0), got [2, 5]");
  CHECK(
      message_of([] {
        (void)tiles_of_shape("scale_a", std::vector<std::int64_t>{5, 5}, 200, 300);
      }) ==
      "scale_a: expected one value, [200] or [200, 1], [200, 3] (1x128 tiles), [2, 3] (128x128 "
      "tiles), [200, 10] (1x32 tiles), [200, 19] (1x16 tiles); other tiles must be named, such as "
      "64x64, got [5, 5]");
  // One scale a row, where there are no terms; a vector for a named grid of one row.
  CHECK(tiles_of_shape("scale_a", std::vector<std::int64_t>{5}, 5, 0) == ScaleTiles{1, 1});
  const std::vector<std::int64_t> four{4};
  CHECK(checked_tiles("scale_a", four, ScaleTiles{0, 128}, 6, 512) == ScaleTiles{6, 128});
  CHECK(message_of([&] {
          (void)checked_tiles("scale_a", four, ScaleTiles{3, 128}, 6, 512);
        }) == "scale_a: expected [ceil(6/3), ceil(512/128)] = [2, 4], got [4]");
  for (const ElementType type : {ElementType::f64, ElementType::f32, ElementType::f16,
                                 ElementType::bf16, ElementType::e8m0fnu, ElementType::e4m3fn})
    CHECK_NOTHROW(require_scale_type("scale_a", type));
  for (const ElementType type : {ElementType::e5m2, ElementType::u8, ElementType::i32})
    CHECK_THROWS_AS(require_scale_type("scale_a", type), Error);
}

TEST_CASE("variants: each side has its own grid, and scales beyond FP16 become infinite",
          "[product]") {
  // A: 3 x 2 tiles, B: 5 x 4; all of one operand's are changed, none of the other's.
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {3, 5, 512}, .tiles_a = {3, 1}, .tiles_b = {5, 4}});
  Product product = random.product;
  Floats numbered(20);
  for (std::size_t i = 0; i < 20; ++i) numbered[i] = static_cast<float>(i + 1);
  numbered[7] = 70000.0F;
  numbered[8] = 1.0F + 0x1p-9F;
  product.problem.scale_b.values = product.keep(Floats(numbered));
  const auto of_b = [](const std::optional<Product>& wrong) {
    REQUIRE(wrong);
    const auto& values = wrong->problem.scale_b.values;
    return Floats(values.begin(), values.end());
  };
  for (const Side side : {Side::b, Side::both}) {
    Floats rows;
    Floats next;
    Floats first;
    for (std::size_t i = 0; i < 20; ++i) {
      rows.push_back(numbered[(i / 4 + 1) % 5 * 4 + i % 4]);
      next.push_back(numbered[i / 4 * 4 + std::min<std::size_t>(i % 4 + 1, 3)]);
      first.push_back(numbered[i / 4 * 4]);
    }
    CHECK(of_b(with_scales_moved_along_rows(product, side, 1)) == rows);
    CHECK(of_b(with_scales_moved_along_k(product, side, 1)) == next);
    CHECK(of_b(with_first_scale_of_k(product, side)) == first);
    Floats f16 = numbered;
    f16[7] = std::numeric_limits<float>::infinity();
    CHECK(of_b(with_rounded_scales(product, side, FormatId::f16)) == f16);
    f16[7] = 70144.0F;  // 8 bits
    f16[8] = 1.0F;
    CHECK(of_b(with_rounded_scales(product, side, FormatId::bf16)) == f16);
  }
}

TEST_CASE("variants: codes are read as the other format of their own operand", "[product]") {
  using Id = FormatId;
  for (const auto& [id, other] : {std::pair{Id::e4m3fn, Id::e5m2},
                                  {Id::e5m2, Id::e4m3fn},
                                  {Id::e4m3fnuz, Id::e5m2fnuz},
                                  {Id::e5m2fnuz, Id::e4m3fnuz}})
    CHECK(other_format_of_width(id) == other);
  CHECK_FALSE(other_format_of_width(Id::bf16));
  const RandomProduct random({.model = "sm90.wgmma.e4m3.e5m2"}, {.shape = {3, 5, 64}});
  const auto formats = [&](Side side) {
    const std::optional<Product> wrong =
        with_codes_read_as(random.product, side, other_format_of_width);
    REQUIRE(wrong);
    return std::pair{wrong->problem.a.format, wrong->problem.b.format};
  };
  CHECK(formats(Side::a) == std::pair{Id::e5m2, Id::e5m2});
  CHECK(formats(Side::b) == std::pair{Id::e4m3fn, Id::e4m3fn});
  CHECK(formats(Side::both) == std::pair{Id::e5m2, Id::e4m3fn});
}

TEST_CASE("variants: scales are swapped unless both operands have one, B's order turned twice",
          "[product]") {
  const auto swapped = [](std::vector<std::int64_t> of_a, std::vector<std::int64_t> of_b) {
    const RandomProduct random(
        {}, {.shape = {4, 5, 64}, .tiles_a = std::move(of_a), .tiles_b = std::move(of_b)});
    return with_swapped_scales(random.product).has_value();
  };
  CHECK(swapped({4}, {5}));
  CHECK(swapped({4}, {1}));
  CHECK(swapped({1}, {5}));
  CHECK_FALSE(swapped({1}, {1}));
  CHECK_FALSE(swapped({4}, {}));
  CHECK_FALSE(swapped({}, {5}));
  const RandomProduct random({}, {.shape = {4, 5, 64}});
  const Product once = *with_transposed_b(random.product);
  const std::optional<Product> twice = with_transposed_b(once);
  REQUIRE(twice);
  const CodeMatrix& b = once.problem.b;
  CHECK((b.row_stride == 1 && b.k_stride == 5));
  CHECK((twice->problem.b.row_stride == 64 && twice->problem.b.k_stride == 1));
}

TEST_CASE("variants: C stays where another accumulator or interval leaves it", "[product]") {
  const RandomProduct random({.model = "sm89.mma.e4m3", .promotion_interval = 16},
                             {.shape = {4, 5, 256}, .with_c = true});
  REQUIRE(random.product.problem.c_enters == CPlacement::promoted_sum);
  // Steps of 32 terms do not fit into 16.
  const Product wide =
      with_accumulator(random.product, find_instruction_model("sm90.wgmma.e4m3").accumulator);
  CHECK(wide.problem.promotion_interval == 0);
  CHECK(wide.problem.c_enters == CPlacement::epilogue);
  CHECK_NOTHROW(compute(wide));
  // One interval of all terms: the sum, and C at its place.
  for (const CPlacement place :
       {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
    Product product = random.product;
    product.problem.promotion_interval = 256;
    product.problem.c_enters = place;
    CAPTURE(to_string(place));
    CHECK(*compute_in_intervals(product, {.interval = 256}) == compute(product));
    Product without = product;
    without.problem.c = nullptr;
    CHECK(*compute_in_intervals(product, {.interval = 256}) != compute(without));
  }
}
