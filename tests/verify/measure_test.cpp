// Mistakes that stand in no list: what was used in place of the right scales, terms, codes and
// numbers is measured from the output, and confirmed.

#include "fp8lab/verify/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

Sample whole_of(const Product& product) {
  return {spread(product.rows(), product.rows()), spread(product.columns(), product.columns())};
}

VerifyReport report_of(const Product& product, const std::vector<float>& wrong) {
  const std::vector<std::byte> codes = cast_output(wrong, product.output);
  return verify(
      product,
      {"got",
       {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
       nullptr},
      {.threads = 1, .judge_power = false});
}

/// The best cause of `wrong` in place of the product's output, as "name: text".
std::string measured_cause(const Product& product, const std::vector<float>& wrong) {
  const VerifyReport report = report_of(product, wrong);
  if (!report.diagnosis || report.diagnosis->causes.empty()) return "none\n" + describe(report);
  const Cause& cause = report.diagnosis->causes.front();
  return cause.name + ": " + cause.text;
}
std::string measured_cause(const Product& product, const std::optional<Product>& wrong) {
  REQUIRE(wrong);
  return measured_cause(product, compute(*wrong, 1));
}

/// Scales of 1 x 128 of A and 128 x 128 of B, as DeepGEMM has them.
const RandomProduct& tiled() {
  static const RandomProduct random(
      {.promotion_interval = 128},
      {.shape = {48, 128, 1024}, .tiles_a = {48, 8}, .tiles_b = {1, 8}});
  return random;
}

/// The output under other scales of A: `place(row, tile)` in its grid of 48 x 8.
template <typename Place>
std::optional<Product> with_places(const Place& place) {
  const Product& p = tiled().product;
  return take_with_scales_of(
      p, whole_of(p), Side::a, 128, [&](std::int64_t row, std::int64_t tile) {
        return p.problem.scale_a.values[static_cast<std::size_t>(place(row, tile))];
      });
}

std::optional<Product> with_terms(const Product& p, Side side,
                                  const std::function<std::int64_t(std::int64_t)>& source) {
  return take_with_terms_at(p, whole_of(p), side, source);
}

}  // namespace

TEST_CASE("measure: scales of other tiles of K, rows and orders of memory are found", "[verify]") {
  const Product& p = tiled().product;
  CHECK_THAT(measured_cause(p, with_places([](auto r, auto t) {
                              return r * 8 + std::max<std::int64_t>(t - 2, 0);
                            })),
             contains("scale_of_other_k_tile_a: A's scale (measured): tile i of K has that of tile "
                      "i - 2, at least 0"));
  CHECK_THAT(measured_cause(p, with_places([](auto r, auto t) { return r * 8 + 7 - t; })),
             contains("scale_of_other_k_tile_a: A's scale (measured): tile i of K has that of tile "
                      "i xor 7"));
  CHECK_THAT(
      measured_cause(p, with_places([](auto r, auto t) { return (r ^ 15) * 8 + t; })),
      contains("scale_of_other_row_a: A's scale (measured): row i has that of row i xor 15"));
  CHECK_THAT(measured_cause(p, with_places([](auto r, auto t) { return r / 2 * 8 + t; })),
             contains("scale_of_other_row_a: A's scale (measured): row i has that of row i / 2"));
  // Column-major, read as if a column had 44 scales.
  CHECK_THAT(measured_cause(p, with_places([](auto r, auto t) {
                              const auto at = t * 44 + r;
                              return at % 48 * 8 + at / 48;
                            })),
             contains("scale_in_other_order_a"));
}

