// The room of reveal: trees as text, structures and their trees, the order of kernels written here,
// and the units of some registered instructions.

#include "fp8lab/reveal/reveal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/reveal/tree.hpp"
#include "fp8lab/reveal/unit.hpp"
#include "reveal/kernels.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::vector<std::int64_t> places(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = begin; i < end; ++i) all.push_back(i);
  return all;
}

SumTree flat(const std::vector<std::int64_t>& leaves) {
  std::vector<SumTree> children;
  children.reserve(leaves.size());
  for (const std::int64_t leaf : leaves) children.push_back(SumTree::of_leaf(leaf));
  return SumTree::node(std::move(children));
}

float by_neighbours(std::vector<float> p) {
  while (p.size() > 1) {
    for (std::size_t i = 0; i < p.size() / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    p.resize(p.size() / 2);
  }
  return p.front();
}

std::string tree_text(const std::function<float(const std::vector<float>&)>& sum) {
  const Revealed found = reveal({.m = 4, .n = 4, .k = 8}, kernel_of(sum));
  INFO(describe(found));
  CHECK(found.order.found());
  CHECK(found.contradictions == 0);
  return text_of(found.order.tree);
}

std::string value_of(const Revealed& found, std::string_view name) {
  for (const RevealedParameter& one : found.parameters)
    if (one.name == name) return one.value;
  return "none";
}

/// Outputs of two steps of random products that two units do not give alike, in so many cases:
/// of either sign or of one, of alike magnitudes or of many.
int unlike_outputs(const AccumulatorModel& one, const AccumulatorModel& other, int cases) {
  const Format& f = format(FormatId::e4m3fn);
  const RandomStream random(7, "unlike outputs");
  const auto terms = static_cast<std::size_t>(2 * one.terms);
  std::vector<Unpacked> a(terms);
  std::vector<Unpacked> b(terms);
  std::uint64_t draw = 0;
  int unlike = 0;
  for (int i = 0; i < cases; ++i) {
    const std::uint32_t span = 1U << (3 + i % 4);  // codes
    const std::uint32_t signs = i / 4 % 2 == 0 ? 0U : f.sign_mask();
    const auto code = [&] {
      const auto word = static_cast<std::uint32_t>(random.below(draw++, 1U << 20));
      return (56U - span / 2 + word % span) | ((word >> 12) & signs);
    };
    for (std::size_t at = 0; at < terms; ++at) {
      a[at] = unpack(f, code());
      b[at] = unpack(f, code());
    }
    unlike += dot_product(one, a, b) == dot_product(other, a, b) ? 0 : 1;
  }
  return unlike;
}

}  // namespace

TEST_CASE("reveal: a tree as text", "[reveal]") {
  const SumTree step = flat(places(0, 4));
  CHECK(text_of(step) == "(0-3)");
  CHECK(text_of(flat({0, 2, 4})) == "(0-4:2)");
  std::vector<SumTree> chain{SumTree::of_leaf(5), step, SumTree::of_leaf(4)};
  const SumTree two = SumTree::node(chain);
  CHECK(text_of(two) == "((0-3) 4 5)");
  CHECK(two.leaves() == 6);
  CHECK(leaves_of_both(two, 0, 3) == 4);
  CHECK(leaves_of_both(two, 0, 5) == 6);
  CHECK(leaves_of_both(two, 0, 9) == 0);
  CHECK(SumTree::node({SumTree::of_leaf(3)}) == SumTree::of_leaf(3));
}

TEST_CASE("reveal: the structure of a tree has that tree", "[reveal]") {
  for (const StepShape step : {StepShape::fused, StepShape::exact, StepShape::halves_chained,
                               StepShape::halves_separate, StepShape::pairs})
    for (const std::int64_t terms : {4, 16})
      for (const std::int64_t promotion : {0, 32}) {
        if (step == StepShape::pairs && terms != 4) continue;
        SumStructure structure{step, terms, promotion};
        const SumTree tree = tree_of(structure, 96);
        const std::optional<SumStructure> found = structure_of(tree);
        INFO(structure.text(96) << "\n" << text_of(tree));
        REQUIRE(found.has_value());
        CHECK(text_of(tree_of(*found, 96)) == text_of(tree));
        CHECK(found->promotion_interval == promotion);
      }
  CHECK_FALSE(structure_of(SumTree::node({flat({0, 2}), flat({1, 3, 4})})).has_value());
}

