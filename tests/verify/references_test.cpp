#include "fp8lab/verify/references.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("references: FP64's are FP32's but for rounding, under every epilogue", "[verify]") {
  // FP32's come from the product itself, FP64's from formulas of their own.
  for (const Activation activation : activations())
    for (const float alpha : {1.0F, 0.25F})
      for (const bool scaled_output : {false, true})
        for (const bool scaled : {false, true}) {
          GemmSpec spec{.promotion_interval = 128};
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