TEST_CASE("measure: scales with other values are found", "[verify]") {
  const Product& p = tiled().product;
  const auto changed = [&](Side side, const std::function<float(std::int64_t, float)>& value) {
    const InverseScales& s = side == Side::a ? p.problem.scale_a : p.problem.scale_b;
    const std::int64_t rows = side == Side::a ? 1 : 128;
    return take_with_scales_of(p, whole_of(p), side, 128, [&](std::int64_t row, std::int64_t tile) {
      return value(tile, s.values[static_cast<std::size_t>(row / rows * 8 + tile)]);
    });
  };
  CHECK_THAT(measured_cause(p, changed(Side::a, [](auto t, float x) { return t == 5 ? 1.0F : x; })),
             contains("the terms [640, 768) not scaled"));
  CHECK_THAT(
      measured_cause(p, changed(Side::b, [](auto t, float x) { return t == 3 ? 2 * x : x; })),
      contains("tiles of K with another weight (measured): [384, 512) x 2"));
  CHECK_THAT(measured_cause(p, changed(Side::a, [](auto, float x) { return std::sqrt(x); })),
             contains("A's scale (measured): the right one to the power 0.5"));
  CHECK_THAT(measured_cause(p, changed(Side::a, [](auto, float) { return 1.75F; })),
             contains("A's scale (measured): 1.75 everywhere"));
}

namespace {

/// Scales of A and B of other tiles of K.
std::optional<Product> with_tiles(const std::function<std::int64_t(std::int64_t)>& of_a,
                                  const std::function<std::int64_t(std::int64_t)>& of_b) {
  const Product& p = tiled().product;
  const std::optional<Product> a = with_places([&](auto r, auto t) { return r * 8 + of_a(t); });
  REQUIRE(a);
  return take_with_scales_of(*a, whole_of(p), Side::b, 128, [&](std::int64_t, std::int64_t tile) {
    return p.problem.scale_b.values[static_cast<std::size_t>(of_b(tile))];
  });
}

}  // namespace

TEST_CASE("measure: scales of both operands that are wrong at once are found", "[verify]") {
  const Product& p = tiled().product;
  CHECK_THAT(
      measured_cause(p, with_tiles([](auto t) { return t ^ 3; }, [](auto t) { return t ^ 3; })),
      contains("scale_of_other_k_tile_a_and_b: both scales (measured): tile i of K has those "
               "of tile i xor 3"));
  CHECK_THAT(
      measured_cause(
          p, with_tiles([](auto t) { return (t + 1) % 8; }, [](auto t) { return (t + 7) % 8; })),
      contains("scales_of_other_k_tiles: both scales (measured): tile i of K has A's of tile "
               "(i + 1) mod 8, B's of tile (i + 7) mod 8"));
  // A known mistake in one operand, and a measured one in the other.
  const std::optional<Product> a = with_places([](auto r, auto t) { return (r + 5) % 48 * 8 + t; });
  const std::optional<Product> both =
      with_scale_values(*a, Side::b, [](float x) { return std::exp2(std::floor(std::log2(x))); });
  CHECK_THAT(measured_cause(p, both), contains("e8m0_scale_b_truncated_and_scale_of_other_row_a"));
}

TEST_CASE("measure: scales that stand in no place of their tensor are told as such", "[verify]") {
  const Product& p = tiled().product;
  const RandomStream stream(5, "not initialised");
  const auto wrong =
      take_with_scales_of(p, whole_of(p), Side::a, 128, [&](std::int64_t row, std::int64_t tile) {
        return static_cast<float>(
            std::exp2(3.0 * stream.normal(static_cast<std::uint64_t>(row * 8 + tile))));
      });
  CHECK_THAT(measured_cause(p, wrong), contains("scale_a_not_of_its_tensor"));
  // One factor of all of them is a factor, not another tensor.
  CHECK_THAT(
      measured_cause(p, with_scale_values(p, Side::a, [](float x) { return 448.0F / 240.0F * x; })),
      contains("x 1.867"));
}

