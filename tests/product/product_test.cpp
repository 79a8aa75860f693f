#include "fp8lab/product/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/execution.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

const std::vector<RandomProduct::Options>& kinds() {
  static const std::vector<RandomProduct::Options> kKinds{
      {},
      {.with_c = true},
      {.tiles_a = {24}, .tiles_b = {1}},
      {.tiles_a = {24, 4}, .tiles_b = {1, 4}, .with_c = true},
      {.tiles_a = {24, 4}, .tiles_b = {20, 4}}};
  return kKinds;
}

}  // namespace

TEST_CASE("product: a sample has the bits of the whole", "[verify]") {
  for (const RandomProduct::Options& options : kinds()) {
    const RandomProduct random({.promotion_interval = 128}, options);
    const std::vector<float> whole = compute(random.product);
    const Sample sample{{0, 7, 23}, {1, 2, 19}};
    const std::vector<float> part = compute(take(random.product, sample));
    for (std::size_t i = 0; i < 9; ++i) {
      const auto at = static_cast<std::size_t>(sample.rows[i / 3] * 20 + sample.columns[i % 3]);
      CHECK(std::bit_cast<std::uint32_t>(part[i]) == std::bit_cast<std::uint32_t>(whole[at]));
    }
  }
}

TEST_CASE("product: a sample of operands that lie along K has the bits of the whole", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}});
  const auto turned = [](CodeMatrix& m, std::vector<std::uint8_t>& to) {
    const auto* from = static_cast<const std::uint8_t*>(m.data);
    for (std::int64_t k = 0; k < m.k; ++k)
      for (std::int64_t row = 0; row < m.rows; ++row)
        to.push_back(from[row * m.row_stride + k * m.k_stride]);
    m = {m.format, to.data(), m.rows, m.k, 1, m.rows};
  };
  std::array<std::vector<std::uint8_t>, 2> codes;
  Product product = random.product;
  turned(product.problem.a, codes[0]);
  turned(product.problem.b, codes[1]);
  const std::vector<float> whole = compute(random.product);
  const Sample sample{{3, 20}, {0, 11, 19}};
  const std::vector<float> part = compute(take(product, sample));
  for (std::size_t i = 0; i < 6; ++i) {
    const auto at = static_cast<std::size_t>(sample.rows[i / 3] * 20 + sample.columns[i % 3]);
    INFO("output " << i);
    CHECK(std::bit_cast<std::uint32_t>(part[i]) == std::bit_cast<std::uint32_t>(whole[at]));
  }
}

TEST_CASE("product: a sample has the first place, the last one, and those between evenly",
          "[verify]") {
  using Places = std::vector<std::int64_t>;
  CHECK(spread(10, 4) == Places{0, 3, 6, 9});
  CHECK(spread(11, 4) == Places{0, 3, 6, 10});
  CHECK(spread(7, 2) == Places{0, 6});
  CHECK(spread(7, 1) == Places{0});
  CHECK(spread(3, 3) == Places{0, 1, 2});
  CHECK(spread(3, 64) == Places{0, 1, 2});
  CHECK(spread(1, 64) == Places{0});
  CHECK(spread(0, 64).empty());
}

TEST_CASE("product: some of the terms have their own scales, and begin at a tile", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {1, 4}});
  const auto values = [](const InverseScales& scales) {
    return std::vector<float>(scales.values.begin(), scales.values.end());
  };
  const Product part = take_k(random.product, 128, 384);
  CHECK(part.problem.a.k == 256);
  CHECK(part.problem.b.k == 256);
  CHECK(values(part.problem.scale_b) == std::vector<float>{random.scale_b[1], random.scale_b[2]});
  for (std::size_t row = 0; row < 24; ++row) {
    INFO("row " << row);
    CHECK(part.problem.scale_a.values[2 * row] == random.scale_a[4 * row + 1]);
    CHECK(part.problem.scale_a.values[2 * row + 1] == random.scale_a[4 * row + 2]);
    const auto at = static_cast<std::int64_t>(row);
    CHECK(code_at(part.problem.a, at, 0) == code_at(random.product.problem.a, at, 128));
  }
  CHECK_THROWS_WITH(take_k(random.product, 64, 256),
                    contains("begin: expected a multiple of 128, got 64"));
}

