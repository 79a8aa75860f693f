// Every mistake that `verify` knows is made, and named with its text; each is what its text says.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/k_blocks.hpp"
#include "fp8lab/verify/kernel_causes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Values = std::vector<float>;

/// The causes of `wrong` in place of the product's output, as "name: text" in a row.
std::string causes_of(const Product& product, const Values& wrong) {
  const std::vector<std::byte> golden = golden_output(product);
  const std::vector<std::byte> got = cast_output(wrong, product.output);
  REQUIRE(golden != got);
  Sample all{std::vector<std::int64_t>(static_cast<std::size_t>(product.rows())),
             std::vector<std::int64_t>(static_cast<std::size_t>(product.columns()))};
  std::iota(all.rows.begin(), all.rows.end(), 0);
  std::iota(all.columns.begin(), all.columns.end(), 0);
  std::string text = "\n";
  for (const Cause& cause : diagnose(product, got, all, {.golden = golden}).causes)
    text += cause.name + ": " + cause.text + "\n";
  return text;
}
std::string causes_of(const Product& product, const std::optional<Product>& wrong) {
  REQUIRE(wrong);
  return causes_of(product, compute(*wrong));
}
auto named(const std::string& cause) { return contains("\n" + cause + "\n"); }

}  // namespace

TEST_CASE("causes: scales of every wrong place are named", "[verify]") {
  const RandomProduct random({.promotion_interval = 32},
                             {.shape = {6, 4, 1024}, .tiles_a = {6, 8}, .tiles_b = {4, 8}});
  const Product& p = random.product;
  for (const auto& [side, letter, text] :
       {std::tuple{Side::a, std::string("a"), std::string("A's scale")},
        {Side::b, "b", "B's scale"},
        {Side::both, "a_and_b", "both scales"}}) {
    CAPTURE(letter);
    for (const std::int64_t group : {16, 32, 64, 256, 512}) {
      const std::string size = std::to_string(group);
      CHECK_THAT(causes_of(p, with_scale_group_along_k(p, side, group)),
                 named("scale_group_" + size + "_" + letter + ": " + text +
                       " read as if a tile had " + size + " terms of K"));
    }
    CHECK_THAT(causes_of(p, with_scales_moved_along_k(p, side, -1)),
               named("stale_scale_" + letter + ": " + text + " of the tile of K before"));
    CHECK_THAT(causes_of(p, with_scales_moved_along_k(p, side, 1)),
               named("next_scale_" + letter + ": " + text + " of the next tile of K"));
    CHECK_THAT(causes_of(p, with_first_scale_of_k(p, side)),
               named("first_scale_" + letter + ": " + text + " of the first tile of K throughout"));
    for (const auto& [by, row] : {std::pair{1, std::string("next")}, {-1, "previous"}})
      CHECK_THAT(causes_of(p, with_scales_moved_along_rows(p, side, by)),
                 named("scale_" + letter + "_of_" + row + "_row: " + text + " of the " + row +
                       " row of tiles"));
  }
}

TEST_CASE("causes: scales of every wrong value are named", "[verify]") {
  const RandomProduct random({.promotion_interval = 32},
                             {.shape = {6, 4, 256}, .tiles_a = {6, 2}, .tiles_b = {4, 2}});
  const Product& p = random.product;
  for (const auto& [side, letter, text] :
       {std::tuple{Side::a, std::string("a"), std::string("A's scale")},
        {Side::b, "b", "B's scale"},
        {Side::both, "a_and_b", "both scales"}}) {
    CAPTURE(letter);
    CHECK_THAT(causes_of(p, without_scales(p, side)),
               named("missing_scale_" + letter + ": " + text + " not applied"));
    CHECK_THAT(causes_of(p, with_doubled_scales(p, side)),
               named("doubled_scale_" + letter + ": " + text + " applied twice"));
    CHECK_THAT(causes_of(p, with_inverted_scales(p, side)),
               named("inverted_scale_" + letter + ": " + text +
                     " inverted: divided instead of multiplied"));
    for (const auto& [id, name] :
         {std::pair{FormatId::bf16, std::string("bf16")}, {FormatId::f16, "f16"}})
      CHECK_THAT(causes_of(p, with_rounded_scales(p, side, id)),
                 named(name + "_scale_" + letter + ": " + text + " rounded to " + name));
  }
  for (const ScaleOrder order : scale_orders()) {
    if (order == p.problem.scale_order) continue;
    Product other = p;
    other.problem.scale_order = order;
    const std::string name(to_string(order));
    CHECK_THAT(causes_of(p, other),
               named("scale_order_" + name + ": scales applied in the order " + name));
  }
}