TEST_CASE("measure: another number for each code of a scale is found", "[verify]") {
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {48, 128, 1024}, .tiles_a = {48, 8}, .tiles_b = {1, 8}});
  Product p = random.product;
  std::vector<float> few(p.problem.scale_a.values.size());
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = 0.125F * static_cast<float>(8 + i * i % 7);
  p.problem.scale_a.values = few;
  const auto wrong = with_scale_values(p, Side::a, [](float x) { return x + 0.125F; });
  CHECK_THAT(measured_cause(p, wrong),
             contains("scale_codes_read_otherwise_a: A's scale (measured) is another number for "
                      "each code"));
}

TEST_CASE("verify: rows that were not written are no scales", "[verify]") {
  const Product& p = tiled().product;
  std::vector<float> wrong = compute(p, 1);
  std::fill(wrong.begin() + 32 * 128, wrong.end(), 0.0F);
  const VerifyReport report = report_of(p, wrong);
  REQUIRE(report.regions.size() == 1);
  CHECK(report.regions[0].content == RegionContent::zeros);
  REQUIRE(report.diagnosis);
  INFO(describe(report));
  for (const Cause& cause : report.diagnosis->causes)
    CHECK(cause.name.find("scale") == std::string::npos);
}

TEST_CASE("measure: terms behind the end of K are found", "[verify]") {
  const RandomProduct wide({}, {.shape = {64, 96, 512}});
  Product p = wide.product;
  p.problem.a.k = p.problem.b.k = 500;
  CHECK_THAT(measured_cause(p, compute(wide.product, 1)),
             contains("unmasked_k_tail: K padded to 512 with terms that are in neither operand"));
  const RandomProduct narrow({}, {.shape = {64, 96, 500}});
  CHECK_THAT(measured_cause(narrow.product,
                            take_with_longer_rows(narrow.product, whole_of(narrow.product), 512)),
             contains("with what lies behind each row: the next row's terms"));
}

TEST_CASE("measure: a part of a split that is added twice or rounded is found", "[verify]") {
  const RandomProduct random({}, {.shape = {48, 64, 512}});
  Product p = random.product;
  p.split = {.parts = 4};
  std::vector<float> twice = compute(p, 1);
  const std::vector<float> rest = compute(without_terms(random.product, 128, 256), 1);
  const std::vector<float> all = compute(random.product, 1);
  for (std::size_t i = 0; i < twice.size(); ++i) twice[i] += all[i] - rest[i];
  CHECK_THAT(measured_cause(p, twice), contains("[128, 256) counted twice"));
  std::vector<float> sums(twice.size(), 0.0F);
  for (std::int64_t part = 0; part < 4; ++part) {
    Product one = random.product;
    for (std::int64_t other = 3; other >= 0; --other)
      if (other != part) one = without_terms(one, other * 128, other * 128 + 128);
    const std::vector<float> stored =
        decode_codes(FormatId::bf16, cast_output(compute(one, 1), default_output(FormatId::bf16)));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += stored[i];
  }
  CHECK_THAT(measured_cause(p, sums), contains("bf16_split_parts"));
}

TEST_CASE("measure: terms that are left out, counted twice or read from elsewhere are found",
          "[verify]") {
  const Product& p = tiled().product;
  CHECK(measured_cause(p, without_terms(p, 300, 316)) ==
        "dropped_terms: terms of K (measured): [300, 316) left out");
  CHECK(measured_cause(p, without_terms(p, 777, 778)) ==
        "dropped_terms: terms of K (measured): [777, 778) left out");
  CHECK_THAT(measured_cause(p, with_terms(p, Side::a, [](std::int64_t k) { return k ^ 15; })),
             contains("k_permuted: terms of K (measured): in each 16 terms A's term i xor 15 meets "
                      "B's term i"));
  CHECK_THAT(measured_cause(p, with_terms(p, Side::a,
                                          [](std::int64_t k) {
                                            return k / 16 * 16 + k % 4 * 4 + k % 16 / 4;
                                          })),
             contains("k_permuted: terms of K (measured): in each 16 terms A's term 4 (i = 1)"));
  CHECK_THAT(measured_cause(p, take_with_moved_terms(p, whole_of(p), Side::b, 5)),
             contains("k_offset_5_b: B (measured) read 5 terms too far"));
  CHECK_THAT(
      measured_cause(p, with_terms(p, Side::b,
                                   [](std::int64_t k) {
                                     return k / 128 == 2 ? k + 128 : k / 128 == 3 ? k - 128 : k;
                                   })),
      contains("k_blocks_moved_b: blocks of 128 terms of K (measured): block i holds block 3 "
               "(i = 2), 2 (i = 3), of B"));
  CHECK_THAT(
      measured_cause(p, take_with_codes_of_rows(p, whole_of(p), Side::a,
                                                [](std::int64_t row) { return (row + 8) % 48; })),
      contains("codes_of_other_row_a: A's codes (measured): row i has those of row (i + 8) "
               "mod 48, under its own scales"));
}

