// Splits of K in tiles of several blocks that have scales of their own, and grouped operands whose
// tiles are unlike.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

std::vector<std::uint8_t> drawn_codes(std::int64_t count, std::uint64_t seed) {
  const RandomStream random(seed, "codes of tiles");
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < count; ++i)
    codes.push_back(static_cast<std::uint8_t>(random.bits32(static_cast<std::uint64_t>(i)) & 0xf7));
  return codes;
}

std::vector<float> drawn_scales(std::int64_t count, std::uint64_t seed) {
  const RandomStream random(seed, "scales of tiles");
  std::vector<float> scales;
  for (std::int64_t i = 0; i < count; ++i)
    scales.push_back(static_cast<float>(0.5 + random.uniform(static_cast<std::uint64_t>(i))));
  return scales;
}

}  // namespace

TEST_CASE("split: parts are sums of their own tiles, of one block or of several", "[product]") {
  const std::vector<std::uint8_t> a = drawn_codes(3 * 400, 1);
  const std::vector<std::uint8_t> b = drawn_codes(2 * 400, 2);
  const std::vector<float> scale_a = drawn_scales(3 * 13, 3);
  const std::vector<float> scale_b = drawn_scales(2 * 13, 4);
  for (const bool scaled : {false, true})
    for (const std::int64_t tile : {32, 64, 96})
      for (const int parts : {2, 3, 4, 5})
        for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo}) {
          GemmOperands operands;
          operands.a.codes = view_of(ElementType::e4m3fn, {3, 400}, std::span(a));
          operands.b.codes = view_of(ElementType::e4m3fn, {2, 400}, std::span(b));
          if (scaled) {
            operands.a.scales = view_of(ElementType::f32, {3, 13}, std::span(scale_a));
            operands.b.scales = view_of(ElementType::f32, {2, 13}, std::span(scale_b));
          }
          const Product whole =
              make_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32});
          const std::int64_t tiles = (400 + tile - 1) / tile;
          const std::int64_t each = (tiles + parts - 1) / parts;
          std::vector<float> expected;
          for (std::int64_t part = 0; part < parts; ++part) {
            Product own = whole;
            bool any = false;
            for (std::int64_t i = 0; i < tiles; ++i) {
              const bool has = cut == SplitCut::modulo ? i % parts == part : i / each == part;
              any = any || has;
              if (!has)
                own = without_terms(own, i * tile, std::min<std::int64_t>(i * tile + tile, 400));
            }
            if (!any) continue;
            const std::vector<float> sums = compute(own);
            if (expected.empty()) expected.resize(sums.size());
            for (std::size_t i = 0; i < sums.size(); ++i)
              expected[i] = part == 0 ? sums[i] : expected[i] + sums[i];
          }
          Product split = whole;
          split.split = {.parts = parts, .tile = tile, .cut = cut};
          INFO(fmt::format("scaled {}, tiles of {}, {} parts, {}", scaled, tile, parts,
                           to_string(cut)));
          CHECK(compute(split) == expected);
        }
  CHECK(test::message_of([] { (void)find_split_cut("x"); }) ==
        "split_cut: expected one of contiguous, modulo, got 'x'");
  CHECK(test::message_of([] { (void)find_split_order("x"); }) ==
        "split_order: expected one of serial, pairwise, tree, got 'x'");
}

TEST_CASE("grouped: A's tiles and B's are their own, of every kind of groups", "[product]") {
  constexpr std::int64_t kDeep = 128;
  const std::vector<std::uint8_t> a = drawn_codes(6 * kDeep, 5);
  const std::vector<std::uint8_t> b = drawn_codes(2 * 4 * kDeep, 6);
  const std::vector<float> scale_a = drawn_scales(6 * 4, 7);
  const std::vector<float> scale_b = drawn_scales(2 * 2 * 2, 8);
  const GemmSpec spec{.model = "sm90.wgmma.e4m3", .promotion_interval = 32};
  for (const Groups& groups :
       {Groups{GroupKind::batched, {}, 0}, Groups{GroupKind::row_ends, {3, 6}, 0},
        Groups{GroupKind::row_counts, {3, 3}, 0}, Groups{GroupKind::k_ends, {64, 128}, 0}}) {
    const bool stacked = groups.kind == GroupKind::batched || groups.kind == GroupKind::row_counts;
    const bool cut = groups.kind == GroupKind::k_ends;
    const auto codes = [](const std::vector<std::uint8_t>& from, std::vector<std::int64_t> shape,
                          std::size_t at) {
      const auto size = static_cast<std::size_t>(element_count(shape, "codes"));
      return view_of(ElementType::e4m3fn, std::move(shape), std::span(from).subspan(at, size));
    };
    const auto scales = [](const std::vector<float>& from, std::vector<std::int64_t> shape,
                           std::size_t at) {
      const auto size = static_cast<std::size_t>(element_count(shape, "scales"));
      return view_of(ElementType::f32, std::move(shape), std::span(from).subspan(at, size));
    };
    GemmOperands all;
    all.a.codes = codes(
        a, stacked ? std::vector<std::int64_t>{2, 3, kDeep} : std::vector<std::int64_t>{6, kDeep},
        0);
    all.a.scales = scales(
        scale_a, stacked ? std::vector<std::int64_t>{2, 3, 4} : std::vector<std::int64_t>{6, 4}, 0);
    all.a.tiles = ScaleTiles{1, 32};
    all.b.codes = codes(
        b, cut ? std::vector<std::int64_t>{4, kDeep} : std::vector<std::int64_t>{2, 4, kDeep}, 0);
    all.b.scales = scales(
        scale_b, cut ? std::vector<std::int64_t>{2, 2} : std::vector<std::int64_t>{2, 2, 2}, 0);
    all.b.tiles = ScaleTiles{2, 64};
    const GroupedProduct product = make_grouped_product(all, spec, groups);
    REQUIRE(product.parts.size() == 2);
    for (std::size_t g = 0; g < 2; ++g) {
      GemmOperands one = all;
      if (cut) {
        // All terms, of which the other group's are left out.
        Product whole = make_product(one, spec);
        const auto other = static_cast<std::int64_t>(g == 0 ? 64 : 0);
        whole = without_terms(whole, other, other + 64);
        INFO("terms of group " << g);
        CHECK(compute(product.parts[g].product) == compute(whole));
        continue;
      }
      one.a.codes = codes(a, {3, kDeep}, g * 3 * kDeep);
      one.a.scales = scales(scale_a, {3, 4}, g * 12);
      one.b.codes = codes(b, {4, kDeep}, g * 4 * kDeep);
      one.b.scales = scales(scale_b, {2, 2}, g * 4);
      INFO(to_string(groups.kind) << ", group " << g);
      CHECK(compute(product.parts[g].product) == compute(make_product(one, spec)));
    }
  }
}