TEST_CASE("causes: scales of rows in groups of every size are named", "[verify]") {
  const RandomProduct random({}, {.shape = {300, 8, 64}, .tiles_a = {300, 1}, .tiles_b = {8, 1}});
  Product p = random.product;
  p.problem.scale_a.values = p.problem.scale_a.values.first(7);
  p.problem.scale_a.row_block = 48;
  for (const std::int64_t group : {1, 32, 64, 128, 256}) {
    const std::string size = std::to_string(group);
    CHECK_THAT(
        causes_of(p, with_scale_group_along_rows(p, Side::a, group)),
        named("scale_row_group_" + size + "_a: A's scale read as if a tile had " + size + " rows"));
  }
}

TEST_CASE("causes: terms that were left out or read elsewhere are named", "[verify]") {
  // 1144 terms: 120 beyond multiples of 128, 56 of 64, 24 of 32, 8 of 16.
  const RandomProduct random({}, {.shape = {6, 4, 1144}});
  const Product& p = random.product;
  const auto left_out = [&](std::int64_t begin, std::int64_t end) {
    return causes_of(p, without_terms(p, begin, end));
  };
  for (const auto& [step, tail] : {std::pair{128, 120}, {64, 56}, {32, 24}, {16, 8}})
    CHECK_THAT(left_out(1144 - tail, 1144),
               named("dropped_k_tail: the last " + std::to_string(tail) +
                     " terms, beyond multiples of " + std::to_string(step) + ", left out"));
  CHECK_THAT(left_out(1024, 1144), named("dropped_last_k_tile: the terms from 1024 on left out"));
  CHECK_THAT(left_out(0, 128), named("dropped_first_k_tile: the first 128 terms left out"));
  // Half of K, up to whole tiles.
  CHECK_THAT(left_out(0, 640), named("dropped_first_half_of_k: the first 640 terms left out"));
  CHECK_THAT(left_out(640, 1144), named("dropped_last_half_of_k: the terms from 640 on left out"));
  const Sample all{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3}};
  for (const auto& [side, letter, of] :
       {std::tuple{Side::a, std::string("a"), std::string("A")}, {Side::b, "b", "B"}})
    for (const auto& [by, text] : {std::pair{1, std::string("1 term too far")},
                                   {-1, "1 term early"},
                                   {16, "16 terms too far"},
                                   {-16, "16 terms early"}})
      CHECK_THAT(
          causes_of(p, take_with_moved_terms(p, all, side, by)),
          named("k_offset_" + std::to_string(by) + "_" + letter + ": " + of + " read " + text));
  for (const auto& [side, letter, of] :
       {std::tuple{Side::a, std::string("a"), std::string("A")}, {Side::b, "b", "B"}})
    CHECK_THAT(causes_of(p, with_codes_read_as(p, side, fnuz_counterpart)),
               named("fnuz_" + letter + ": FNUZ/FN mix-up: " + of +
                     "'s codes were read with the other bias"));
}

TEST_CASE("causes: every promotion, split and narrow sum is named", "[verify]") {
  const RandomProduct random({.promotion_interval = 2048},
                             {.shape = {6, 4, 2560}, .data = Data::wide});
  const Product& p = random.product;
  for (const std::int64_t interval : {0, 32, 64, 128, 256, 512, 1024}) {
    Product other = p;
    other.problem.promotion_interval = interval;
    const std::string size = std::to_string(interval);
    CHECK_THAT(causes_of(p, other),
               named(interval == 0
                         ? "no_promotion: no promotion to FP32 at all"
                         : "promotion_" + size + ": promotion to FP32 every " + size + " terms"));
  }
  // Of an instruction whose sums fill binary32: those of 14 bits add up without rounding.
  const RandomProduct full({.model = "sm100.mma.e4m3", .promotion_interval = 128},
                           {.shape = {6, 4, 2560}, .data = Data::wide});
  for (const int parts : {2, 4, 8, 16})
    CHECK_THAT(causes_of(full.product, *compute_split_k(full.product, parts)),
               named("split_k_" + std::to_string(parts) + ": K split in " + std::to_string(parts) +
                     " parts, summed in FP32 in order"));
  for (const auto& [id, name] :
       {std::pair{FormatId::bf16, std::string("bf16")}, {FormatId::f16, "f16"}})
    for (const std::int64_t interval : {32, 64, 128}) {
      // Small enough for FP16.
      const RandomProduct normal({.promotion_interval = 128}, {.shape = {6, 4, 512}});
      CHECK_THAT(
          causes_of(normal.product,
                    *compute_in_intervals(normal.product, {.interval = interval, .rounded = id})),
          named(name + "_accumulator: the sum rounded to " + name + " every " +
                std::to_string(interval) + " terms"));
    }
}