TEST_CASE("product: one part of a split sum is the sum itself", "[verify]") {
  for (const RandomProduct::Options& options : kinds()) {
    const RandomProduct random({.promotion_interval = 128}, options);
    const GemmProblem& p = random.product.problem;
    const std::vector<float> whole = compute(take_k(random.product, 0, 512));
    Product no_c = random.product;
    no_c.problem.c = nullptr;
    CHECK(compare(p, compute(no_c), whole) == "equal");
    const std::vector<float> halves = *compute_split_k(random.product, 2);
    const std::vector<float> golden = compute(random.product);
    for (std::size_t i = 0; i < halves.size(); ++i) CHECK(std::abs(halves[i] - golden[i]) < 1e-2F);
  }
}

TEST_CASE("product: without promotion, two halves are two accumulators", "[verify]") {
  const RandomProduct random({}, {});
  Product promoted = random.product;
  promoted.problem.promotion_interval = 256;
  const std::vector<float> halves = *compute_split_k(random.product, 2);
  CHECK(compare(promoted.problem, compute(promoted), halves) == "equal");
  CHECK(compare(promoted.problem, compute(random.product), halves) != "equal");
}

TEST_CASE("product: C goes where it is named, in every variant", "[verify]") {
  for (const RandomProduct::Options& options :
       {RandomProduct::Options{.with_c = true},
        RandomProduct::Options{.tiles_a = {24}, .with_c = true},
        RandomProduct::Options{.tiles_a = {24, 4}, .tiles_b = {1, 4}, .with_c = true}}) {
    const RandomProduct random({.promotion_interval = 128}, options);
    Product p = random.product;
    std::vector<std::vector<float>> seen;
    for (const CPlacement place : possible_c_placements(p.problem)) {
      p.problem.c_enters = place;
      INFO(to_string(place));
      const Sample sample{{0, 7, 23}, {1, 2, 19}};
      const std::vector<float> whole = compute(p);
      const std::vector<float> part = compute(take(p, sample));
      for (std::size_t i = 0; i < 9; ++i)
        CHECK(part[i] ==
              whole[static_cast<std::size_t>(sample.rows[i / 3] * 20 + sample.columns[i % 3])]);
      Product without = p;
      without.problem.c = nullptr;
      const std::vector<float> split = *compute_split_k(p, 2);
      CHECK_NOTHROW(compute_split_k(p, 4));  // parts of one tile
      const std::vector<float> missing = *compute_missing_promotion(p);
      const std::vector<float> split_without = *compute_split_k(without, 2);
      const std::vector<float> scale =
          options.tiles_a.size() == 1 ? random.scale_a : std::vector<float>(24, 1.0F);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        // Of tiles the scale of the first one: C is in its accumulator.
        float unit = place == CPlacement::accumulator ? scale[i / 20] : 1.0F;
        if (options.tiles_a.size() == 2 && place == CPlacement::accumulator)
          unit = random.scale_a[i / 20 * 4] * random.scale_b[0];
        const float c = unit * random.c[i];
        CHECK(std::abs(split[i] - split_without[i] - c) < 0.05F * (1.0F + std::abs(c)));
        // With tiles the first interval comes under the second one's scale.
        if (options.tiles_a.size() < 2)
          CHECK(std::abs(missing[i] - whole[i]) < 0.1F * (1.0F + std::abs(whole[i])));
      }
      CHECK(std::find(seen.begin(), seen.end(), whole) == seen.end());
      seen.push_back(whole);
    }
    p.problem.c_enters = CPlacement::unnamed;
    CHECK_THROWS_WITH(compute(p), contains("c_enters: expected accumulator or"));
  }
}

TEST_CASE("product: a missing promotion is two intervals in one accumulator", "[verify]") {
  // With 256 terms and promotion every 128, that is the product without promotion.
  const RandomProduct random({.promotion_interval = 128}, {.shape = {16, 16, 256}});
  Product unpromoted = random.product;
  unpromoted.problem.promotion_interval = 0;
  CHECK(compare(random.product.problem, compute(unpromoted),
                *compute_missing_promotion(random.product)) == "equal");
  // Beyond the second interval everything is promoted as before.
  const RandomProduct longer({.promotion_interval = 128},
                             {.shape = {16, 16, 512}, .tiles_a = {16, 4}, .tiles_b = {1, 4}});
  const std::vector<float> missing = *compute_missing_promotion(longer.product);
  const std::vector<float> golden = compute(longer.product);
  CHECK(compare(longer.product.problem, golden, missing) != "equal");
  CHECK_FALSE(compute_missing_promotion(take_k(longer.product, 0, 128)));
}

