#include "fp8lab/verify/references.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/triton_interpreter.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "fp8lab/verify/causes.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("references: FP64's are FP32's but for rounding, under every epilogue", "[verify]") {
  // FP32's come from the product itself, FP64's from formulas of their own.
  for (const Activation activation : activations())
    for (const float alpha : {1.0F, 0.25F})
      for (const bool scaled_output : {false, true})
        for (const bool scaled : {false, true}) {
          GemmSpec spec{.model = "sm90.wgmma.e4m3", .promotion_interval = 128};
          spec.epilogue.activation = activation;
          spec.epilogue.alpha = alpha;
          if (scaled_output) spec.epilogue.output_scale = 3.0F;
          RandomProduct::Options options{.shape = {6, 10, 256}};
          if (scaled) options.tiles_a = {6, 2}, options.tiles_b = {10, 2};
          const RandomProduct random(spec, options);
          const auto found = references_of(random.product, {});
          REQUIRE(found[0].values.size() == found[1].values.size());
          double largest = 0.0;
          double worst = 0.0;
          for (std::size_t i = 0; i < found[0].values.size(); ++i) {
            largest = std::max(largest, std::abs(found[0].values[i]));
            worst = std::max(worst, std::abs(found[0].values[i] - found[1].values[i]));
          }
          INFO(to_string(activation) << ", alpha " << alpha << ", output scale " << scaled_output
                                     << ", scales " << scaled);
          CHECK(largest > 0.0);
          CHECK(worst <= 1e-4 * largest);
        }
}

TEST_CASE("mistakes of casts: overflow and infinities are those of the other policy", "[verify]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz,
                            FormatId::e5m2fnuz, FormatId::f16, FormatId::bf16})
    for (const bool saturates : {true, false}) {
      const CastPolicy policy = saturates ? kNvidiaSatfinite : kNvidiaNosat;
      const CastPolicy other = saturates ? kNvidiaNosat : kNvidiaSatfinite;
      const std::string_view name = saturates ? "not_saturated" : "saturated";
      const auto mistakes = cast_mistakes(id, policy);
      const auto found = std::ranges::find(mistakes, name, &CastMistake::name);
      REQUIRE(found != mistakes.end());
      CHECK(std::ranges::count(mistakes, name, &CastMistake::name) == 1);
      const Format& f = format(id);
      const auto most = static_cast<float>(f.max_finite());
      constexpr float kInf = std::numeric_limits<float>::infinity();
      for (const float x :
           {kInf, -kInf, std::nextafter(most, kInf) * 1.5F, -1.5F * most, most, 1.0F, 0.0F}) {
        INFO(f.name << ", " << name << ", " << x);
        CHECK(found->code(x) == encode(f, other, x));
        if (std::isinf(x)) CHECK(std::isfinite(decode(f, found->code(x))) != saturates);
      }
      // Each other mistake overflows as the right cast does.
      for (const std::string_view same : {"rtz_cast", "ties_away_cast", "flushed_subnormals"}) {
        const auto one = std::ranges::find(mistakes, same, &CastMistake::name);
        REQUIRE(one != mistakes.end());
        INFO(f.name << ", " << same);
        CHECK(one->code(kInf) == encode(f, policy, kInf));
        CHECK(one->code(-kInf) == encode(f, policy, -kInf));
        CHECK(one->code(1.0F) == encode(f, policy, 1.0F));
      }
    }
}