TEST_CASE("causes: blocks of K of every kind are told by their place", "[verify]") {
  // Nine blocks of 32 terms and a short one.
  const RandomProduct random({}, {.shape = {4, 3, 304}});
  const Product& p = random.product;
  const Values golden = compute(p);
  const std::vector<std::int64_t> all = all_k_blocks(304, 32);
  REQUIRE(all.size() == 10);
  const auto found = [&](const BlockSources& sources) {
    std::string text = "\n";
    for (const BlockMistake& one :
         likely_block_mistakes(p, golden, compute(with_k_blocks(p, 32, sources)), 32))
      text += one.name + ": " + one.text + "\n";
    return text;
  };
  const auto range = [](std::int64_t block) {
    return fmt::format("[{}, {})", block * 32, std::min<std::int64_t>(block * 32 + 32, 304));
  };
  for (const std::int64_t at : {0, 5, 8, 9}) {
    BlockSources sources{all, all, all};
    for (std::vector<std::int64_t>* list : {&sources.a, &sources.b, &sources.scales})
      list->erase(list->begin() + at);
    CHECK_THAT(found(sources), named("dropped_k_block: block " + range(at) + " of K left out"));
    if (at == 9) continue;
    sources = {all, all, all};
    for (std::vector<std::int64_t>* list : {&sources.a, &sources.b, &sources.scales})
      list->insert(list->begin() + at, at);
    CHECK_THAT(found(sources),
               named("doubled_k_block: block " + range(at) + " of K counted twice"));
  }
  for (const std::int64_t older : {1, -1, 2, 3, 4}) {
    const std::string text = "block " + range(4) + " of K still held " + range(4 - older) + ", of ";
    BlockSources sources{all, all, all};
    sources.a[4] = 4 - older;
    CHECK_THAT(found(sources), named("stale_k_block_a: " + text + "A"));
    sources.b[4] = 4 - older;
    CHECK_THAT(found(sources), named("stale_k_block: " + text + "A and B"));
    sources.a[4] = 4;
    CHECK_THAT(found(sources), named("stale_k_block_b: " + text + "B"));
  }
  // The short block counted twice has no place; two whole blocks are enough.
  Values twice = compute(take_k(p, 288, 304));
  for (std::size_t i = 0; i < twice.size(); ++i) twice[i] += golden[i];
  for (const BlockMistake& one : likely_block_mistakes(p, golden, twice, 32))
    CHECK(one.name != "doubled_k_block");
  const Product two = take_k(p, 0, 64);
  const Values second = compute(take_k(p, 32, 64));
  const auto mistakes = likely_block_mistakes(two, compute(two), second, 32);
  CHECK(std::ranges::find(mistakes, "block [0, 32) of K left out", &BlockMistake::text) !=
        mistakes.end());
  const Product one = take_k(p, 0, 48);
  CHECK(likely_block_mistakes(one, compute(one), compute(take_k(p, 0, 32)), 32).empty());
}

