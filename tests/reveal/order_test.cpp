// The probes of an order, one by one, and what is counted of their outputs.

#include "fp8lab/reveal/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "reveal/kernels.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// The products of a probe.
std::vector<float> products_of(const Probe& probe) {
  std::vector<float> products;
  for (std::size_t at = 0; at < probe.a.size(); ++at) products.push_back(probe.a[at] * probe.b[at]);
  return products;
}

/// Those of all probes of a pair: at most `counted` small ones in each, in the order of places.
std::vector<std::vector<float>> probes_of_pair(const OrderScale& scale, std::int64_t k,
                                               std::int64_t i, std::int64_t j) {
  std::vector<std::int64_t> others;
  for (std::int64_t at = 0; at < k; ++at)
    if (at != i && at != j) others.push_back(at);
  const auto size = static_cast<std::int64_t>(others.size());
  std::vector<std::vector<float>> probes;
  for (std::int64_t begin = 0; begin == 0 || begin < size; begin += scale.counted) {
    std::vector<float> products(static_cast<std::size_t>(k));
    products[static_cast<std::size_t>(i)] = std::ldexp(1.0F, scale.big);
    products[static_cast<std::size_t>(j)] = -std::ldexp(1.0F, scale.big);
    for (std::int64_t at = begin; at < std::min(begin + scale.counted, size); ++at)
      products[static_cast<std::size_t>(others[static_cast<std::size_t>(at)])] =
          std::ldexp(1.0F, scale.small);
    probes.push_back(products);
  }
  return probes;
}

}  // namespace

TEST_CASE("reveal: the probes of a pair hold each other place once, as many as are counted",
          "[reveal]") {
  int wrong_trees = 0;
  for (std::int64_t k = 2; k <= 14; ++k)
    for (std::int64_t counted = 1; counted <= k; ++counted) {
      const ProbeShape shape{.m = 3, .n = 5, .k = k};
      const OrderScale scale{.big = 16, .small = -18, .counted = counted};
      CAPTURE(k, counted);
      const OrderCheck check = order_check(shape, scale, 3);
      const RandomStream random(3, "order check");
      std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
      std::vector<std::vector<float>> expected;
      for (std::uint64_t draw = 0; draw < 64; ++draw) {
        const auto one =
            static_cast<std::int64_t>(random.below(2 * draw, static_cast<std::uint64_t>(k)));
        const auto other =
            static_cast<std::int64_t>(random.below(2 * draw + 1, static_cast<std::uint64_t>(k)));
        if (one == other) continue;
        pairs.emplace_back(std::min(one, other), std::max(one, other));
        for (auto& probe : probes_of_pair(scale, k, pairs.back().first, pairs.back().second))
          expected.push_back(std::move(probe));
      }
      CHECK(check.pairs == pairs);
      std::vector<std::vector<float>> got;
      for (const Probe& probe : check.probes) got.push_back(products_of(probe));
      CHECK((got == expected));

      // The same probes find the order, whatever one of them counts.
      for (const auto& [sum, text] : {std::pair{&in_order, true}, std::pair{&backwards, false}}) {
        ProbeRunner runner(shape, kernel_of(*sum));
        const RevealedOrder order = reveal_order(runner, scale);
        SumTree tree = SumTree::of_leaf(text ? 0 : k - 1);
        for (std::int64_t at = 1; at < k; ++at)
          tree = SumTree::node({std::move(tree), SumTree::of_leaf(text ? at : k - 1 - at)});
        CHECK(order.failure.empty());
        CHECK(text_of(order.tree) == text_of(tree));
        const std::vector<float> outputs = runner.run(check.probes);
        CHECK(contradictions(check, order.tree, scale, outputs) == 0);
        // Against the other sum's tree each pair that meets elsewhere contradicts.
        SumTree other = SumTree::of_leaf(text ? k - 1 : 0);
        for (std::int64_t at = 1; at < k; ++at)
          other = SumTree::node({std::move(other), SumTree::of_leaf(text ? k - 1 - at : at)});
        const auto elsewhere = std::count_if(pairs.begin(), pairs.end(), [&](const auto& pair) {
          return pair.second + 1 != k - pair.first;
        });
        wrong_trees += elsewhere > 0 ? 1 : 0;
        CHECK(contradictions(check, other, scale, outputs) == elsewhere);
      }
    }
  CHECK(wrong_trees > 100);
}

TEST_CASE("reveal: what a probe leaves is a whole number of small products, from none to all",
          "[reveal]") {
  const auto said = [](std::int64_t k, double units) {
    const auto sum = [units](const std::vector<float>& p) {
      return in_order(p) + static_cast<float>(units * 0x1p-18);
    };
    ProbeRunner runner({.m = 2, .n = 3, .k = k}, kernel_of(sum));
    return reveal_order(runner, {.big = 16, .small = -18, .counted = 3}).failure;
  };
  // The first pair is that of places 0 and 1, which lose nothing else.
  const auto left = [](const char* units) {
    return fmt::format(
        "large and small products that cancel left {}, which is not a whole number of small "
        "products",
        units);
  };
  CHECK(said(8, 0.0).empty());
  CHECK(said(8, 1.0) == left("4"));
  CHECK(said(8, 0.5) == left("3.5"));
  CHECK(said(8, -0.5) == left("2.5"));
  CHECK(said(8, -4.0) == left("-1"));
  // Without other places a probe is asked for all the same.
  CHECK(said(2, 0.0).empty());
  CHECK(said(2, -1.0) == left("-1"));
  CHECK(said(2, 1.0) ==
        "terms 0 and 1 meet in a sum of 1 term according to one probe and of 2 according to "
        "others");
}