TEST_CASE("product: two intervals without a promotion between them have the second one's scales",
          "[verify]") {
  // Codes 0, 1 and -1 and scales that are powers of two: every sum is exact.
  RandomProduct random({.promotion_interval = 128},
                       {.shape = {16, 16, 512}, .tiles_a = {16, 4}, .tiles_b = {1, 4}});
  constexpr std::array<std::uint8_t, 3> kCodes{0x00, 0x38, 0xb8};
  for (auto* codes : {&random.a, &random.b})
    for (std::uint8_t& code : *codes) code = kCodes[code % 3];
  GemmProblem& p = random.product.problem;
  for (auto [values, scales] :
       {std::pair{&random.scale_a, &p.scale_a}, {&random.scale_b, &p.scale_b}}) {
    for (std::size_t i = 0; i < values->size(); ++i)
      (*values)[i] = std::ldexp(1.0F, static_cast<int>(4 * i % 7) - 2);
    scales->values = *values;
  }
  const ScaleLookup scale_a(p.scale_a, p.a);
  const ScaleLookup scale_b(p.scale_b, p.b);
  REQUIRE(scale_a.at(3, 0) * scale_b.at(5, 0) != scale_a.at(3, 128) * scale_b.at(5, 128));
  const std::vector<float> missing = *compute_missing_promotion(random.product);
  for (std::int64_t i = 0; i < 16; ++i)
    for (std::int64_t j = 0; j < 16; ++j) {
      double expected = 0.0;
      for (std::int64_t k = 0; k < 512; ++k) {
        const std::int64_t of = std::max<std::int64_t>(k, 128);
        expected += decode(format(p.a.format), code_at(p.a, i, k)) *
                    decode(format(p.b.format), code_at(p.b, j, k)) *
                    static_cast<double>(scale_a.at(i, of) * scale_b.at(j, of));
      }
      INFO("output " << i << ", " << j);
      CHECK(static_cast<double>(missing[static_cast<std::size_t>(16 * i + j)]) == expected);
    }
}

TEST_CASE("product: tiles of several intervals are as if each interval had its scale", "[verify]") {
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {4, 3, 1024}, .tiles_a = {4, 8}, .tiles_b = {3, 8}});
  // Tiles of 512 terms: neither an interval nor two of them are a whole one.
  for (const bool of_a : {true, false}) {
    INFO("coarse scales of " << (of_a ? "A" : "B"));
    Product fine = random.product;
    Product coarse = random.product;
    InverseScales& each = of_a ? fine.problem.scale_a : fine.problem.scale_b;
    InverseScales& four = of_a ? coarse.problem.scale_a : coarse.problem.scale_b;
    std::vector<float> repeated;
    std::vector<float> once;
    for (std::size_t i = 0; i < each.values.size(); ++i) {
      repeated.push_back(each.values[i / 4 * 4]);
      if (i % 4 == 0) once.push_back(each.values[i]);
    }
    each.values = fine.keep(std::move(repeated));
    four.values = coarse.keep(std::move(once));
    four.k_block = 512;
    CHECK(compare(fine.problem, compute(coarse), compute(fine)) == "equal");
    const std::optional<std::vector<float>> missing = compute_missing_promotion(coarse);
    REQUIRE(missing);
    CHECK(compare(fine.problem, *missing, *compute_missing_promotion(fine)) == "equal");
    CHECK(compare(fine.problem, *missing, compute(fine)) != "equal");
  }
}

