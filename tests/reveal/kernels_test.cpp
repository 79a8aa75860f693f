// Kernels that are no tree, or no unit; structures of the library's own kernels; the probes
// themselves; rounds in files.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/reveal/probe_files.hpp"
#include "fp8lab/reveal/reveal.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "reveal/kernels.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

Revealed revealed(const Sum& sum, std::int64_t k = 8) {
  return reveal({.m = 4, .n = 4, .k = k}, kernel_of(sum));
}

/// Whether a product is so large that probes use it for their big one.
bool is_big(float product) { return std::abs(product) == 0x1p16F; }

const RevealedParameter& parameter_of(const Revealed& found, std::string_view name) {
  static const RevealedParameter kNone{"none", "none", "none", false};
  for (const RevealedParameter& one : found.parameters)
    if (one.name == name) return one;
  return kNone;
}

}  // namespace

TEST_CASE("reveal: outputs lie on the diagonal, of more rows and of more columns", "[reveal]") {
  for (const auto& [m, n] :
       {std::pair<std::int64_t, std::int64_t>{2, 5}, {5, 2}, {1, 7}, {7, 1}, {3, 3}}) {
    INFO(m << " x " << n);
    const Revealed found = reveal({.m = m, .n = n, .k = 12},
                                  kernel_of_model("sm90.wgmma.e4m3:terms=4", 0, {}, FormatId::f32));
    CHECK(text_of(found.order.tree) == "(((0-3) 4-7) 8-11)");
    CHECK(found.explained());
    CHECK(found.checked == 4 * m * n);
    CHECK(parameter_of(found, "alignment_fraction_bits").value == "13");
    CHECK(found.shape.m == m);
    CHECK(found.shape.n == n);
  }
}

TEST_CASE("reveal: shapes from the least to the most, and formats of operands", "[reveal]") {
  const auto said = [](ProbeShape shape) {
    return test::message_of([&] { (void)ProbeRunner(shape, kernel_of(in_order)); });
  };
  CHECK(said({.m = 1, .n = 1, .k = 2}) == "accepted");
  CHECK(said({.m = 65536, .n = 65536, .k = 65536}) == "accepted");
  CHECK(said({.m = 0, .n = 4, .k = 8}) == "m: expected 1 to 65536, got 0");
  CHECK(said({.m = 4, .n = 0, .k = 8}) == "n: expected 1 to 65536, got 0");
  CHECK(said({.m = 4, .n = 4, .k = 1}) == "k: expected 2 to 65536, got 1");
  CHECK(said({.m = 65537, .n = 4, .k = 8}) == "m: expected 1 to 65536, got 65537");
  CHECK(said({.m = 4, .n = 65537, .k = 8}) == "n: expected 1 to 65536, got 65537");
  CHECK(said({.m = 4, .n = 4, .k = 65537}) == "k: expected 2 to 65536, got 65537");
  for (const FormatId id : {FormatId::e8m0fnu, FormatId::e8m13}) {
    const std::string name(format(id).name);
    CHECK(said({.a_format = id}) == "a_format: expected a format of operands, got " + name);
    CHECK(said({.b_format = id}) == "b_format: expected a format of operands, got " + name);
  }
}

TEST_CASE("reveal: a kernel whose order varies is said so", "[reveal]") {
  int number = 0;
  // Every other output of one round is summed from the other end.
  const Revealed found = revealed([&](const std::vector<float>& p) {
    return number++ % 3 == 0 ? backwards(p) * 0.5F : in_order(p);
  });
  INFO(describe(found));
  CHECK_FALSE(found.explained());
  CHECK_FALSE(found.order.found());
  CHECK_THAT(found.failure,
             contains("the kernel gave ") &&
                 contains(" for the same dot product: its order of summation varies"));
  CHECK(found.failure == found.order.failure);
  CHECK(found.rounds == 1);
  CHECK_THAT(describe(found), contains(" in 1 rounds\nno order: the kernel gave "));
}

TEST_CASE("reveal: a kernel that gives NaN twice does not vary, but shows nothing", "[reveal]") {
  const Revealed found =
      revealed([](const std::vector<float>&) { return std::numeric_limits<float>::quiet_NaN(); });
  CHECK(found.failure ==
        "the kernel returns no pair of large and small products exactly: expected outputs 2^16 and "
        "2^-18 for single products, got nan and nan (e4m3fn x e4m3fn spans 2^34, and 2^26 is "
        "needed)");
}