TEST_CASE("measure: a block with a large weight was not counted so often", "[verify]") {
  const RandomProduct random({}, {.shape = {48, 64, 512}});
  const Product& p = random.product;
  const std::vector<float> right = compute(p, 1);
  const std::vector<float> rest = compute(without_terms(p, 128, 192), 1);
  const auto cause = [&](float weight) {
    std::vector<float> wrong = right;
    for (std::size_t i = 0; i < wrong.size(); ++i)
      wrong[i] += (weight - 1.0F) * (right[i] - rest[i]);
    return measured_cause(p, wrong);
  };
  const std::vector<std::int64_t> thrice{0, 1, 2, 2, 2, 3, 4, 5, 6, 7};
  CHECK_THAT(measured_cause(p, with_k_blocks(p, 64, {thrice, thrice, thrice})),
             contains("[128, 192) counted 3 times"));
  // As many copies of the terms as the weight says would not fit in memory.
  CHECK_THAT(cause(0x1p20F), contains("[128, 192) 1.048e+06") && !contains("counted"));
  CHECK_THAT(cause(-1.0F), contains("[128, 192) -") && !contains("counted"));
}

TEST_CASE("measure: values of codes that were read otherwise are found", "[verify]") {
  const RandomProduct random({}, {.shape = {64, 96, 256}});
  const Product& p = random.product;
  // The code 0x45 of A read as 4.
  std::vector<float> wrong = compute(p, 1);
  const Format& f = format(FormatId::e4m3fn);
  for (std::int64_t i = 0; i < 64; ++i)
    for (std::int64_t j = 0; j < 96; ++j) {
      double more = 0.0;
      for (std::int64_t k = 0; k < 256; ++k)
        if (code_at(p.problem.a, i, k) == 0x45U)
          more += (4.0 - decode(f, 0x45U)) * decode(f, code_at(p.problem.b, j, k));
      wrong[static_cast<std::size_t>(i * 96 + j)] += static_cast<float>(more);
    }
  const std::string cause = measured_cause(p, wrong);
  CHECK_THAT(cause, contains("codes_read_otherwise_a: A's codes (measured): 1 of"));
  CHECK_THAT(cause, contains("0x45 as 4 (right: 3.25)"));
}

namespace {

/// A product with what an epilogue needs.
struct Around {
  RandomProduct random{{}, {.shape = {48, 64, 128}}};
  std::vector<float> bias;
  std::vector<float> scales;
  std::vector<float> c;
  Product product = random.product;
  std::vector<float> sums = compute_sums(product, 1);