TEST_CASE("product: scales need the shape that their tiles give", "[verify]") {
  const auto tiles = [](const std::vector<std::int64_t>& shape, std::int64_t rows,
                        std::int64_t k) -> std::string {
    try {
      const ScaleTiles found = tiles_of_shape("scale_a", shape, rows, k);
      return fmt::format("{}x{}", found.rows, found.columns);
    } catch (const Error& error) {
      return error.what();
    }
  };
  CHECK(tiles({}, 64, 256) == "64x256");
  CHECK(tiles({1}, 64, 256) == "64x256");
  CHECK(tiles({1, 1}, 64, 256) == "64x256");
  CHECK(tiles({64}, 64, 256) == "1x256");
  CHECK(tiles({64, 1}, 64, 256) == "1x256");
  CHECK(tiles({64, 2}, 64, 256) == "1x128");
  CHECK(tiles({1, 2}, 64, 256) == "64x128");
  CHECK(tiles({2, 3}, 200, 300) == "128x128");
  CHECK(tiles({64, 8}, 64, 256) == "1x32");
  // The transposes, which have as many values.
  CHECK_THAT(tiles({2, 64}, 64, 256), contains("[64, 2] (1x128 tiles)") && contains("got [2, 64]"));
  CHECK_THAT(tiles({8, 4}, 512, 1024), contains("[4, 8] (128x128 tiles)") && contains("[8, 4]"));
  CHECK_THAT(tiles({3, 2}, 200, 300), contains("got [3, 2]"));
  // Tiles that nobody named, of a side that no recipe has.
  CHECK_THAT(tiles({4, 32}, 64, 128),
             contains("other tiles must be named") && contains("got [4, 32]"));
  CHECK_THAT(tiles({1, 64}, 64, 256), contains("expected [64] or [64, 1] for one scale per row") &&
                                          contains("torch's form"));
  CHECK_THAT(tiles({1, 4}, 4, 512), contains("or named tiles (0x128) for scales along k"));
  CHECK_THAT(tiles({4, 2, 1}, 4, 256), contains("got [4, 2, 1]"));

  const ScaleTiles named{64, 4};
  CHECK(checked_tiles("scale_a", std::vector<std::int64_t>{2, 64}, named, 128, 256) == named);
  CHECK_THROWS_WITH(checked_tiles("scale_a", std::vector<std::int64_t>{64, 2}, named, 128, 256),
                    contains("[ceil(128/64), ceil(256/4)] = [2, 64], got [64, 2]"));
  CHECK(parse_scale_tiles("--tiles-a", "1x128") == ScaleTiles{1, 128});
  CHECK(parse_scale_tiles("--tiles-a", "0x32") == ScaleTiles{0, 32});
  // Rows that have scales of their own, also where there are but two or one of them.
  const auto fitting = [](const std::vector<std::int64_t>& grid, std::int64_t rows) {
    return tiles_of_shape("scale_a", grid, rows, 512);
  };
  CHECK(fitting({3, 4}, 3) == ScaleTiles{1, 128});
  CHECK(fitting({2, 4}, 2) == ScaleTiles{1, 128});
  CHECK(fitting({1, 4}, 2) == ScaleTiles{2, 128});
  CHECK(fitting({1, 4}, 1) == ScaleTiles{1, 128});
  for (const char* text : {"", "1", "1x", "x128", "1x128x2", "-1x128", "1 x 128"})
    CHECK_THROWS_WITH(parse_scale_tiles("--tiles-a", text), contains("--tiles-a: expected ROWSxK"));
  CHECK_NOTHROW(require_scale_type("scale_a", ElementType::e8m0fnu));
  CHECK_THROWS_WITH(require_scale_type("scale_a", ElementType::u8),
                    contains("`scale_format=e8m0fnu`"));
}

TEST_CASE("product: NaN and infinities are counted wherever they are", "[verify]") {
  RandomProduct random({.model = "sm90.wgmma.e5m2"}, {.tiles_a = {24}, .with_c = true});
  CHECK(describe(count_non_finite(random.product)).empty());
  random.a[5] = 0x7d;   // NaN
  random.b[7] = 0xfc;   // -Inf
  random.b[99] = 0x7f;  // NaN
  std::vector<float> c(480, 0.0F);
  c[3] = INFINITY;
  random.product.problem.c = c.data();
  CHECK(describe(count_non_finite(random.product)) ==
        "A has 1 NaN; B has 1 NaN and 1 infinite; C has 1 infinite");
  // Whatever the strides.
  CodeMatrix turned = random.product.problem.b;
  std::swap(turned.rows, turned.k);
  std::swap(turned.row_stride, turned.k_stride);
  CHECK(count_non_finite(turned) == NonFinite{1, 1});
  turned.k /= 2;
  turned.k_stride *= 2;
  CHECK(count_non_finite(turned) == NonFinite{1, 1});  // they are in the first of the even rows
  turned.data = random.b.data() + 512;
  CHECK(count_non_finite(turned) == NonFinite{0, 0});
  const std::vector<std::uint16_t> words{0x7c00, 0x7c01, 0xfc00, 0x7bff};
  CHECK(count_non_finite(FormatId::f16, std::as_bytes(std::span(words))) == NonFinite{1, 2});
}