TEST_CASE("reveal: what is left of cancelled products must be a whole number of them", "[reveal]") {
  const Revealed found = revealed([](const std::vector<float>& p) {
    const bool cancels = std::ranges::any_of(p, [](float one) { return one == -0x1p16F; });
    return in_order(p) + (cancels ? 0x1p-19F : 0.0F);
  });
  CHECK(found.failure ==
        "not a tree of additions: large and small products that cancel left 6.5, which is not a "
        "whole number of small products");
  CHECK(found.order.failure == found.failure.substr(0, found.order.failure.size()));
  CHECK_FALSE(found.order.found());
}

TEST_CASE("reveal: probes that contradict each other are no tree", "[reveal]") {
  // Place 3 alone is summed from the other end.
  const Revealed one = revealed(
      [](const std::vector<float>& p) { return p[3] == -0x1p16F ? backwards(p) : in_order(p); });
  CHECK(one.failure ==
        "not a tree of additions: terms 0 and 4 meet in a sum of 4 terms according to one probe "
        "and of 3 according to others");
  // All pairs of the first place are those of a chain, and no others are.
  const Revealed other = revealed([](const std::vector<float>& p) {
    const bool first = is_big(p[0]) || std::ranges::none_of(p, is_big);
    return first ? in_order(p) : backwards(p);
  });
  INFO(describe(other));
  CHECK(other.contradictions > 0);
  CHECK(other.failure == "not a tree of additions: " + std::to_string(other.contradictions) +
                             " of 55 pairs of terms meet at another place than in the tree");
  CHECK(other.order.failure == other.failure);
}

TEST_CASE("reveal: a tree that no chain of steps has is shown without a unit", "[reveal]") {
  const Revealed found = revealed(backwards);
  CHECK(found.order.found());
  CHECK_FALSE(found.structure.has_value());
  CHECK(found.failure ==
        "the order is known, but no promoted or split chain of a unit's steps has it");
  CHECK(found.model.empty());
  CHECK_FALSE(found.explained());
  const std::string text = describe(found);
  CHECK_THAT(text, contains("  (0 (1 (2 (3 (4 (5 (6 7)))))))\nnot explained: the order is known"));
  CHECK(text.find("order: ") == std::string::npos);
  CHECK_THROWS_WITH(models_file(found, "x"),
                    "model: expected a kernel whose unit was found, got " + found.failure);
}

TEST_CASE("reveal: an order without a unit, and a unit without all outputs", "[reveal]") {
  // The last place of long sums is another one.
  const Revealed unknown = revealed(
      [](const std::vector<float>& p) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(in_order(p));
        return std::bit_cast<float>((bits & 0xffffU) != 0 ? bits ^ 2U : bits);
      },
      16);
  INFO(describe(unknown));
  CHECK(unknown.failure == "the order is known, but no unit of a known kind gives these outputs");
  CHECK(unknown.model.empty());
  CHECK(unknown.equal == 0);
  CHECK(unknown.checked == 64);
  CHECK(unknown.structure.has_value());

  // Nothing but random matrices has unlike products at every place. They are the first outputs.
  int number = 0;
  int wrong = 0;
  const Revealed other = revealed(
      [&](const std::vector<float>& p) {
        const bool fresh = std::ranges::none_of(p, [](float one) { return one == 0.0F; }) &&
                           std::ranges::none_of(p, is_big) && p[0] != p[1];
        const bool adds = fresh && p[1] > 0.0F;
        wrong += number++ < 64 && adds ? 1 : 0;
        return in_order(p) + (adds ? 8.0F : 0.0F);
      },
      16);
  INFO(describe(other));
  CHECK(other.model == "fp32");
  CHECK((wrong > 10 && wrong < 54));
  CHECK(other.checked == 64);
  CHECK(other.equal == 64 - wrong);
  CHECK(other.failure == std::to_string(wrong) + " of 64 fresh outputs differ from the model's");
  CHECK_FALSE(other.explained());
  CHECK_THAT(describe(other), contains("checked: " + std::to_string(64 - wrong) +
                                       " of 64 outputs of fresh operands equal the model's"));
}