TEST_CASE("causes: a kernel's mistake is the product that its name says", "[verify]") {
  const RandomProduct random({}, {.shape = {6, 8, 64}});
  const std::vector<float> eight{0.5F, 2.0F, 1.25F, -0.75F, 3.0F, -1.5F, 0.875F, 1.75F};
  std::vector<float> c(48);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i % 7) - 2.5F;
  const auto with = [&](Activation activation) {
    Product p = random.product;
    Epilogue& e = p.epilogue;
    e.alpha = 0.125F;
    e.bias = eight;
    e.row_scales = std::span(eight).first(6);
    e.column_scales = eight;
    e.c = c.data();
    e.beta = -2.0F;
    e.activation = activation;
    e.output_scale = 3.0F;
    return p;
  };
  const auto output = [](const Product& p, std::string_view name) {
    const auto all = kernel_mistakes(p);
    const auto found = std::ranges::find(all, name, &KernelMistake::name);
    INFO(name);
    REQUIRE(found != all.end());
    return found->output(p).value();
  };
  const Product p = with(Activation::silu);
  const auto changed = [](Product wrong, const auto& change) {
    change(wrong.epilogue);
    return compute(wrong);
  };
  CHECK(output(p, "missing_bias") == changed(p, [](Epilogue& e) { e.bias = {}; }));
  CHECK(output(p, "missing_row_scales") == changed(p, [](Epilogue& e) { e.row_scales = {}; }));
  CHECK(output(p, "missing_column_scales") ==
        changed(p, [](Epilogue& e) { e.column_scales = {}; }));
  // Each is tried where the epilogue has that part, whatever others it has.
  const auto tried = [](const Product& of, std::string_view name) {
    return std::ranges::count(kernel_mistakes(of), name, &KernelMistake::name) == 1;
  };
  for (const bool rows : {false, true}) {
    Product scaled = random.product;
    (rows ? scaled.epilogue.row_scales : scaled.epilogue.column_scales) =
        std::span(eight).first(rows ? 6 : 8);
    CHECK(tried(scaled, "missing_row_scales") == rows);
    CHECK(tried(scaled, "missing_column_scales") == !rows);
    CHECK_FALSE(tried(scaled, "missing_bias"));
  }
  CHECK(output(p, "missing_alpha") == changed(p, [](Epilogue& e) { e.alpha = 1.0F; }));
  CHECK(output(p, "missing_c") == changed(p, [](Epilogue& e) { e.c = nullptr; }));
  CHECK(output(p, "missing_beta") == changed(p, [](Epilogue& e) { e.beta = 1.0F; }));
  CHECK(output(p, "missing_output_scale") ==
        changed(p, [](Epilogue& e) { e.output_scale.reset(); }));
  CHECK(output(p, "inverted_output_scale") ==
        changed(p, [](Epilogue& e) { e.output_scale = 1.0F / 3.0F; }));
  for (const Activation other : {Activation::none, Activation::relu, Activation::leaky_relu,
                                 Activation::gelu, Activation::gelu_tanh})
    CHECK(output(p, other == Activation::none ? "missing_activation"
                                              : "activation_" + std::string(to_string(other))) ==
          changed(p, [&](Epilogue& e) { e.activation = other; }));
  // What each value becomes, step by step.
  const Values sums = compute_sums(p);
  const auto before = [&](const Epilogue& e, const Values& of, std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return before_activation(e, of[i], at / 8, at % 8, 8);
  };
  const auto rounded = [](float x, FormatId id) {
    return static_cast<float>(decode(format(id), encode(format(id), kNvidiaNosat, x)));
  };
  const auto silu = [](float x) {
    const double wide = x;
    return static_cast<float>(wide / (1.0 + std::exp(-wide)));
  };
  Epilogue without = p.epilogue;
  without.bias = {};
  const Values late = output(p, "bias_after_activation");
  for (std::size_t i = 0; i < 48; ++i)
    CHECK(late[i] == (silu(before(without, sums, i)) + eight[i % 8]) * 3.0F);
  for (const FormatId id : {FormatId::bf16, FormatId::f16}) {
    const std::string name(format(id).name);
    const Values of_sum = output(p, name + "_before_epilogue");
    const Values of_v = output(p, name + "_before_activation");
    Values narrow = sums;
    for (float& x : narrow) x = rounded(x, id);
    for (std::size_t i = 0; i < 48; ++i) {
      CAPTURE(name, i);
      CHECK(of_sum[i] == silu(before(p.epilogue, narrow, i)) * 3.0F);
      CHECK(of_v[i] == silu(rounded(before(p.epilogue, sums, i), id)) * 3.0F);
    }
  }
  const Product gated = with(Activation::swiglu);
  const Values exchanged = output(gated, "gate_and_factor_exchanged");
  REQUIRE(exchanged.size() == 24);
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t at = i / 4 * 8 + i % 4;
    CHECK(exchanged[i] ==
          silu(before(gated.epilogue, sums, at + 4)) * before(gated.epilogue, sums, at) * 3.0F);
  }
}