TEST_CASE("product: non finite numbers are counted for each tensor by its own name", "[verify]") {
  RandomProduct random({}, {.tiles_a = {24}, .tiles_b = {20}, .with_c = true});
  Product& p = random.product;
  // So many NaN first, then so many infinities.
  const auto floats = [](std::size_t size, std::size_t nan, std::size_t infinite) {
    std::vector<float> values(size, 1.0F);
    for (std::size_t i = 0; i < nan + infinite; ++i) values[i] = i < nan ? NAN : -INFINITY;
    return values;
  };
  const std::vector<float> scale_a = floats(24, 2, 1);
  const std::vector<float> scale_b = floats(20, 3, 0);
  const std::vector<float> c = floats(480, 0, 4);
  p.problem.scale_a.values = scale_a;
  p.problem.scale_b.values = scale_b;
  p.problem.c = c.data();
  random.a[5] = 0x7f;
  for (const std::size_t i : {std::size_t{7}, std::size_t{700}}) random.b[i] = 0xff;
  const std::string text =
      "A has 1 NaN; B has 2 NaN; scale_a has 2 NaN and 1 infinite; scale_b has 3 NaN; "
      "C has 4 infinite";
  CHECK(describe(count_non_finite(p)) == text);
  p.a_original = std::make_shared<const std::vector<float>>(floats(9, 5, 0));
  p.b_original = std::make_shared<const std::vector<float>>(floats(9, 0, 6));
  CHECK(describe(count_non_finite(p)) ==
        "A before quantization has 5 NaN; B before quantization has 6 infinite; " + text);
  p.problem.scale_a = {};
  p.a_original = nullptr;
  CHECK(describe(count_non_finite(p)) ==
        "B before quantization has 6 infinite; A has 1 NaN; B has 2 NaN; scale_b has 3 NaN; "
        "C has 4 infinite");
}

TEST_CASE("product: operands that do not fit are refused with the way out", "[verify]") {
  const std::vector<std::uint8_t> codes(64 * 32, 0x38);
  const std::vector<float> floats(64 * 32, 1.0F);
  const auto matrix = [&](ElementType type, std::int64_t rows, std::int64_t k) {
    if (type == ElementType::f32)
      return view_of(type, {rows, k},
                     std::span<const float>(floats).first(static_cast<std::size_t>(rows * k)));
    return view_of(type, {rows, k},
                   std::span<const std::uint8_t>(codes).first(static_cast<std::size_t>(rows * k)));
  };
  const auto message = [](const GemmOperands& operands, GemmSpec spec = {}) -> std::string {
    if (spec.model.empty()) spec.model = "sm90.wgmma.e4m3";
    return test::message_of([&] { (void)make_product(operands, spec); });
  };
  const ElementType e4m3fn = ElementType::e4m3fn;
  const TensorView a = matrix(e4m3fn, 32, 64);
  CHECK(message({.a = {a}, .b = {a}}) == "accepted");
  CHECK(message({.a = {a}, .b = {.codes = matrix(e4m3fn, 64, 32), .transposed = true}}) ==
        "accepted");
  CHECK_THAT(message({.a = {a}, .b = {matrix(e4m3fn, 64, 32)}}), contains("give `transpose_b`"));
  CHECK_THAT(message({.a = {matrix(ElementType::u8, 32, 64)}, .b = {a}}),
             contains("`dtype=e4m3fn`"));
  CHECK_THAT(message({.a = {matrix(ElementType::f32, 32, 64)}, .b = {a}}), contains("`recipe`"));
  CHECK_THAT(message({.a = {matrix(ElementType::e5m2, 32, 64)}, .b = {a}}), contains("e4m3fn for"));
  const TensorView fnuz = matrix(ElementType::e4m3fnuz, 32, 64);
  CHECK_THAT(message({.a = {fnuz}, .b = {fnuz}}),
             contains("`model=exact`, fp32 or gfx942.mfma.fp8"));
  CHECK(message({.a = {fnuz}, .b = {fnuz}},
                {.model = "gfx942.mfma.fp8", .output = default_output(FormatId::e4m3fnuz)}) ==
        "accepted");
  CHECK_THAT(message({.a = {a}, .b = {a}}, {.model = "gfx942.mfma.fp8"}), contains("e4m3fnuz for"));
  CHECK(message({.a = {fnuz}, .b = {fnuz}}, {.model = "exact"}) == "accepted");
  const OutputCast fnuz_output = default_output(FormatId::e4m3fnuz);
  CHECK_THAT(message({.a = {a}, .b = {a}}, {.output = fnuz_output}), contains("FNUZ is AMD's"));
  CHECK(message({.a = {a}, .b = {a}}, {.model = "fp32", .output = fnuz_output}) == "accepted");
  CHECK_THAT(message({.a = {a}, .b = {a}, .recipe = "te-current"}), contains("floats"));
  CHECK_THAT(message({.a = {.codes = a,
                            .scales = view_of(ElementType::f32, {5},
                                              std::span<const float>(floats).first(5))},
                      .b = {a}}),
             contains("scale_a: expected one value, [32] or [32, 1]") && contains("got [5]"));
  CHECK_THAT(message({.a = {a}, .b = {a}, .c = matrix(ElementType::f32, 32, 64)}),
             contains("[m, n] = [32, 32]"));
  CHECK_THAT(message({.a = {a}, .b = {a}}, {.promotion_interval = 100}), contains("multiple"));
  const TensorView f = matrix(ElementType::f32, 32, 64);
  CHECK_THAT(message({.a = {f}, .b = {f}, .recipe = "te-current"}, {.model = "sm90.wgmma.e5m2"}),
             contains("e5m2"));
  CHECK_THROWS_WITH(default_output(FormatId::e8m0fnu), contains("e8m0fnu"));
}

