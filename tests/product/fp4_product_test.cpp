// Products of FP4 and FP6 codes, and of NVFP4's two levels of scales.

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/product.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kM = 5;
constexpr std::int64_t kN = 7;
constexpr std::int64_t kK = 128;

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, "fp4 product");
  std::vector<float> x;
  for (std::int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return x;
}

struct Data {
  std::vector<float> a = normal(kM * kK, 1);
  std::vector<float> b = normal(kN * kK, 2);
  std::vector<float> c = normal(kM * kN, 3);

  [[nodiscard]] GemmOperands operands(const std::string& recipe) const {
    GemmOperands o;
    o.a.codes = view_of(ElementType::f32, {kM, kK}, std::span<const float>(a));
    o.b.codes = view_of(ElementType::f32, {kN, kK}, std::span<const float>(b));
    o.recipe = recipe;
    return o;
  }
};

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](float u, float v) {
           return std::bit_cast<std::uint32_t>(u) == std::bit_cast<std::uint32_t>(v);
         });
}

}  // namespace

TEST_CASE("nvfp4: the second level scales the sum, C after it", "[product]") {
  const Data data;
  for (const char* model : {"sm100.tcgen05.mxf4nvf4", "sm120.mma.mxf4nvf4"}) {
    const Product whole = make_product(data.operands("nvfp4"), {.model = model});
    CHECK(applies_scales(whole.problem));
    const float a = whole.problem.scale_a.tensor_scale;
    const float b = whole.problem.scale_b.tensor_scale;
    CHECK(a != 1.0F);
    Product blocks = whole;
    blocks.problem.scale_a.tensor_scale = blocks.problem.scale_b.tensor_scale = 1.0F;
    std::vector<float> expected = compute(blocks);
    for (float& sum : expected) sum = std::fma(a * b, sum, 0.0F);
    CHECK(same_bits(compute(whole), expected));
    Product with_c = whole;
    with_c.problem.c = data.c.data();
    CHECK_THROWS_WITH(validate(with_c.problem, with_c.size()), contains("c_enters"));
    with_c.problem.c_enters = CPlacement::epilogue;
    expected = compute(blocks);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = std::fma(a * b, expected[i], data.c[i]);
    CHECK(same_bits(compute(with_c), expected));
  }
}

TEST_CASE("nvfp4: outside a block-scaled instruction each scale has both levels", "[product]") {
  const Data data;
  GemmSpec spec{.model = "exact", .promotion_interval = 16};
  const Product whole = make_product(data.operands("nvfp4"), spec);
  CHECK_FALSE(applies_scales(whole.problem));
  Product folded = whole;
  for (InverseScales* scales : {&folded.problem.scale_a, &folded.problem.scale_b}) {
    std::vector<float> values;
    for (const float value : scales->values) values.push_back(value * scales->tensor_scale);
    *scales = {folded.keep(std::move(values)), scales->row_block, scales->k_block};
  }
  CHECK(same_bits(compute(whole), compute(folded)));
}

TEST_CASE("nvfp4: samples of a product have its bits", "[product]") {
  const Data data;
  const Product whole = make_product(data.operands("nvfp4"), {.model = "sm100.tcgen05.mxf4nvf4"});
  const std::vector<float> d = compute(whole);
  const Sample sample{{1, 3}, {0, 2, 6}};
  const std::vector<float> some = compute(take(whole, sample));
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      CHECK(some[i * 3 + j] ==
            d[static_cast<std::size_t>(sample.rows[i] * kN + sample.columns[j])]);
}

TEST_CASE("mxfp6 and mxfp4: their instructions take what their recipes make", "[product]") {
  const Data data;
  CHECK_NOTHROW(
      compute(make_product(data.operands("mxfp6-e2m3"), {.model = "sm100.tcgen05.mxf8f6f4.e2m3"})));
  CHECK_NOTHROW(
      compute(make_product(data.operands("mxfp6-e3m2"), {.model = "sm120.mma.mxf8f6f4.e3m2"})));
  const Product wide =
      make_product(data.operands("mxfp4"), {.model = "sm100.tcgen05.mxf8f6f4.e2m1"});
  const Product narrow = make_product(data.operands("mxfp4"), {.model = "sm100.tcgen05.mxf4nvf4"});
  CHECK(applies_scales(wide.problem));
  CHECK(applies_scales(narrow.problem));
  CHECK_THROWS_WITH(make_product(data.operands("mxfp4"), {.model = "sm100.tcgen05.mxf8f6f4.e4m3"}),
                    contains("e4m3fn"));
}

TEST_CASE("fp4 operands: what does not fit is refused", "[product]") {
  const std::vector<std::uint8_t> codes(kM * kK, 0x11);
  GemmOperands o;
  o.a.codes = view_of(ElementType::e2m1, {kM, kK}, std::span<const std::uint8_t>(codes));
  o.b.codes = o.a.codes;
  CHECK_THROWS_WITH(make_product(o, {.model = "sm100.tcgen05.mxf4nvf4"}),
                    contains("codes of 4 bits"));
  const std::vector<std::uint8_t> good(kM * kK, 0x1);
  o.a.codes = view_of(ElementType::e2m1, {kM, kK}, std::span<const std::uint8_t>(good));
  o.b.codes = o.a.codes;
  CHECK_NOTHROW(make_product(o, {.model = "sm100.tcgen05.mxf4nvf4"}));
  o.a.tensor_scale = 2.0F;
  CHECK_THROWS_WITH(make_product(o, {.model = "sm100.tcgen05.mxf4nvf4"}),
                    contains("scale_a.tensor_scale"));
}