  Around() {
    float largest = 0.0F;
    for (const float x : sums) largest = std::max(largest, std::abs(x));
    const RandomStream stream(3, "around");
    for (std::uint64_t i = 0; i < 64; ++i) {
      bias.push_back(0.1F * largest * static_cast<float>(stream.normal(i)));
      scales.push_back(static_cast<float>(std::exp2(stream.normal(i + 100))));
    }
    for (std::uint64_t i = 0; i < 48 * 64; ++i)
      c.push_back(0.2F * largest * static_cast<float>(stream.normal(i + 1000)));
  }
  template <typename Value>
  [[nodiscard]] std::vector<float> stored(const Value& value) const {
    std::vector<float> result;
    for (std::size_t i = 0; i < sums.size(); ++i)
      result.push_back(static_cast<float>(value(sums[i], i / 64, i % 64)));
    return result;
  }
};

}  // namespace

TEST_CASE("verify: sums and biases that were stored in 16 bits are named", "[verify]") {
  const RandomProduct random({}, {.shape = {48, 64, 256}, .tiles_a = {48, 1}, .tiles_b = {64, 1}});
  const Product& p = random.product;
  Product plain = p;
  plain.problem.scale_a = plain.problem.scale_b = {};
  const std::vector<float> sums =
      decode_codes(FormatId::bf16, cast_output(compute(plain, 1), default_output(FormatId::bf16)));
  std::vector<float> wrong;
  for (std::size_t i = 0; i < sums.size(); ++i)
    wrong.push_back(sums[i] * (random.scale_a[i / 64] * random.scale_b[i % 64]));
  CHECK_THAT(measured_cause(p, wrong), contains("bf16_before_scales"));
  Around x;
  Product biased = x.product;
  biased.epilogue.bias = x.bias;
  const std::vector<float> narrow =
      decode_codes(FormatId::bf16, cast_output(x.bias, default_output(FormatId::bf16)));
  CHECK_THAT(
      measured_cause(biased, x.stored([&](float s, auto, std::size_t j) { return s + narrow[j]; })),
      contains("bf16_bias"));
  const RandomProduct square({}, {.shape = {64, 64, 128}});
  Product lines = square.product;
  std::vector<float> other(x.scales.rbegin(), x.scales.rend());
  lines.epilogue.row_scales = x.scales;
  lines.epilogue.column_scales = other;
  Product exchanged = lines;
  exchanged.epilogue.row_scales = other;
  exchanged.epilogue.column_scales = x.scales;
  CHECK_THAT(measured_cause(lines, compute(exchanged, 1)),
             contains("exchanged_row_and_column_scales"));
}

TEST_CASE("measure: numbers of an epilogue are found", "[verify]") {
  Around x;
  Product p = x.product;
  p.epilogue.alpha = 0.375F;
  p.epilogue.bias = x.bias;
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, std::size_t j) {
               return 0.375F * (s + x.bias[j]);
             })),
             contains("the bias x 0.375 (right: 1): alpha applied to it too"));
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, std::size_t j) {
               return 0.375F * s + 2.0F * x.bias[j];
             })),
             contains("the bias x 2 (right: 1): twice"));
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, std::size_t j) {
               return 0.375F * s + x.bias[(j + 1) % 64];
             })),
             contains("bias_of_other_column: the bias (measured): column i has that of column (i + "
                      "1) mod 64"));
  p.epilogue.c = x.c.data();
  p.epilogue.beta = 0.5F;
  CHECK_THAT(measured_cause(p, x.stored([&](float s, std::size_t i, std::size_t j) {
               return 0.375F * (s + 0.5F * x.c[i * 64 + j]) + x.bias[j];
             })),
             contains("C x 0.1875 (right: 0.5): alpha applied to it too"));
  CHECK_THAT(measured_cause(p, x.stored([&](float s, std::size_t i, std::size_t j) {
               return 0.5F * (0.375F * s + x.bias[j] + x.c[i * 64 + j]);
             })),
             contains("beta applied to it too"));
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, std::size_t j) {
               return 0.375F * s + x.bias[j] + 0.5F * x.c[j];
             })),
             contains("C (measured) read its first row for all rows"));
  CHECK_THAT(measured_cause(p, x.stored([&](float s, std::size_t i, std::size_t j) {
               return 0.375F * s + x.bias[j] + 0.5F * x.c[j * 48 + i];
             })),
             contains("C (measured) read in the other memory order"));
  Product scaled = x.product;
  scaled.epilogue.column_scales = x.scales;
  CHECK_THAT(measured_cause(scaled, x.stored([&](float s, auto, std::size_t j) {
               return s * x.scales[j ^ 1];
             })),
             contains("the scales of columns (measured): column i has that of i xor 1"));
  CHECK_THAT(measured_cause(scaled, x.stored([&](float s, auto, std::size_t j) {
               return s * x.scales[j] * x.scales[j];
             })),
             contains("the scales of columns (measured): the right ones to the power 2"));
}

