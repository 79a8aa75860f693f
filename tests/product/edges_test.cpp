// What only few products have: an odd number of parts, an output of zeros, padded scales, distances
// that a kernel's activation may be off.

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/epilogue.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/split_k.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("split-K: five parts are added in the order of each name", "[product]") {
  // Any other order gives other bits.
  const std::vector<std::vector<float>> parts{{1.0F}, {0x1p25F}, {-0x1p25F}, {1.0F}, {1.0F}};
  const auto total = [&](SplitOrder order) { return add_up(parts, order).at(0); };
  // ((((1 + 2^25) - 2^25) + 1) + 1: the first 1 is lost.
  CHECK(total(SplitOrder::serial) == 2.0F);
  // The last one, p0 + p3, p1, p2: 1 + 2, then 2^25 + 3 is rounded to 2^25 + 4.
  CHECK(total(SplitOrder::pairwise) == 4.0F);
  // (p0 + p1) + (p2 + p3), then the last: 2^25 + (1 - 2^25), a tie to the even 2^25, and 1.
  CHECK(total(SplitOrder::tree) == 1.0F);
}

TEST_CASE("products of bytes are of formats of eight bits", "[product]") {
  const std::vector<std::uint8_t> codes(8, 0x38);
  std::vector<float> values(8);
  CHECK_NOTHROW(CodeMatrix::row_major(FormatId::e4m3fn, codes, 2, 4));
  CHECK_NOTHROW(decode(codes, values, {.format = FormatId::e5m2}));
  for (const FormatId id : {FormatId::f16, FormatId::bf16, FormatId::f32}) {
    INFO(format(id).name);
    CHECK_THROWS_WITH(CodeMatrix::row_major(id, codes, 2, 4),
                      contains("format: expected an 8-bit format"));
    CHECK_THROWS_WITH(decode(codes, values, {.format = id}),
                      contains("format: expected a format of at most eight bits"));
  }
  CHECK_THROWS_WITH(CodeMatrix::row_major(FormatId::e4m3fn, codes, 2, 3), contains("2 * 3 codes"));
}

TEST_CASE("scale layouts: the codes of a blocked layout are counted with their padding",
          "[product]") {
  const std::vector<std::uint8_t> codes(4096, 127);
  const auto read = [&](std::int64_t stored, std::int64_t rows, std::int64_t columns) {
    return read_scales("scale_a",
                       view_of(ElementType::e8m0fnu, {stored},
                               std::span<const std::uint8_t>(codes).first(
                                   static_cast<std::size_t>(stored))),
                       ScaleLayout::blocked_128x4, std::nullopt, rows, columns)
        .values.size();
  };
  CHECK(read(1024, 130, 96) == 130 * 3);
  CHECK_THROWS_WITH(read(390, 130, 96),
                    contains("256 x 4 = 1024 codes for tiles of 1x32 (blocked_128x4)"));
  CHECK(read(1024, 128, 160) == 128 * 5);
  CHECK_THROWS_WITH(read(640, 128, 160), contains("128 x 8 = 1024 codes"));
}

TEST_CASE("scale layouts: tiles that are named count, and not those of the layout", "[product]") {
  std::vector<std::uint8_t> codes(1024);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 251);
  const ScaleGrid blocked =
      read_scales("scale_a", view_of(ElementType::e8m0fnu, {1024}, std::span(std::as_const(codes))),
                  ScaleLayout::blocked_128x4, ScaleTiles{2, 16}, 260, 50);
  CHECK(blocked.tiles == ScaleTiles{2, 16});
  REQUIRE(blocked.values.size() == 130 * 4);
  const std::span<const float> decoded = decode_table(FormatId::e8m0fnu);
  CHECK(blocked.values[0] == decoded[0]);
  CHECK(blocked.values[33 * 4 + 2] == decoded[codes[1 * 16 + 4 + 2]]);
  CHECK(blocked.values[129 * 4 + 3] == decoded[codes[512 + 16 + 3]]);

  const std::vector<std::uint32_t> words{0x03020100, 0x07060504, 0x0b0a0908};
  const ScaleGrid packed =
      read_scales("scale_a", view_of(ElementType::u32, {3, 1}, std::span(words)),
                  ScaleLayout::packed_ue8m0, ScaleTiles{2, 32}, 5, 100);
  CHECK(packed.tiles == ScaleTiles{2, 32});
  REQUIRE(packed.values.size() == 3 * 4);
  for (std::size_t i = 0; i < packed.values.size(); ++i) CHECK(packed.values[i] == decoded[i]);
}