TEST_CASE("reveal: K in as many parts as it has tiles, and in one less", "[reveal]") {
  const SweepShare share;
  std::uint64_t number = 0;
  for (const std::int64_t tile : {32, 64})
    for (const int tiles : {2, 3, 5, 6, 7})
      for (const int parts : {tiles - 1, tiles})
        for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
          for (const SplitOrder order :
               {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree}) {
            if (parts < 2 || !share.takes_one_in(4, "parts of K", number++)) continue;
            const std::int64_t k = tile * (tiles - 1) + 16;   // the last tile is not whole
            SumStructure structure{StepShape::fused, 32, 0};  // no smaller tile has the same parts
            structure.split = {parts, tile, cut, order};
            const SumTree tree = tree_of(structure, k);
            const std::optional<SumStructure> found = structure_of(tree);
            INFO(structure.text(k));
            REQUIRE(found.has_value());
            CHECK(text_of(tree_of(*found, k)) == text_of(tree));
          }
}

TEST_CASE("reveal: products that are added one at a time are probed as steps of four", "[reveal]") {
  // Probes of three and more products beside a large one need that many places.
  const ProbeShape shape{.m = 4, .n = 4, .k = 16};
  const OrderScale scale{.big = 12, .small = -6, .counted = 4};
  const UnitProbes one = unit_probes(shape, {StepShape::fused, 1}, scale, 1);
  const UnitProbes four = unit_probes(shape, {StepShape::fused, 4}, scale, 1);
  CHECK(one.places == four.places);
  CHECK(one.high == four.high);
  REQUIRE(one.probes.size() == four.probes.size());
  for (std::size_t i = 0; i < one.probes.size(); ++i) {
    INFO("probe " << i);
    CHECK((one.probes[i].a == four.probes[i].a && one.probes[i].b == four.probes[i].b));
  }
}

TEST_CASE("reveal: a structure in words", "[reveal]") {
  const auto text = [](StepShape step, std::int64_t terms, std::int64_t promotion = 0,
                       SplitK split = {}) {
    return SumStructure{step, terms, promotion, split}.text(64);
  };
  CHECK(text(StepShape::exact, 63) == "steps of 63 products added exactly, then to the sum so far");
  CHECK(text(StepShape::exact, 64) == "one exact sum of all 64 terms");
  CHECK(text(StepShape::pairs, 4) == "groups of 4 products added in pairs, then to the sum so far");
  CHECK(text(StepShape::fused, 1) == "products added one at a time");
  CHECK(text(StepShape::fused, 63) ==
        "steps of 63 products and c, the sum so far, aligned together");
  CHECK(text(StepShape::fused, 64) == "one step of all 64 terms");
  CHECK(text(StepShape::halves_chained, 16) ==
        "instructions of 16 terms in two halves (the second half continues from the first), added "
        "to the sum so far");
  CHECK(text(StepShape::halves_separate, 16) ==
        "instructions of 16 terms in two halves (each from zero), added to the sum so far");
  const std::string one = text(StepShape::fused, 1);
  CHECK(text(StepShape::fused, 1, 32) == one + "; a new chain every 32 terms, added in order");
  CHECK(text(StepShape::fused, 1, 0, {2, 16, SplitCut::modulo, SplitOrder::tree}) ==
        one + "; K in 2 parts (modulo, tiles of 16), combined as: tree");
  CHECK(text(StepShape::fused, 1, 32, {3, 0, SplitCut::contiguous, SplitOrder::serial}) ==
        one +
            "; a new chain every 32 terms, added in order; K in 3 parts (contiguous, tiles of "
            "32), combined as: serial");
}

TEST_CASE("reveal: the order of sums that are written out", "[reveal]") {
  CHECK(tree_text(in_order) == "(((((((0 1) 2) 3) 4) 5) 6) 7)");
  CHECK(tree_text(backwards) == "(0 (1 (2 (3 (4 (5 (6 7)))))))");
  CHECK(tree_text(by_neighbours) == "(((0 1) (2 3)) ((4 5) (6 7)))");
}