TEST_CASE("reveal: terms that are asked for in pairs all at once are at most 64", "[reveal]") {
  // Pairs and rounds of places that are added in one step, where the first one stands for it.
  const auto asks = [](const auto& self, std::int64_t places) -> std::pair<std::int64_t, int> {
    if (places <= 64) return {places * (places - 1) / 2, 1};
    const auto [pairs, rounds] = self(self, places - 1);
    return {places - 1 + pairs, rounds + 1};
  };
  for (const std::int64_t terms : {64, 65}) {
    const std::int64_t k = 2 * terms;
    ProbeRunner runner(
        {.m = 2, .n = 1, .k = k},
        kernel_of_model(fmt::format("sm90.wgmma.e4m3:terms={}", terms), 0, {}, FormatId::f32));
    const RevealedOrder order = reveal_order(runner, {.big = 16, .small = -18, .counted = k});
    CAPTURE(terms);
    CHECK(order.failure.empty());
    const auto [first_pairs, first_rounds] = asks(asks, terms - 1);
    const auto [second_pairs, second_rounds] = asks(asks, terms);
    CHECK(runner.probes() == k - 1 + first_pairs + second_pairs);
    CHECK(runner.rounds() == 1 + std::max(first_rounds, second_rounds));
  }
}

TEST_CASE("reveal: products of a scale are exact alone, side by side and spread", "[reveal]") {
  const auto scale_of = [](const Sum& sum) {
    ProbeRunner runner({.m = 3, .n = 4, .k = 12}, kernel_of(sum));
    std::vector<float> whole;
    std::string failure;
    const std::optional<OrderScale> scale = find_order_scale(runner, {}, whole, failure);
    return scale ? fmt::format("{} {} {}", scale->big, scale->small, scale->counted) : failure;
  };
  // Products below 2^low are lost.
  const auto losing = [](int low) {
    return [low](std::vector<float> p) {
      for (float& one : p)
        if (std::abs(one) < std::ldexp(1.0F, low)) one = 0.0F;
      return in_order(p);
    };
  };
  CHECK(scale_of(losing(-18)) == "16 -18 12");
  CHECK(scale_of(losing(-12)) == "16 -12 4");
  CHECK(scale_of(losing(-10)) == "16 -10 1");  // 2^26 apart
  CHECK(scale_of(losing(-9)).starts_with("the kernel returns no pair"));
  // Sums that are inexact from so many terms on, side by side or apart.
  for (const bool spread : {false, true})
    for (const auto& [least, counted] : {std::pair{2, 1}, {3, 2}, {4, 2}, {5, 4}, {9, 12}}) {
      const auto inexact = [spread, least = least](const std::vector<float>& p) {
        const auto terms = std::count_if(p.begin(), p.end(), [](float x) { return x != 0.0F; });
        const auto last = std::find_if(p.rbegin(), p.rend(), [](float x) { return x != 0.0F; });
        const bool apart = p.rend() - last > terms;
        return in_order(p) * (terms >= least && apart == spread ? 2.0F : 1.0F);
      };
      CAPTURE(spread, least);
      // Eight of twelve places are side by side either way.
      if (!spread || least <= 4) CHECK(scale_of(inexact) == fmt::format("16 -18 {}", counted));
    }
  const auto three = [](const std::vector<float>& p) { return 3.0F * in_order(p); };
  CHECK(scale_of(three) ==
        "the kernel returns no pair of large and small products exactly: expected outputs 2^16 and "
        "2^-18 for single products, got 196608 and 1.14441e-05 (e4m3fn x e4m3fn spans 2^34, and "
        "2^26 is needed)");
}

namespace {

void check_structure(const SumStructure& structure, std::int64_t k) {
  const SumTree tree = tree_of(structure, k);
  INFO(structure.text(k));
  const std::optional<SumStructure> found = structure_of(tree);
  REQUIRE(found.has_value());
  CHECK(found->text(k) == structure.text(k));
  CHECK(text_of(tree_of(*found, k)) == text_of(tree));
}

}  // namespace

TEST_CASE("reveal: a sum has up to 16 parts", "[reveal]") {
  using enum StepShape;
  check_structure({fused, 4, 0, {16, 0, SplitCut::contiguous, SplitOrder::tree}}, 64);
  check_structure({fused, 4, 0, {15, 0, SplitCut::contiguous, SplitOrder::pairwise}}, 60);
  CHECK_FALSE(
      structure_of(tree_of({fused, 4, 0, {17, 0, SplitCut::contiguous, SplitOrder::tree}}, 68))
          .has_value());
}

TEST_CASE("reveal: the longest promotion and the largest tile of a split", "[reveal][slow]") {
  using enum StepShape;
  // Four tiles, the last one short, in two parts of every other one.
  check_structure({fused, 64, 512, {2, 0, SplitCut::modulo, SplitOrder::serial}}, 3 * 512 + 64);
  check_structure({fused, 64, 0, {2, 256, SplitCut::modulo, SplitOrder::serial}}, 3 * 256 + 64);
}

TEST_CASE("reveal: only sums of one product at a time can be compensated", "[reveal]") {
  // Steps of four exact products keep what single additions lose; the last bit is another one.
  const Sum steps = [](const std::vector<float>& p) {
    float sum = 0.0F;
    for (std::size_t begin = 0; begin < p.size(); begin += 4) {
      double step = static_cast<double>(sum);
      for (std::size_t i = begin; i < begin + 4; ++i) step += static_cast<double>(p[i]);
      sum = static_cast<float>(step);
    }
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    return std::bit_cast<float>((bits & 0xffffU) != 0 ? bits ^ 2U : bits);
  };
  const Revealed found = reveal({.m = 4, .n = 4, .k = 16}, kernel_of(steps));
  INFO(describe(found));
  CHECK(found.order.found());
  CHECK(found.failure == "the order is known, but no unit of a known kind gives these outputs");
}