TEST_CASE("verify: outputs that are limited, in another format or zero are named", "[verify]") {
  const RandomProduct random({.output = default_output(FormatId::e4m3fn)},
                             {.shape = {48, 64, 128}});
  Product p = random.product;
  p.epilogue.alpha = 0x1p-6F;
  const std::vector<float> right = compute(p, 1);
  const float largest = *std::ranges::max_element(right);
  const float bound = std::exp2(std::floor(std::log2(largest)) - 1.0F);
  std::vector<float> wrong = right;
  for (float& x : wrong) x = std::clamp(x, -bound, bound);
  CHECK_THAT(measured_cause(p, wrong),
             contains(fmt::format("clamped_output: limited to -{0} and {0} (measured)", bound)));
  CHECK_THAT(measured_cause(p, std::vector<float>(right.size(), 0.0F)), contains("zero_output"));
  const std::vector<std::byte> codes = cast_output(right, default_output(FormatId::e5m2));
  const VerifyReport report =
      verify(p, {"got", {ElementType::e4m3fn, {48, 64}, codes}, nullptr}, {.judge_power = false});
  REQUIRE(report.diagnosis);
  REQUIRE(!report.diagnosis->causes.empty());
  CHECK(report.diagnosis->causes[0].name == "e5m2_output");
}

TEST_CASE("measure: curves in place of an activation are found", "[verify]") {
  Around x;
  // Sums near 1, where curves bend.
  const auto small = [](double s) { return s * 0x1p-12; };
  const auto sigmoid = [](double v) { return 1.0 / (1.0 + std::exp(-v)); };
  Product p = x.product;
  p.epilogue.alpha = 0x1p-12F;
  p.epilogue.activation = Activation::gelu;
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, auto) {
               return small(s) * sigmoid(1.702 * small(s));
             })),
             contains("gelu by x sigmoid(1.702 x) in place of gelu"));
  CHECK_THAT(
      measured_cause(p, x.stored([&](float s, auto, auto) { return std::max(0.0, small(s)); })),
      contains("activation_relu: relu as the activation"));
  p.epilogue.activation = Activation::relu;
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, auto) {
               return s > 0 ? small(s) * small(s) : 0.0;
             })),
             contains("relu squared in place of relu"));
  p.epilogue.activation = Activation::leaky_relu;
  CHECK_THAT(
      measured_cause(
          p, x.stored([&](float s, auto, auto) { return s > 0 ? small(s) : 0.25 * small(s); })),
      contains("the slope of the activation where its argument is negative (measured): 0.25"));
  p.epilogue.activation = Activation::silu;
  CHECK_THAT(measured_cause(p, x.stored([&](float s, auto, auto) {
               const double once = small(s) * sigmoid(small(s));
               return once * sigmoid(once);
             })),
             contains("silu of silu in place of silu"));
  Product gated = x.product;
  gated.epilogue.alpha = 0x1p-12F;
  gated.epilogue.activation = Activation::swiglu;
  const auto gate = [&](std::size_t i, std::size_t of, std::size_t with, double more) {
    const double g = small(x.sums[i * 64 + of]);
    return g * sigmoid(g) * (small(x.sums[i * 64 + with]) + more);
  };
  std::vector<float> interleaved;
  std::vector<float> shifted;
  for (std::size_t i = 0; i < 48; ++i)
    for (std::size_t j = 0; j < 32; ++j) {
      interleaved.push_back(static_cast<float>(gate(i, 2 * j, 2 * j + 1, 0.0)));
      shifted.push_back(static_cast<float>(gate(i, j, 32 + j, 1.0)));
    }
  CHECK_THAT(measured_cause(gated, interleaved),
             contains("gate and factor side by side (columns 2 j and 2 j + 1)"));
  CHECK_THAT(measured_cause(gated, shifted), contains("silu of the gate times (factor + 1)"));
}