TEST_CASE("reveal: a unit, its promotion and its output", "[reveal]") {
  const ProbeShape shape{.m = 8, .n = 8, .k = 128};
  const Revealed found = reveal(shape, kernel_of_model("sm90.wgmma.e4m3", 64, {}, FormatId::bf16));
  INFO(describe(found));
  CHECK(found.explained());
  CHECK(found.checked == 4 * 8 * 8);
  CHECK(found.model == "sm90.wgmma.e4m3");
  CHECK(found.rounded_to == FormatId::bf16);
  REQUIRE(found.structure.has_value());
  CHECK(found.structure->promotion_interval == 64);
  CHECK(value_of(found, "alignment_fraction_bits") == "13");
  CHECK(value_of(found, "terms") == "32");
  CHECK_THAT(models_file(found, "mine"), contains("[accumulator.mine]"));

  const Revealed other =
      reveal(shape, kernel_of_model("sm90.wgmma.e4m3:F=14", 0, {}, FormatId::f32));
  CHECK(other.instructions.empty());
  CHECK(value_of(other, "alignment_fraction_bits") == "14");
}

TEST_CASE("reveal: parameters that no output settles are named with all their values", "[reveal]") {
  // 33 bits below E4M3's largest product hold all but the smallest one.
  const Revealed found = reveal({.m = 4, .n = 4, .k = 32},
                                kernel_of_model("sm90.wgmma.e4m3:F=33", 0, {}, FormatId::f32));
  INFO(describe(found));
  CHECK(found.explained());
  const auto possible = [&](std::string_view name) -> std::string {
    for (const RevealedParameter& one : found.parameters)
      if (one.name == name) return one.possible + (one.certain ? "" : " (uncertain)");
    return "none";
  };
  CHECK(possible("kind") == "fused_dot_product");
  CHECK(possible("terms") == "32");
  CHECK(possible("rounding") == "toward_zero");
  CHECK(possible("output_fraction_bits") == "13");
  CHECK(value_of(found, "alignment_fraction_bits") == "33");
  CHECK(possible("alignment_fraction_bits") == "33 .. 64 (uncertain)");
  CHECK(possible("product_exponent") == "normalized, stored (uncertain)");
  CHECK(possible("zero_sign") == "kept, positive (uncertain)");
  // What holds for each of these units: more bits would allow higher limits.
  CHECK(possible("min_alignment_exponent") == "none or any up to 15 (uncertain)");
}

TEST_CASE("reveal: units whose sums keep more bits than their terms", "[reveal]") {
  for (const auto& [terms, alignment, sum, possible] : {std::tuple{16, 11, 12, "12"},
                                                        {16, 11, 13, "13"},
                                                        {16, 11, 14, "14"},
                                                        {16, 11, 15, "15"},
                                                        {16, 11, 16, "16 .. 23"},
                                                        {16, 11, 23, "16 .. 23"},
                                                        {16, 13, 17, "17"},
                                                        {32, 10, 14, "14"},
                                                        {32, 10, 15, "15"},
                                                        {32, 12, 20, "18 .. 23"},
                                                        {8, 14, 17, "17"},
                                                        {8, 14, 20, "18 .. 23"},
                                                        {4, 12, 14, "14"},
                                                        {4, 12, 15, "15 .. 23"},
                                                        {4, 12, 20, "15 .. 23"}}) {
    const std::string name = fmt::format("fused:terms={},F={},M={}", terms, alignment, sum);
    const Revealed found =
        reveal({.m = 4, .n = 4, .k = 4 * terms}, kernel_of_model(name, 0, {}, FormatId::f32));
    INFO(name << "\n" << describe(found));
    CHECK(found.explained());
    for (const RevealedParameter& one : found.parameters)
      if (one.name == "output_fraction_bits") CHECK(one.possible == possible);
    CHECK(unlike_outputs(find_instruction_model(name).accumulator,
                         find_instruction_model(found.model).accumulator, 100000) == 0);
  }
}

TEST_CASE("reveal: block-scaled instructions are named where scales are 1", "[reveal]") {
  const std::string name = "sm120.mma.mxf8f6f4.e4m3";
  const Revealed found =
      reveal({.m = 8, .n = 8, .k = 64}, kernel_of_model(name, 0, {}, FormatId::f32));
  INFO(describe(found));
  CHECK(found.explained());
  CHECK(found.model == "sm100.tcgen05.e4m3");
  CHECK(std::ranges::find(found.instructions, name) != found.instructions.end());
}