TEST_CASE("reveal: a sum that keeps what its additions lose is no tree", "[reveal]") {
  // Terms below half of the last place are gathered, and added at the end.
  const Revealed found = revealed(
      [](const std::vector<float>& p) {
        float sum = 0.0F;
        float lost = 0.0F;
        for (const float one : p) {
          const float next = sum + one;
          if (std::ranges::none_of(p, [](float x) { return x < 0.0F; }))
            lost += std::abs(sum) >= std::abs(one) ? (sum - next) + one : (one - next) + sum;
          sum = next;
        }
        return sum + lost;
      },
      9);
  INFO(describe(found));
  CHECK(found.failure ==
        "not a tree of additions: terms that are lost in an addition reappear later (2^16 and 8 "
        "terms of 2^-9 gave 65536.0156), as in a compensated (Kahan) sum");
  CHECK(found.order.failure == found.failure);
}

TEST_CASE("reveal: the library's kernels have the trees of their structures", "[reveal]") {
  const auto check = [](const char* model, const SumStructure& structure, std::int64_t k) {
    const InstructionModel& known = find_instruction_model(model);
    const bool free = known.standing == Standing::definition;
    ProbeShape shape{.m = 8, .n = 8, .k = k};
    if (!free) shape.a_format = known.a_format;
    if (!free) shape.b_format = known.b_format;
    ProbeRunner runner(shape, kernel_of_model(model, structure.promotion_interval, structure.split,
                                              FormatId::f32));
    std::vector<float> whole;
    std::string failure;
    const std::optional<OrderScale> scale = find_order_scale(runner, {}, whole, failure);
    INFO(model << ": " << structure.text(k) << failure);
    REQUIRE(scale.has_value());
    const RevealedOrder order = reveal_order(runner, *scale);
    INFO(order.failure);
    CHECK(text_of(order.tree) == text_of(tree_of(structure, k)));
  };
  using enum StepShape;
  for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
    for (const SplitOrder order : {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree})
      for (const int parts : {2, 3, 4, 5, 7}) {
        check("fp32", {fused, 1, 0, {parts, 2, cut, order}}, 17);
        check("fp32", {fused, 1, 3, {parts, 0, cut, order}}, 22);
      }
  check("fp32", {fused, 1, 5, {}}, 17);
  check("sm89.mma.f16", {fused, 8, 0, {}}, 20);
  check("sm89.mma.f16", {fused, 8, 16, {}}, 44);
  check("sm90.mma.e4m3", {halves_chained, 32, 0, {}}, 75);
  check("sm90.mma.e4m3.f16.separate", {halves_separate, 32, 0, {}}, 75);
  check("gfx90a.mfma.bf16", {pairs, 2, 0, {}}, 9);
  check("gfx90a.mfma.f16", {pairs, 4, 0, {}}, 15);
  check("gfx908.mfma.f16", {exact, 4, 0, {}}, 14);
}

