// The upper of two levels of scales, one a group: each group is the product that it is alone.

#include <bit>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kTerms = 256;
constexpr std::int64_t kGroups = 3;

struct Data {
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  std::vector<float> scale_a;
  std::vector<float> scale_b;
  std::vector<float> tensor_a{1.25F, 0.3F, 7.0F};
  std::vector<float> tensor_b{0.5F, 1.1F, 0.01F};

  Data() {
    const RandomStream stream(4, "tensor scales");
    std::uint64_t at = 0;
    const auto codes = [&](std::vector<std::uint8_t>& to, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)  // finite ones
        to.push_back(static_cast<std::uint8_t>(stream.bits32(at++) % 0x7f));
    };
    const auto floats = [&](std::vector<float>& to, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<float>(0.5 + stream.uniform(at++)));
    };
    codes(a, kGroups * kRows * kTerms);
    codes(b, kGroups * kColumns * kTerms);
    floats(scale_a, kGroups * kRows * 2);
    floats(scale_b, kGroups * kColumns * 2);
  }

  /// A and B of some groups from `first` on, as [count, rows, k]; one matrix each if `flat`.
  [[nodiscard]] GemmOperands operands(std::int64_t first, std::int64_t count, bool flat) const {
    const auto view = [&](ElementType type, const auto& values, std::int64_t rows, std::int64_t k) {
      std::vector<std::int64_t> shape{count, rows, k};
      if (flat) shape.erase(shape.begin());
      const auto size = static_cast<std::size_t>(rows * k);
      return view_of(type, std::move(shape),
                     std::span(values).subspan(static_cast<std::size_t>(first) * size,
                                               static_cast<std::size_t>(count) * size));
    };
    GemmOperands o;
    o.a.codes = view(ElementType::e4m3fn, a, kRows, kTerms);
    o.b.codes = view(ElementType::e4m3fn, b, kColumns, kTerms);
    o.a.scales = view(ElementType::f32, scale_a, kRows, 2);
    o.b.scales = view(ElementType::f32, scale_b, kColumns, 2);
    o.a.tiles = o.b.tiles = ScaleTiles{1, 128};
    return o;
  }
};

const GemmSpec kSpec{.model = "sm90.wgmma.e4m3", .promotion_interval = 128};

void check_same(std::span<const float> got, const std::vector<float>& right, std::int64_t group) {
  REQUIRE(got.size() == right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    INFO("group " << group << ", output " << i << ": expected " << right[i] << ", got " << got[i]);
    CHECK(std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(right[i]));
  }
}

}  // namespace

TEST_CASE("groups: a tensor scale of each", "[product]") {
  const Data data;
  GemmOperands all = data.operands(0, kGroups, false);
  all.a.group_tensor_scales = data.tensor_a;
  all.b.group_tensor_scales = data.tensor_b;
  const std::vector<float> d =
      compute(make_grouped_product(all, kSpec, {GroupKind::batched, {}, 0}));
  for (std::int64_t g = 0; g < kGroups; ++g) {
    const auto at = static_cast<std::size_t>(g);
    GemmOperands one = data.operands(g, 1, true);
    one.a.tensor_scale = data.tensor_a[at];
    one.b.tensor_scale = data.tensor_b[at];
    check_same(std::span(d).subspan(at * kRows * kColumns, kRows * kColumns),
               compute(make_product(one, kSpec)), g);
  }
}

TEST_CASE("groups: a tensor scale of each group of terms", "[product]") {
  const Data data;
  GemmOperands whole = data.operands(0, 1, true);
  whole.a.group_tensor_scales = {1.25F, 0.3F};
  whole.b.tensor_scale = 0.7F;
  const GroupedProduct product =
      make_grouped_product(whole, kSpec, {GroupKind::k_ends, {128, 256}, 0});
  const std::vector<float> d = compute(product);
  for (std::int64_t g = 0; g < 2; ++g) {
    const auto at = static_cast<std::size_t>(g);
    GemmOperands one = data.operands(0, 1, true);
    one.a.tensor_scale = whole.a.group_tensor_scales[at];
    one.b.tensor_scale = 0.7F;
    const Product part = take_k(make_product(one, kSpec), g * 128, g * 128 + 128);
    check_same(std::span(d).subspan(at * kRows * kColumns, kRows * kColumns), compute(part), g);
  }
}

TEST_CASE("groups: tensor scales that do not fit are refused", "[product]") {
  const Data data;
  GemmOperands all = data.operands(0, kGroups, false);
  all.a.group_tensor_scales = {1.0F, 2.0F};
  CHECK_THROWS_WITH(make_grouped_product(all, kSpec, {GroupKind::batched, {}, 0}),
                    contains("tensor_scale_a: expected one value, or 3, one per group, got 2"));
  all.a.group_tensor_scales = data.tensor_a;
  all.a.tensor_scale = 2.0F;
  CHECK_THROWS_WITH(make_grouped_product(all, kSpec, {GroupKind::batched, {}, 0}),
                    contains("got both"));
  GemmOperands one = data.operands(0, 1, true);
  one.b.group_tensor_scales = data.tensor_b;
  CHECK_THROWS_WITH(make_product(one, kSpec), contains("tensor_scale"));
  all = data.operands(0, kGroups, false);
  all.a.scales.reset();
  all.a.tiles.reset();
  all.a.group_tensor_scales = data.tensor_a;
  CHECK_THROWS_WITH(make_grouped_product(all, kSpec, {GroupKind::batched, {}, 0}),
                    contains("tensor_scale"));
}