TEST_CASE("epilogue: how far an activation may be off, as the option says", "[product]") {
  const auto reach = [](Activation activation, std::vector<float> sums,
                        std::optional<float> scale) {
    Epilogue e;
    e.activation = activation;
    e.output_scale = scale;
    const auto n = static_cast<std::int64_t>(sums.size());
    return finish(e, std::move(sums), 1, n, true).reach;
  };
  using Reach = std::vector<double>;
  // 4 units of the last place: of v = -10 for GELU, of w = -4.54e-4 for SiLU.
  CHECK(reach(Activation::gelu, {-10.0F}, {}) == Reach{4 * 0x1p-20});
  CHECK(reach(Activation::gelu_tanh, {-10.0F}, {}) == Reach{4 * 0x1p-20});
  CHECK(reach(Activation::silu, {-10.0F}, {}) == Reach{4 * 0x1p-35});
  // The gate's 0.73, off by 4 units, times 3, and one unit of the product's own rounding.
  CHECK(reach(Activation::swiglu, {1.0F, -3.0F}, {}) == Reach{3 * 4 * 0x1p-24 + 0x1p-22});
  // The scaled 5.8 may be rounded otherwise once more.
  CHECK(reach(Activation::silu, {1.0F}, 8.0F) == Reach{8 * 4 * 0x1p-24 + 0x1p-21});
  CHECK(reach(Activation::relu, {1.0F}, {}).empty());
}

TEST_CASE("product: TF32 does not see the low bits of a NaN", "[product]") {
  const std::vector<std::uint32_t> words{0x7f800001u, 0x7f801fffu, 0x7f802000u, 0xff800000u};
  const auto bytes = std::as_bytes(std::span(words));
  CHECK(count_non_finite(FormatId::tf32, bytes) == NonFinite{1, 3});
  CHECK(count_non_finite(FormatId::f32, bytes) == NonFinite{3, 1});
}

TEST_CASE("product: an output of zeros has the output scale 1", "[product]") {
  RandomProduct random({.output = default_output(FormatId::e4m3fn)}, {.shape = {4, 4, 64}});
  std::fill(random.a.begin(), random.a.end(), std::uint8_t{0});
  scale_by_amax(random.product, 1);
  CHECK(random.product.epilogue.output_scale == 1.0F);
  random.a[0] = 0x38;  // 1, against B's first column
  random.b[0] = 0x40;  // 2
  for (std::size_t row = 1; row < 4; ++row) random.b[row * 64] = 0;
  scale_by_amax(random.product, 1);
  CHECK(random.product.epilogue.output_scale == 224.0F);
}

TEST_CASE("scale layouts: padding is to 16 bytes and to nothing else", "[product]") {
  std::vector<float> values;
  for (int i = 0; i < 16; ++i) values.push_back(static_cast<float>(i + 1));
  const auto grid = [&](std::int64_t stored, const std::optional<ScaleTiles>& named) {
    return read_scales(
        "scale_a",
        view_of(ElementType::f32, {2, stored},
                std::span<const float>(values).first(static_cast<std::size_t>(2 * stored))),
        ScaleLayout::column_major, named, 6, 256);
  };
  const auto read = [&](std::int64_t stored) { return grid(stored, ScaleTiles{1, 128}).values; };
  const std::vector<float> padded{1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14};
  const std::vector<float> dense{1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12};
  CHECK(read(8) == padded);
  CHECK(read(6) == dense);
  CHECK_THROWS_WITH(read(7), contains("scale_a") && contains("column_major"));
  // Nobody need name the tiles of single rows.
  CHECK(grid(8, {}).values == padded);
  CHECK(grid(8, {}).tiles == ScaleTiles{1, 128});
  CHECK(grid(6, {}).values == dense);
  CHECK_THROWS_WITH(grid(7, {}), contains("scale_a") && contains("column_major"));
}

TEST_CASE("product: outputs are cast as kernels cast to their format", "[product]") {
  const std::vector<float> values{1.0F, -1.0F, 1e6F};
  const auto words = [&](FormatId id) {
    const OutputCast cast = default_output(id);
    CHECK(cast.format == id);
    std::vector<int> bytes;
    for (const std::byte byte : cast_output(values, cast, 1))
      bytes.push_back(static_cast<int>(byte));
    return bytes;
  };
  using Bytes = std::vector<int>;
  // Little endian. FP8 saturates, FP16 overflows; 1e6 is 0x49742400.
  CHECK(words(FormatId::f32) == Bytes{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xbf, 0, 0x24, 0x74, 0x49});
  CHECK(words(FormatId::bf16) == Bytes{0x80, 0x3f, 0x80, 0xbf, 0x74, 0x49});
  CHECK(words(FormatId::f16) == Bytes{0, 0x3c, 0, 0xbc, 0, 0x7c});
  CHECK(words(FormatId::e4m3fn) == Bytes{0x38, 0xb8, 0x7e});
  CHECK(words(FormatId::e5m2) == Bytes{0x3c, 0xbc, 0x7b});
  CHECK(words(FormatId::e4m3fnuz) == Bytes{0x40, 0xc0, 0x7f});
  CHECK(words(FormatId::e5m2fnuz) == Bytes{0x40, 0xc0, 0x7f});
}
