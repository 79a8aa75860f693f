// Units that few kernels have: sums of single products that grow by rounding up, and those with a
// second stage.

#include <string>
#include <utility>

#include "catch.hpp"
#include "fp8lab/reveal/reveal.hpp"

using namespace fp8lab;

TEST_CASE("reveal: a sum that grows by rounding up is explained, and no compensated one",
          "[reveal]") {
  for (const char* rounding : {"upward", "nearest_away"}) {
    const std::string model = std::string("sm90.wgmma.e4m3:terms=1,F=26,M=23,rounding=") + rounding;
    const Revealed found =
        reveal({.m = 3, .n = 3, .k = 24}, kernel_of_model(model, 0, {}, FormatId::f32));
    INFO(describe(found));
    CHECK(found.failure.empty());
    CHECK(found.explained());
    CHECK(found.order.failure.empty());
  }
}

TEST_CASE("reveal: AMD's units with a second stage", "[reveal]") {
  for (const auto& [model, format] :
       {std::pair{"gfx942.mfma.f16", FormatId::f16}, {"gfx942.mfma.fp8", FormatId::e4m3fnuz}}) {
    const Revealed found = reveal({.m = 3, .n = 3, .k = 32, .a_format = format, .b_format = format},
                                  kernel_of_model(model, 0, {}, FormatId::f32));
    INFO(describe(found));
    CHECK(found.explained());
    CHECK(found.model == model);
    CHECK_THAT(found.definition, contains("F=24,S=31,"));
  }
}