TEST_CASE("measure: noise has no cause, and what was measured is told", "[verify]") {
  const Product& p = tiled().product;
  std::vector<float> wrong = compute(p, 1);
  const RandomStream stream(9, "noise");
  for (std::size_t i = 0; i < wrong.size(); ++i)
    wrong[i] += 0.2F * std::abs(wrong[0]) * static_cast<float>(stream.normal(i));
  const VerifyReport noise = report_of(p, wrong);
  REQUIRE(noise.diagnosis);
  CHECK(noise.diagnosis->causes.empty());
  // One block in another order of rows in each column: no product that is searched.
  std::vector<float> half = compute(p, 1);
  const std::vector<float> without = compute(without_terms(p, 0, 128), 1);
  for (std::size_t i = 0; i < half.size(); ++i) half[i] = 0.5F * (half[i] + without[i]);
  const VerifyReport report = report_of(p, half);
  REQUIRE(report.diagnosis);
  INFO(describe(report));
  CHECK((!report.diagnosis->measured.empty() || !report.diagnosis->causes.empty()));
}

TEST_CASE("measure: a rule of positions is the simplest one that holds", "[verify]") {
  const std::vector<std::int64_t> i{0, 1, 5, 9, 14};
  const auto text = [&](const std::vector<std::int64_t>& to) { return rule_of(i, to, 16).text; };
  CHECK(text({2, 3, 7, 11, 16}) == "i + 2");
  CHECK(text({0, 0, 4, 8, 13}) == "i - 1, at least 0 and at most 15");
  CHECK(text({15, 0, 4, 8, 13}) == "(i + 15) mod 16");
  CHECK(text({8, 9, 13, 1, 6}) == "(i + 8) mod 16");
  CHECK(text({3, 2, 6, 10, 13}) == "i xor 3");
  CHECK(text({0, 0, 2, 4, 7}) == "i / 2");
  CHECK(text({7, 7, 7, 7, 7}) == "7, always");
  const PositionRule listed = rule_of(i, std::vector<std::int64_t>{0, 9, 5, 1, 14}, 16);
  CHECK(listed.text == "9 (i = 1), 1 (i = 9)");
  CHECK((listed.source(1) == 9 && listed.source(2) == 2));
}

TEST_CASE("verify: a summary has 25 lines of 80 characters at most", "[verify]") {
  const Product& p = tiled().product;
  std::vector<float> wrong = compute(p, 1);
  for (const std::size_t at : {7U, 600U, 2000U, 5000U}) wrong[at] += 1.0F;
  for (const auto& values :
       {wrong, std::vector<float>(wrong.size(), 0.0F), compute(without_terms(p, 0, 64), 1)}) {
    const std::string text = summary(report_of(p, values));
    INFO(text);
    CHECK(std::ranges::count(text, '\n') <= 25);
    CHECK_THAT(text, contains("mismatch: "));
    CHECK_THAT(text, contains("where: "));
    CHECK_THAT(text, contains("cause: "));
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      CHECK(end - at <= 80);
      at = end + 1;
    }
  }
  CHECK_THAT(summary(report_of(p, wrong), "fp8lab verify got.npy --details"),
             contains("\nnext:  fp8lab verify got.npy --details\n"));
}