TEST_CASE("mistakes of casts: each is the cast that its name says, of every format and policy",
          "[verify]") {
  std::vector<float> values;
  const RandomStream draws(8, "cast mistakes");
  for (std::uint64_t i = 0; i < 600; ++i) {
    const auto exponent = static_cast<int>(draws.below(2 * i, 46)) - 30;
    values.push_back(std::ldexp(static_cast<float>(draws.normal(2 * i + 1)), exponent));
    // Ties of each number of mantissa bits.
    for (const int bits : {2, 3, 7, 10}) {
      const float tie = 1.0F + std::ldexp(static_cast<float>(2 * (i % 4) + 1), -bits - 1);
      values.push_back(std::ldexp(tie, static_cast<int>(i % 30) - 15));
    }
    values.push_back(1.0625F + std::ldexp(1.0F, -11 - static_cast<int>(i % 3)));
  }
  for (const float x : {0.0F, -0.0F, 448.0F, 464.0F, 480.0F, 1e6F, -1e9F, 65504.0F, 65520.0F,
                        57344.0F, 61440.0F, 0x1p-149F, 0x1p-126F, 0x1.8p-127F, 3.4028235e38F})
    values.push_back(x);
  for (const FormatId id : {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::e4m3fn,
                            FormatId::e5m2, FormatId::e4m3fnuz, FormatId::e5m2fnuz})
    for (const bool saturates : {true, false}) {
      const Format& f = format(id);
      const CastPolicy policy = saturates ? kNvidiaSatfinite : kNvidiaNosat;
      using Cast = std::function<std::uint32_t(float)>;
      const Cast right = [&](float x) {
        return id == FormatId::f32 ? std::bit_cast<std::uint32_t>(x) : encode(f, policy, x);
      };
      std::vector<std::pair<std::string, Cast>> expected;
      for (const FormatId between : {FormatId::f16, FormatId::bf16}) {
        const Format& g = format(between);
        if (between != id)
          expected.emplace_back(fmt::format("double_rounding_{}", g.name), [&](float x) {
            return right(static_cast<float>(decode(g, encode(g, kNvidiaNosat, x))));
          });
      }
      for (const FormatId between : {FormatId::f16, FormatId::bf16}) {
        const Format& g = format(between);
        CastPolicy first = kNvidiaNosat;
        first.rounding = RoundingMode::toward_zero;
        if (between != id)
          expected.emplace_back(fmt::format("truncated_{}_first", g.name),
                                [&g, &right, first](float x) {
                                  return right(static_cast<float>(decode(g, encode(g, first, x))));
                                });
      }
      const auto under = [&](const char* name, CastPolicy changed) {
        expected.emplace_back(name, [&f, changed](float x) { return encode(f, changed, x); });
      };
      if (id == FormatId::f32) {
        expected.emplace_back("flushed_subnormals", [](float x) {
          const float flushed = std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
          return std::bit_cast<std::uint32_t>(flushed);
        });
      } else {
        CastPolicy changed = policy;
        changed.rounding = RoundingMode::toward_zero;
        under("rtz_cast", changed);
        changed.rounding = RoundingMode::nearest_away;
        under("ties_away_cast", changed);
        under(saturates ? "not_saturated" : "saturated",
              saturates ? kNvidiaNosat : kNvidiaSatfinite);
        changed = policy;
        changed.subnormals = SubnormalPolicy::flush_to_zero;
        under("flushed_subnormals", changed);
        if (const auto other = fnuz_counterpart(id)) {
          const Format& g = format(*other);
          expected.emplace_back(f.specials == SpecialValues::fnuz ? "fn_output" : "fnuz_output",
                                [&g, policy](float x) { return encode(g, policy, x); });
        }
        if (is_cast_of_triton_interpreter(id))
          expected.emplace_back("triton_interpreter_cast",
                                [&f](float x) { return triton_interpreter_code(f, x); });
      }
      expected.emplace_back("negated_output", [&](float x) { return right(-x); });
      expected.emplace_back("relu", [&](float x) { return right(x < 0.0F ? 0.0F : x); });
      expected.emplace_back("doubled_output", [&](float x) { return right(x + x); });
      expected.emplace_back("halved_output", [&](float x) { return right(x / 2.0F); });
      const std::vector<CastMistake> got = cast_mistakes(id, policy);
      INFO(f.name << ", saturates " << saturates);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(expected[i].first);
        CHECK(got[i].name == expected[i].first);
        int wrong = 0;
        int other = 0;
        for (const float x : values) {
          wrong += got[i].code(x) == expected[i].second(x) ? 0 : 1;
          other += expected[i].second(x) == right(x) ? 0 : 1;
        }
        CHECK(wrong == 0);
        CHECK(other > 0);  // each shows on these numbers
      }
    }
}