TEST_CASE("reveal: the first chain is the places of the first part, up to a promotion",
          "[reveal]") {
  using Places = std::vector<std::int64_t>;
  const auto chain = [](std::int64_t promotion, SplitK split, std::int64_t k) {
    return SumStructure{StepShape::fused, 2, promotion, split}.chain(k);
  };
  CHECK(chain(0, {}, 5) == Places{0, 1, 2, 3, 4});
  CHECK(chain(4, {}, 9) == Places{0, 1, 2, 3});
  CHECK(chain(4, {}, 4) == Places{0, 1, 2, 3});
  CHECK(chain(4, {}, 3) == Places{0, 1, 2});
  CHECK(chain(0, {2, 0, SplitCut::modulo}, 9) == Places{0, 1, 4, 5, 8});
  CHECK(chain(0, {2, 4, SplitCut::modulo}, 11) == Places{0, 1, 2, 3, 8, 9, 10});
  CHECK(chain(0, {2, 4, SplitCut::contiguous}, 11) == Places{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(chain(4, {2, 0, SplitCut::modulo}, 20) == Places{0, 1, 2, 3});
  CHECK(chain(6, {2, 4, SplitCut::modulo}, 20) == Places{0, 1, 2, 3, 8, 9});
}

TEST_CASE("reveal: runs of leaves, brackets and nested nodes as text", "[reveal]") {
  const auto flat = [](const std::vector<std::int64_t>& leaves, bool exact = false) {
    std::vector<SumTree> children;
    for (const std::int64_t leaf : leaves) children.push_back(SumTree::of_leaf(leaf));
    return SumTree::node(std::move(children), exact);
  };
  CHECK(text_of(SumTree::of_leaf(7)) == "7");
  CHECK(text_of(flat({0, 1})) == "(0 1)");
  CHECK(text_of(flat({0, 2})) == "(0 2)");
  CHECK(text_of(flat({0, 1, 2})) == "(0-2)");
  CHECK(text_of(flat({4, 0, 2})) == "(0-4:2)");
  CHECK(text_of(flat({0, 1, 4, 5, 8, 9})) == "(0 1 4 5 8 9)");
  CHECK(text_of(flat({0, 2, 3, 4, 7})) == "(0 2-4 7)");
  CHECK(text_of(flat({0, 3, 5, 7, 8})) == "(0 3-7:2 8)");
  CHECK(text_of(flat({3, 1}, true)) == "[1 3]");
  const SumTree nested = SumTree::node({flat({4, 5, 6}), flat({0, 1}, true), SumTree::of_leaf(2),
                                        SumTree::of_leaf(3), SumTree::of_leaf(7)});
  CHECK(text_of(nested) == "([0 1] 2 3 (4-6) 7)");
  CHECK(nested.first_leaf() == 0);
  CHECK(nested.leaves() == 8);
  CHECK(leaves_of_both(nested, 4, 6) == 3);
  CHECK(leaves_of_both(nested, 6, 4) == 3);
  CHECK(leaves_of_both(nested, 0, 1) == 2);
  CHECK(leaves_of_both(nested, 1, 2) == 8);
  CHECK(leaves_of_both(nested, 8, 2) == 0);
  CHECK(compact_text_of(SumTree::of_leaf(7)) == "  one term: 7\n");
  CHECK(compact_text_of(flat({1, 3}, true)) == "  #1: exactly 2 terms\n");
  CHECK(compact_text_of(nested) ==
        "  #1: 3 terms + #2 + #3\n  #2: exactly 2 terms\n  #3: 3 terms\n");
  const SumTree chain = SumTree::node(
      {SumTree::node({SumTree::node({flat({0, 1}), flat({2, 3})}), flat({4, 5})}), flat({6, 7})});
  CHECK(compact_text_of(chain) ==
        "  #1: a chain: #2, then 2 times the sum so far + #3\n  #2: 2 x #3\n  #3: 2 terms\n");
  CHECK(compact_text_of(SumTree::node({flat({0, 1}), SumTree::of_leaf(2)})) ==
        "  #1: 1 term + #2\n  #2: 2 terms\n");
}

TEST_CASE("reveal: a tree of up to 600 characters is shown, a longer one if asked for",
          "[reveal]") {
  Revealed found;
  found.shape = {.m = 3, .n = 5, .k = 400, .b_format = FormatId::e5m2};
  found.output = FormatId::bf16;
  found.probes = 11;
  found.rounds = 2;
  for (const std::int64_t first : {0, 10, 100}) {
    // Three digits a leaf and a blank, but for the first; no three are of one stride.
    std::vector<SumTree> leaves{SumTree::of_leaf(first)};
    for (std::int64_t i = 1; i < 150; ++i)
      leaves.push_back(SumTree::of_leaf(100 + i / 2 * 5 + i % 2 * 2));
    found.order.tree = SumTree::node(std::move(leaves));
    const std::string tree = text_of(found.order.tree);
    INFO(tree.size());
    const std::string start =
        "kernel of [3, 400] x [5, 400], e4m3fn x e5m2 -> bf16: 11 probes in 2 rounds\n"
        "tree, with equal parts shown once:\n  #1: 150 terms\n";
    const std::string whole =
        start + "tree, in the order of K (`0-31`: terms of one sum):\n  " + tree + "\n";
    CHECK(describe(found, true) == whole);
    CHECK(describe(found) ==
          (tree.size() <= 600 ? whole
                              : start + "tree, in the order of K: " + std::to_string(tree.size()) +
                                    " characters, not shown\n"));
  }
}

TEST_CASE("reveal: a unit in words and as a file of models", "[reveal]") {
  Revealed found;
  found.shape = {.m = 3, .n = 5, .k = 2};
  found.order.tree = SumTree::node({SumTree::of_leaf(0), SumTree::of_leaf(1)});
  found.model = "mine";
  found.definition = "fused:terms=2,F=13,round=toward_zero,e_min=-5";
  found.rounded_to = FormatId::f16;
  found.parameters = {{"kind", "fused", "fused, exact", false}, {"terms", "2", "2", true}};
  found.checked = 7;
  found.equal = 6;
  found.failure = "something";
  CHECK_THAT(
      describe(found),
      contains("\nunit: mine\n"
               "  kind                         fused (the probes give the same for: fused, exact)\n"
               "  terms                        2\n"
               "  sums are rounded to f16, nearest even\n"
               "checked: 6 of 7 outputs of fresh operands equal the model's, bit for bit\n"
               "not explained: something\n"));
  found.instructions = {"one", "two"};
  CHECK_THAT(describe(found), contains("nearest even\n  as registered: one, two\nchecked"));
  CHECK(models_file(found, "named") ==
        "[accumulator.named]\nbase = \"fused\"\nterms = 2\nF = 13\nround = \"toward_zero\"\n"
        "e_min = -5\n");
}

TEST_CASE("reveal: every rounding and number of bits of a sum is found", "[reveal]") {
  const auto check = [](const char* rounding, int bits) {
    const std::string model =
        fmt::format("sm90.wgmma.e4m3:terms=8,F={},M={},rounding={}", bits + 3, bits, rounding);
    const Revealed found =
        reveal({.m = 3, .n = 3, .k = 24}, kernel_of_model(model, 0, {}, FormatId::f32));
    INFO(model << "\n" << describe(found));
    CHECK(found.explained());
    CHECK(parameter_of(found, "output_fraction_bits").value == std::to_string(bits));
    CHECK(parameter_of(found, "rounding").value == rounding);
    CHECK(parameter_of(found, "alignment_fraction_bits").value == std::to_string(bits + 3));
  };
  check("toward_zero", 1);
  check("nearest_even", 23);
  check("nearest_away", 2);
  check("nearest_toward_zero", 22);
  check("upward", 12);
  check("downward", 1);
}

TEST_CASE("reveal: sums that are rounded before they are written in binary32", "[reveal]") {
  for (const FormatId id : {FormatId::bf16, FormatId::f16}) {
    const ProbeKernel narrow = kernel_of_model("sm90.wgmma.e4m3:terms=8,M=23,F=20", 0, {}, id);
    const Revealed found = reveal({.m = 3, .n = 3, .k = 16}, [&](const ProbeCalls& calls) {
      return ProbeOutputs{narrow(calls).d, FormatId::f32};
    });
    INFO(describe(found));
    CHECK(found.explained());
    CHECK(found.output == FormatId::f32);
    CHECK(found.rounded_to == id);
    CHECK_THAT(describe(found),
               contains(fmt::format("  sums are rounded to {}, nearest even\n", format(id).name)));
  }
  CHECK(rounded_output(FormatId::f16, 65520.0F) == std::numeric_limits<float>::infinity());
  CHECK(rounded_output(FormatId::f16, 65519.0F) == 65504.0F);
  CHECK(rounded_output(FormatId::f16, -0x1.8p-25F) == -0x1p-24F);
  CHECK(rounded_output(FormatId::bf16, 0x1.01p0F) == 1.0F);
  CHECK(rounded_output(FormatId::bf16, 0x1.03p0F) == 0x1.04p0F);
  CHECK(rounded_output(FormatId::f32, 0x1.000002p0F) == 0x1.000002p0F);
}

TEST_CASE("reveal: probes are the same with every compiler", "[reveal]") {
  // The operands of all rounds, but for the four calls of random matrices in the first one.
  const auto sum_of = [](const char* name, std::int64_t m, std::int64_t n, std::int64_t k) {
    const InstructionModel& model = find_instruction_model(name);
    const ProbeKernel kernel = kernel_of_model(name, 0, {}, FormatId::f32);
    std::uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
    bool first = true;
    const Revealed found =
        reveal({.m = m, .n = n, .k = k, .a_format = model.a_format, .b_format = model.b_format},
               [&](const ProbeCalls& calls) {
                 for (const std::vector<std::byte>* words : {&calls.a, &calls.b})
                   for (std::size_t i =
                            first ? words->size() / static_cast<std::size_t>(calls.calls) * 4 : 0;
                        i < words->size(); ++i)
                     sum = (sum ^ static_cast<std::uint64_t>((*words)[i])) * 0x100000001b3u;
                 first = false;
                 return kernel(calls);
               });
    CHECK(found.explained());
    return sum;
  };
  CHECK(sum_of("sm90.wgmma.e4m3", 4, 3, 64) == 0xe95b5212cd78f61eu);
  CHECK(sum_of("sm89.mma.e4m3.e5m2", 3, 4, 48) == 0x2b269920de885851u);
  CHECK(sum_of("sm70.mma.f16", 5, 5, 12) == 0x19b5ec8e0b1bc5a2u);
  CHECK(sum_of("sm80.mma.bf16", 5, 5, 24) == 0x46f3de61c4dccca2u);
  CHECK(sum_of("sm90.mma.e4m3", 4, 4, 64) == 0xe86137e18d283e7au);
}

TEST_CASE("reveal: the last check has two products of usual operands and two of wide ones",
          "[reveal]") {
  for (const auto& [a_format, b_format] : {std::pair{FormatId::e4m3fn, FormatId::e5m2},
                                           {FormatId::f16, FormatId::e4m3fnuz},
                                           {FormatId::bf16, FormatId::bf16}})
    for (const std::uint64_t seed : {1U, 7U}) {
      const ProbeShape shape{.m = 2, .n = 3, .k = 12, .a_format = a_format, .b_format = b_format};
      std::optional<ProbeCalls> first;
      // They are the first calls of the first round.
      const ProbeKernel keep = [&](const ProbeCalls& calls) -> ProbeOutputs {
        first = calls;
        throw Error("enough");
      };
      CHECK_THROWS_WITH(reveal(shape, keep, seed), "enough");
      REQUIRE(first);
      const auto expected = [&](FormatId id, const char* name, std::int64_t rows) {
        const Format& f = format(id);
        std::vector<std::byte> words;
        for (int call = 0; call < 4; ++call) {
          const RandomStream random(seed, fmt::format("reveal {} {}", name, call));
          std::vector<float> values;
          for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(rows * shape.k); ++at) {
            double value = random.normal(at);
            // As many binades as the format has above 1/4, at most twelve.
            const int span = std::min(12, static_cast<int>(std::log2(f.max_finite())) + 3);
            if (call == 1 || call == 3)
              value = std::ldexp(
                  value,
                  static_cast<int>(random.below(at, static_cast<std::uint64_t>(span))) - span / 2);
            values.push_back(
                static_cast<float>(round_trip(f, kNvidiaSatfinite, static_cast<float>(value))));
          }
          append_words(id, values, words);
        }
        return words;
      };
      INFO(format(a_format).name << " x " << format(b_format).name << ", seed " << seed);
      const std::vector<std::byte> a = expected(a_format, "a", 2);
      const std::vector<std::byte> b = expected(b_format, "b", 3);
      CHECK(std::equal(a.begin(), a.end(), first->a.begin()));
      CHECK(std::equal(b.begin(), b.end(), first->b.begin()));
    }
}

TEST_CASE("reveal: a round in files says what it holds, and is read again", "[reveal]") {
  const TemporaryFolder folder("probe_files");
  const auto calls = [](FormatId a, FormatId b, std::size_t a_bytes, std::size_t b_bytes,
                        unsigned start = 0) {
    ProbeCalls made{a, b, 2, 3, 5, 4, {}, {}};
    for (std::size_t i = 0; i < 24 * a_bytes; ++i)
      made.a.push_back(static_cast<std::byte>((start + i) % 59));
    for (std::size_t i = 0; i < 40 * b_bytes; ++i)
      made.b.push_back(static_cast<std::byte>((7 * i) % 61));
    return made;
  };
  const auto said = [&](const ProbeCalls& made) {
    try {
      (void)file_kernel(folder / "p")(made);
    } catch (const ProbesWait& wait) {
      return std::string("waits in round ") + std::to_string(wait.round) + ": " + wait.what();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("outputs");
  };
  const std::string here = (folder / "p").string() + "/round-1";
  const std::string waits = "waits in round 1: round 1: 2 products wait in " + here +
                            "; write their outputs [2, 3, 5] to d.npy there, then run this command "
                            "again";
  const ProbeCalls mixed = calls(FormatId::e4m3fn, FormatId::f16, 1, 2);
  CHECK(said(mixed) == waits);
  CHECK(read_text(here + "/README.txt") ==
        "a.npy [2, 3, 4] holds e4m3fn, b.npy [2, 5, 4] holds f16 (codes as uint8).\n"
        "For each i of 2, compute D[i] = A[i] . B[i]^T with all scales 1 and C zero. Write D [2, "
        "3, 5] to d.npy\n(float32 or float16, as the kernel gives it) in this folder, then run the "
        "command again.\n");
  {
    const NpyFile a(here + "/a.npy", ElementType::e4m3fn);
    CHECK(a.tensor().shape == std::vector<std::int64_t>{2, 3, 4});
    CHECK(std::vector<std::byte>(a.tensor().bytes.begin(), a.tensor().bytes.end()) == mixed.a);
    const NpyFile b(here + "/b.npy");
    CHECK(b.tensor().type == ElementType::f16);
    CHECK(b.tensor().shape == std::vector<std::int64_t>{2, 5, 4});
    CHECK(std::vector<std::byte>(b.tensor().bytes.begin(), b.tensor().bytes.end()) == mixed.b);
  }
  CHECK(said(mixed) == waits);
  const std::string others =
      ": expected the operands of these options, formats, shape and seed, got others: remove the "
      "folder, or use the options with which it was written";
  const auto differ = [&](const char* when) {
    INFO(when);
    ProbeCalls other = mixed;
    other.a[23] ^= std::byte{1};
    CHECK(said(other) == here + "/a.npy" + others);
    other = mixed;
    other.b[79] ^= std::byte{1};
    CHECK(said(other) == here + "/b.npy" + others);
    other = mixed;
    std::swap(other.m, other.k);
    CHECK(said(other).starts_with(here + "/a.npy"));
    other = mixed;
    std::swap(other.n, other.k);
    other.a = calls(FormatId::e4m3fn, FormatId::f16, 1, 2).a;
    CHECK(said(other) != waits);
  };
  differ("without outputs");
  const std::vector<float> d(30, 1.5F);
  const auto outputs = [&](std::vector<std::int64_t> shape) {
    write_npy(here + "/d.npy", view_of(ElementType::f32, std::move(shape), std::span(d)));
  };
  outputs({2, 5, 3});
  CHECK(said(mixed) == here + "/d.npy: expected [2, 3, 5], got [2, 5, 3]");
  outputs({2, 3, 5});
  CHECK(said(mixed) == "outputs");
  differ("with outputs");
  const ProbeOutputs read = file_kernel(folder / "p")(mixed);
  CHECK(read.d == d);
  CHECK(read.output == FormatId::f32);
  const std::vector<double> wide(30, 1.5);
  write_npy(here + "/d.npy", view_of(ElementType::f64, {2, 3, 5}, std::span(wide)));
  CHECK(said(mixed) == here + "/d.npy: expected float32, float16 or bfloat16, got f64");
  std::filesystem::remove(here + "/d.npy");
  // A round that lost a file is written anew.
  for (const char* name : {"/a.npy", "/b.npy"}) {
    std::filesystem::remove(here + name);
    CHECK(said(mixed) == waits);
    CHECK(std::filesystem::exists(here + name));
  }
  // TF32 is written as binary32; the second call of a kernel is the second round.
  const ProbeCalls words = calls(FormatId::tf32, FormatId::bf16, 4, 2);
  const ProbeKernel kernel = file_kernel(folder / "q");
  for (const int round : {1, 2}) {
    CHECK_THROWS_WITH(kernel(words), contains("round " + std::to_string(round) + ": 2 products"));
    const std::filesystem::path at = folder / ("q/round-" + std::to_string(round));
    CHECK(NpyFile(at / "a.npy").tensor().type == ElementType::f32);
    CHECK_THAT(read_text(at / "README.txt"), contains("holds tf32, b.npy [2, 5, 4] holds bf16"));
  }
}