TEST_CASE("reveal: a kernel's outputs must be as many, and of the type, that it began with",
          "[reveal]") {
  // `change` is called before each round's outputs are handed back.
  const auto refused = [](const std::function<void(ProbeOutputs&, int)>& change,
                          const std::string& why) {
    const ProbeKernel kernel = kernel_of(in_order);
    int round = 0;
    INFO(why);
    CHECK_THROWS_WITH(reveal({.m = 4, .n = 4, .k = 8},
                             [&](const ProbeCalls& calls) {
                               ProbeOutputs out = kernel(calls);
                               change(out, round++);
                               return out;
                             }),
                      contains(why));
  };
  refused([](ProbeOutputs& out, int) { out.d.pop_back(); }, "outputs [");
  refused([](ProbeOutputs& out, int) { out.output = FormatId::e4m3fn; },
          "outputs of f32, f16 or bf16");
  refused(
      [](ProbeOutputs& out, int round) {
        if (round == 1) out.output = FormatId::f16;
      },
      "outputs of f32, as before");
}

TEST_CASE("reveal: bad shapes and kernels are errors or said so", "[reveal]") {
  const ProbeKernel kernel = kernel_of(in_order);
  CHECK_THROWS_WITH(reveal({.m = 4, .n = 4, .k = 1}, kernel), contains("k"));
  CHECK_THROWS_AS(reveal({.m = 0, .n = 4, .k = 8}, kernel), Error);
  CHECK_THROWS_AS(reveal({.m = 4, .n = 4, .k = 8, .a_format = FormatId::e8m0fnu}, kernel), Error);
  CHECK_THROWS_AS(reveal({}, kernel_of_model("sm90.wgmma.e4m3", 7, {}, FormatId::f32)), Error);
  const Revealed zeros =
      reveal({.m = 4, .n = 4, .k = 8}, kernel_of([](const std::vector<float>&) { return 0.0F; }));
  CHECK_FALSE(zeros.explained());
  CHECK_THAT(zeros.failure, contains("no pair of large and small products"));
  CHECK(rounded_output(FormatId::bf16, 1.01F) == 1.0078125F);
}

TEST_CASE("reveal: the factors of a power of two are alike while both formats have room",
          "[reveal]") {
  const PowerProducts same(FormatId::e4m3fn, FormatId::e4m3fn);
  CHECK(same.smallest() == -18);
  CHECK(same.smallest_normal() == -12);
  CHECK(same.largest() == 16);
  using Factors = std::pair<float, float>;
  CHECK(same.factors(0) == Factors{1.0F, 1.0F});
  CHECK(same.factors(12) == Factors{64.0F, 64.0F});
  CHECK(same.factors(13) == Factors{64.0F, 128.0F});
  CHECK(same.factors(16) == Factors{256.0F, 256.0F});
  CHECK(same.factors(-13) == Factors{0x1p-6F, 0x1p-7F});
  CHECK(same.factors(-18) == Factors{0x1p-9F, 0x1p-9F});
  // E4M3's end at 2^-9 and 2^8, E5M2's at 2^-16 and 2^15.
  for (const auto& [a, b] :
       {std::pair{FormatId::e4m3fn, FormatId::e5m2}, std::pair{FormatId::e5m2, FormatId::e4m3fn}}) {
    const PowerProducts mixed(a, b);
    CHECK(mixed.smallest() == -25);
    CHECK(mixed.smallest_normal() == -20);
    CHECK(mixed.largest() == 23);
    for (int exponent = -25; exponent <= 23; ++exponent) {
      const auto [of_a, of_b] = mixed.factors(exponent);
      INFO(format(a).name << ": 2^" << exponent << " is " << of_a << " times " << of_b);
      CHECK(of_a * of_b == std::ldexp(1.0F, exponent));
      const float narrow = a == FormatId::e4m3fn ? of_a : of_b;
      const float wide = a == FormatId::e4m3fn ? of_b : of_a;
      CHECK((narrow >= 0x1p-9F && narrow <= 256.0F));
      CHECK((wide >= 0x1p-16F && wide <= 0x1p15F));
      if (exponent >= -18 && exponent <= 16)
        CHECK(std::abs(std::ilogb(of_a) - std::ilogb(of_b)) <= 1);
    }
  }
  const PowerProducts far(FormatId::bf16, FormatId::bf16, 76);
  CHECK(far.smallest() == -152);
  CHECK(far.largest() == 152);
}

TEST_CASE("reveal: exact steps of several products are brackets in the tree", "[reveal]") {
  const auto steps_of = [](std::size_t terms) {
    return [terms](const std::vector<float>& p) {
      float sum = 0.0F;
      for (std::size_t begin = 0; begin < p.size(); begin += terms) {
        double step = 0.0;
        for (std::size_t i = begin; i < begin + terms; ++i) step += static_cast<double>(p[i]);
        sum += static_cast<float>(step);
      }
      return sum;
    };
  };
  CHECK(tree_text(steps_of(4)) == "([0-3] [4-7])");
  CHECK(tree_text(steps_of(8)) == "[0-7]");
}