TEST_CASE(
    "product: what is computed some rows at a time has the bits of the whole, whatever its scale "
    "blocks",
    "[product][long]") {
  // Large enough to be told about; 512 rows at a time are no whole number of blocks of 48 rows.
  constexpr std::int64_t kRows = 1100;
  constexpr std::int64_t kBlock = 48;
  RandomProduct random({}, {.shape = {kRows, 2400, 4096}, .tiles_a = {kRows}, .tiles_b = {1}});
  InverseScales& scales = random.product.problem.scale_a;
  scales.values = scales.values.first((kRows + kBlock - 1) / kBlock);
  scales.row_block = kBlock;
  std::vector<double> told;
  Execution ran;
  const Finished parts = compute_finished(
      random.product, false, 2, ran, [&](std::string_view, double done) { told.push_back(done); });
  CHECK(parts.values == compute(random.product, 2));
  REQUIRE(told.size() >= 3);
  CHECK(told.front() == 0.0);
  CHECK(told.back() == 1.0);
  CHECK(std::is_sorted(told.begin(), told.end()));
}

TEST_CASE("product: a large sum is told once for each 512 rows, and one in parts of K is not",
          "[product][long]") {
  constexpr std::int64_t kRows = 1024;
  constexpr std::int64_t kColumns = 2400;
  constexpr std::int64_t kTerms = 4096;
  std::vector<std::uint8_t> a(kRows * kTerms, 0x38);
  const std::vector<std::uint8_t> b(kColumns * kTerms, 0x38);
  // Row i is of ones or twos.
  const auto value = [](std::int64_t row) { return row % 3 == 0 ? 2.0F : 1.0F; };
  for (std::int64_t row = 0; row < kRows; row += 3)
    std::fill_n(a.begin() + row * kTerms, kTerms, std::uint8_t{0x40});
  Product product;
  product.model = "exact";
  product.problem.model = find_instruction_model("exact").accumulator;
  product.problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a, kRows, kTerms);
  product.problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, kColumns, kTerms);
  const auto told = [&](int parts) {
    product.split = {.parts = parts, .tile = kTerms / 2};
    std::vector<double> all;
    Execution ran;
    const std::vector<float> d =
        compute_finished(product, false, 2, ran, [&](std::string_view, double done) {
          all.push_back(done);
        }).values;
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t column = 0; column < kColumns; ++column)
        if (d[static_cast<std::size_t>(row * kColumns + column)] != kTerms * value(row)) ++wrong;
    CHECK(wrong == 0);
    return all;
  };
  CHECK(told(1) == std::vector<double>{0.0, 0.5, 1.0});
  CHECK(told(2) == std::vector<double>{0.0});
}