TEST_CASE("diagnosis of a cast: scales are one or as many as there are numbers", "[verify]") {
  const std::vector<float> x{1.0F, 2.0F, 3.0F};
  const std::vector<float> scales(5, 1.0F);
  const std::vector<std::byte> codes(4, std::byte{0x38});
  const auto said = [&](std::size_t of_scale, std::size_t of_codes) {
    return test::message_of([&] {
      (void)diagnose_cast({}, x, std::span(scales).first(of_scale),
                          std::span(codes).first(of_codes));
    });
  };
  CHECK(said(1, 3) == "accepted");
  CHECK(said(3, 3) == "accepted");
  for (const std::size_t count : {0U, 2U, 4U})
    CHECK(said(count, 3) == fmt::format("scale: expected 1 or 3 values, got {}", count));
  for (const std::size_t count : {0U, 2U, 4U})
    CHECK(said(1, count) == fmt::format("got: expected 3 codes, as x, got {}", count));
}

TEST_CASE("mistakes of quantizing are those of floats, of Triton's formats where both have one",
          "[verify]") {
  std::vector<float> values;
  const RandomStream draws(5, "quantization mistakes");
  for (std::uint64_t i = 0; i < 8 * 128; ++i) values.push_back(static_cast<float>(draws.normal(i)));
  const auto names = [](const Product& product) {
    std::string text;
    for (const OtherQuantization& one : quantization_mistakes(product))
      text += std::string(one.name) + " ";
    return text;
  };
  const auto quantized = [&](const char* recipe, const char* model) {
    GemmOperands operands;
    operands.a.codes =
        view_of(ElementType::f32, {4, 128}, std::span<const float>(values).first(512));
    operands.b.codes = view_of(ElementType::f32, {8, 128}, std::span<const float>(values));
    operands.recipe = recipe;
    return make_product(operands, {.model = model});
  };
  Product both = quantized("te-current", "exact");
  CHECK(names(both) == "truncated_quantization triton_interpreter_cast ");
  CHECK(names(quantized("nvfp4", "sm120.mma.mxf4nvf4")) == "truncated_quantization ");
  for (const bool of_a : {true, false}) {
    Product one = both;
    (of_a ? one.a_original : one.b_original) = nullptr;
    CHECK(names(one) == "");
    Product mixed = both;
    (of_a ? mixed.problem.a : mixed.problem.b).format = FormatId::e2m1;
    CHECK(names(mixed) == "truncated_quantization ");
  }
}

TEST_CASE("references: against originals they are those floats' sums, rounded once more each",
          "[verify]") {
  std::vector<float> values;
  const RandomStream draws(7, "originals");
  for (std::uint64_t i = 0; i < 8 * 70; ++i) values.push_back(static_cast<float>(draws.normal(i)));
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::f32, {3, 70}, std::span<const float>(values).first(210));
  operands.b.codes = view_of(ElementType::f32, {8, 70}, std::span<const float>(values));
  operands.recipe = "torchao-rowwise";
  const Product product =
      make_product(operands, {.model = "exact", .output = default_output(FormatId::bf16)});
  for (const bool originals : {false, true}) {
    ExpectOptions options;
    options.against_originals = originals;
    options.threads = 1;
    const auto found = references_of(product, options);
    const std::vector<float> exact = compute(product, 1);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 8; ++j) {
        double sum = 0.0;
        double size = 0.0;
        for (std::size_t k = 0; k < 70; ++k) {
          const double term =
              static_cast<double>(values[i * 70 + k]) * static_cast<double>(values[j * 70 + k]);
          sum += term;
          size += std::abs(term);
        }
        const std::size_t at = i * 8 + j;
        INFO("originals " << originals << ", " << i << ", " << j);
        const double fp64 = found[0].values[at];
        const double fp32 = found[1].values[at];
        const double bf16 = found[2].values[at];
        CHECK((std::abs(fp64 - sum) <= 1e-14 * size) == originals);
        if (originals) CHECK(fp32 == static_cast<double>(static_cast<float>(fp64)));
        CHECK(std::abs(fp32 - fp64) <= 1e-5 * size);
        CHECK(std::abs(fp64 - (originals ? sum : static_cast<double>(exact[at]))) <= 1e-6 * size);
        const auto once = encode(format(FormatId::bf16), kNvidiaNosat, static_cast<float>(fp32));
        CHECK(bf16 == decode(format(FormatId::bf16), once));
      }
    for (const Reference& one : found) {
      std::vector<float> narrow;
      for (const double x : one.values) narrow.push_back(static_cast<float>(x));
      CHECK(one.codes == cast_output(narrow, product.output, 1));
    }
  }
}