TEST_CASE("reveal: probes have the widest products that a kernel returns exactly", "[reveal]") {
  // A kernel of E5M2 that loses products below 2^low and returns infinity above 2^high.
  const auto scale_of = [](int low, int high) -> std::array<std::int64_t, 3> {
    const Format& f = format(FormatId::e5m2);
    const ProbeKernel kernel = [&](const ProbeCalls& calls) {
      ProbeOutputs out;
      const auto value = [&](const std::vector<std::byte>& codes, std::int64_t at) {
        return decode(f, static_cast<std::uint32_t>(codes[static_cast<std::size_t>(at)]));
      };
      for (std::int64_t row = 0; row < calls.calls * 2; ++row)
        for (std::int64_t column = 0; column < 2; ++column) {
          double sum = 0.0;
          for (std::int64_t k = 0; k < 16; ++k) {
            const double p =
                value(calls.a, row * 16 + k) * value(calls.b, (row / 2 * 2 + column) * 16 + k);
            if (std::abs(p) >= std::ldexp(1.0, low)) sum += p;
          }
          out.d.push_back(sum > std::ldexp(1.0, high) ? std::numeric_limits<float>::infinity()
                                                      : static_cast<float>(sum));
        }
      return out;
    };
    ProbeRunner runner(
        {.m = 2, .n = 2, .k = 16, .a_format = FormatId::e5m2, .b_format = FormatId::e5m2}, kernel);
    std::vector<float> whole;
    std::string failure;
    const std::optional<OrderScale> scale = find_order_scale(runner, {}, whole, failure);
    if (!scale) return {0, 0, 0};
    return {scale->big, scale->small, scale->counted};
  };
  using Scale = std::array<std::int64_t, 3>;
  // A product one binade smaller than what is kept gives the next choice.
  CHECK(scale_of(-40, 40) == Scale{30, -32, 16});
  CHECK(scale_of(-31, 40) == Scale{30, -28, 16});
  CHECK(scale_of(-27, 40) == Scale{30, -24, 16});
  CHECK(scale_of(-23, 40) == Scale{30, -20, 16});
  CHECK(scale_of(-20, 40) == Scale{30, -20, 16});
  CHECK(scale_of(-19, 40) == Scale{30, -17, 16});
  CHECK(scale_of(-17, 40) == Scale{30, -17, 16});
  CHECK(scale_of(-16, 40) == Scale{30, -14, 16});
  CHECK(scale_of(-13, 40) == Scale{30, -10, 16});
  CHECK(scale_of(-9, 40) == Scale{0, 0, 0});
  CHECK(scale_of(-17, 29) == Scale{15, -17, 16});
  // So many small ones are together 2^26 below the large one.
  CHECK(scale_of(-14, 15) == Scale{15, -14, 8});
  CHECK(scale_of(-14, 14) == Scale{14, -14, 4});
  CHECK(scale_of(-20, 13) == Scale{8, -20, 4});
  CHECK(scale_of(-24, 7) == Scale{4, -24, 4});
  CHECK(scale_of(-20, 7) == Scale{0, 0, 0});
}

TEST_CASE("reveal: sums above their terms are probed at every distance, of either sign",
          "[reveal]") {
  const ProbeShape shape{.m = 4, .n = 4, .k = 16};
  const OrderScale scale{.big = 12, .small = -6, .counted = 4};
  const UnitProbes probes = unit_probes(shape, {StepShape::fused, 8}, scale, 1);
  std::vector<std::vector<float>> high;
  for (std::size_t i = 0; i < probes.high; ++i) {
    const Probe& probe = probes.probes[i];
    std::vector<float> products;
    for (std::size_t k = 0; k < probe.a.size(); ++k) products.push_back(probe.a[k] * probe.b[k]);
    high.push_back(products);
  }
  // Four products of 2^11 and a fifth below them.
  for (int distance = 1; distance <= 28; ++distance)
    for (const float sign : {1.0F, -1.0F}) {
      std::vector<float> products(16, 0.0F);
      std::fill_n(products.begin(), 4, sign * 0x1p11F);
      products[4] = sign * 1.5F * std::ldexp(1.0F, 11 - distance);
      INFO("distance " << distance << " sign " << sign);
      CHECK(std::ranges::find(high, products) != high.end());
    }
}