TEST_CASE("causes: each misread tensor scale is a product under that scale", "[verify]") {
  const RandomProduct random({}, {.shape = {3, 4, 64}, .tiles_a = {3}, .tiles_b = {4}});
  for (const bool of_a : {true, false})
    for (const bool of_b : {true, false}) {
      Product p = random.product;
      if (of_a) p.problem.scale_a.tensor_scale = 0.75F;
      if (of_b) p.problem.scale_b.tensor_scale = 5.0F;
      const auto all = kernel_mistakes(p);
      const auto misread = std::ranges::count_if(all, [](const KernelMistake& one) {
        return one.name.find("_tensor_scale_") != std::string::npos;
      });
      CHECK(misread == 3 * (of_a + of_b + (of_a && of_b ? 1 : 0)));
      for (const auto& [name, power] :
           {std::pair{std::string("missing"), 0}, {"inverted", -1}, {"doubled", 2}})
        for (const bool a : {true, false})
          for (const bool b : {true, false}) {
            if ((!a && !b) || (a && !of_a) || (b && !of_b)) continue;
            const std::string full = name + "_tensor_scale_" + (a && b ? "a_and_b" : a ? "a" : "b");
            const auto found = std::ranges::find(all, full, &KernelMistake::name);
            INFO(full);
            REQUIRE(found != all.end());
            const auto read = [&, by = power](float x) {
              return by == 0 ? 1.0F : by == 2 ? x * x : 1.0F / x;
            };
            Product wrong = p;
            if (a) wrong.problem.scale_a.tensor_scale = read(0.75F);
            if (b) wrong.problem.scale_b.tensor_scale = read(5.0F);
            CHECK(found->output(p).value() == compute(wrong));
          }
    }
}

TEST_CASE("mistakes of casts: each code is what its name says", "[verify]") {
  const Values values{0.0F,     -0.0F,   1.0F,      -1.0F,  1.0625F, 1.1875F, -1.0625F, 0.3F,
                      -0x1p-7F, 0x1p-9F, -0x1p-10F, 1e-40F, -1e-40F, 100.0F,  -447.0F};
  for (const FormatId id :
       {FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16, FormatId::f16, FormatId::f32}) {
    const OutputCast output = default_output(id);
    const auto cast = [&, id = id](float x) {
      return id == FormatId::f32 ? std::bit_cast<std::uint32_t>(x)
                                 : encode(format(id), output.policy, x);
    };
    const auto mistakes = cast_mistakes(id, output.policy);
    const auto code = [&](std::string_view name, float x) {
      const auto found = std::ranges::find(mistakes, name, &CastMistake::name);
      REQUIRE(found != mistakes.end());
      return found->code(x);
    };
    for (const float x : values) {
      CAPTURE(format(id).name, x);
      CHECK(code("negated_output", x) == cast(-x));
      CHECK(code("doubled_output", x) == cast(2.0F * x));
      CHECK(code("halved_output", x) == cast(0.5F * x));
      CHECK(code("relu", x) == cast(x < 0.0F ? 0.0F : x));
      const bool subnormal = id == FormatId::f32
                                 ? std::fpclassify(x) == FP_SUBNORMAL
                                 : unpack(format(id), cast(x)).value_class == ValueClass::subnormal;
      const float flushed = std::copysign(0.0F, x);
      CHECK(code("flushed_subnormals", x) == cast(subnormal ? flushed : x));
      if (id == FormatId::f32) continue;
      CastPolicy policy = output.policy;
      policy.rounding = RoundingMode::toward_zero;
      CHECK(code("rtz_cast", x) == encode(format(id), policy, x));
      policy.rounding = RoundingMode::nearest_away;
      CHECK(code("ties_away_cast", x) == encode(format(id), policy, x));
    }
  }
}

TEST_CASE("diagnosis of a cast: each element has its own scale", "[verify]") {
  Values x;
  Values scale;
  for (std::uint64_t i = 0; i < 256; ++i) {
    x.push_back(std::ldexp(1.0F + static_cast<float>(i % 16) / 16.0F, static_cast<int>(i % 5) - 2));
    scale.push_back(1.0F + static_cast<float>(i % 13) / 7.0F);
  }
  const CastSpec spec{};
  const auto causes = [&](const auto& value) {
    std::vector<std::byte> got;
    for (std::size_t i = 0; i < x.size(); ++i)
      got.push_back(
          static_cast<std::byte>(encode(format(spec.format), spec.policy, value(x[i], scale[i]))));
    std::string text = "\n";
    for (const Cause& cause : diagnose_cast(spec, x, scale, got).causes)
      text += cause.name + ": " + cause.text + "\n";
    return text;
  };
  CHECK(causes([](float v, float s) { return v * s; }) == "\n");
  CHECK_THAT(causes([](float v, float) { return v; }),
             named("missing_scale: the scale not applied"));
  CHECK_THAT(causes([](float v, float s) { return v * s * s; }),
             named("doubled_scale: the scale applied twice"));
  CHECK_THAT(causes([](float v, float s) { return v / s; }),
             named("inverted_scale: divided by the scale instead of multiplied"));
}
