// Units that few kernels have: sums of single products that grow by rounding up, and those with a
// second stage.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    CHECK_THAT(found.definition, contains("F=24,S=32,"));
  }
}

namespace {

/// The unit that was found, and of each parameter that is not certain what it may be.
std::string unit_of(const Revealed& found) {
  if (!found.explained()) return found.failure;
  std::string text = found.model;
  if (found.model != found.definition) text += " = " + found.definition;
  for (const RevealedParameter& one : found.parameters)
    if (!one.certain) text += "; " + one.name + ": " + one.possible;
  return text;
}

struct ExpectedUnit {
  std::string_view model;
  std::int64_t k;
  FormatId a;
  FormatId b;
  std::string_view found;
};

void check_units(const std::vector<ExpectedUnit>& units) {
  for (const ExpectedUnit& unit : units) {
    const Revealed found =
        reveal({.m = 3, .n = 2, .k = unit.k, .a_format = unit.a, .b_format = unit.b},
               kernel_of_model(std::string(unit.model), 0, {}, FormatId::f32));
    INFO(unit.model << ", k " << unit.k << "\n" << describe(found));
    CHECK(unit_of(found) == unit.found);
  }
}

}  // namespace

TEST_CASE("reveal: halves, exact steps and second stages of uneven terms, with what is left open",
          "[reveal]") {
  using enum FormatId;
  check_units(
      {{"sm90.mma.e4m3:terms=4", 12, e4m3fn, e4m3fn,
        "fp16_halves:terms=4,F=25,round=toward_zero,e_min=none,output=f32,product_exponent="
        "stored,M=23,zero_sign=kept,halves_order=chained,a=e4m3fn,b=e4m3fn; "
        "min_alignment_exponent: none or any up to 7; zero_sign: kept, positive"},
       {"sm90.mma.e4m3.f16.separate:terms=12", 24, e4m3fn, e4m3fn,
        "fp16_halves:terms=12,F=25,round=nearest_even,e_min=none,output=f16,product_"
        "exponent=stored,half_c_exponent=stored,zero_sign=kept,halves_order=separate,a="
        "e4m3fn,b=e4m3fn; min_alignment_exponent: none or any up to 7; half_c_exponent: "
        "stored, widened; zero_sign: kept, positive"},
       {"gfx908.mfma.f16:terms=3", 9, f16, f16, "exact_dot_product:terms=3,output=f32,a=f16,b=f16"},
       {"gfx942.mfma.fp8:terms=2", 8, e4m3fnuz, e5m2fnuz,
        "even_odd_dot_product:terms=2,F=24,S=25,a=e4m3fnuz,b=e5m2fnuz; "
        "second_stage_fraction_bits: 25 .. 40"},
       {"gfx942.mfma.f16:terms=6,S=40", 12, f16, f16,
        "two_stage_dot_product:terms=6,F=24,S=32,a=f16,b=f16; second_stage_fraction_bits: "
        "32 .. 40"},
       {"gfx942.mfma.f16:terms=3,S=1", 9, bf16, f16,
        "two_stage_dot_product:terms=3,F=24,S=1,a=bf16,b=f16"},
       {"exact", 257, e4m3fn, e4m3fn, "exact = exact:a=e4m3fn,b=e4m3fn"},
       {"gfx942.mfma.f32", 8, f32, f32, "gfx908.mfma.f32 = fused_multiply_add:a=f32,b=f32"},
       {"gfx90a.mfma.f16:terms=2", 8, f16, f16, "flushed_pairwise_sum:terms=2,a=f16,b=f16"},
       {"gfx90a.mfma.f16", 8, f16, bf16, "flushed_pairwise_sum:terms=4,a=f16,b=bf16"}});
}

TEST_CASE("reveal: fused, sequential and one-term units, with what is left open", "[reveal]") {
  using enum FormatId;
  check_units(
      {{"sm90.wgmma.e4m3:terms=1", 8, e4m3fn, e4m3fn,
        "fused_dot_product:terms=1,F=13,round=toward_zero,e_min=none,output=f32,product_exponent="
        "stored,M=13,zero_sign=kept,a=e4m3fn,b=e4m3fn; min_alignment_exponent: none or any up to "
        "-5; zero_sign: kept, positive"},
       {"sm90.wgmma.e4m3:terms=3,F=20,M=9,round=nearest_away", 9, e4m3fn, e5m2,
        "fused_dot_product:terms=3,F=20,round=nearest_away,e_min=none,output=f32,product_exponent="
        "stored,M=9,zero_sign=kept,a=e4m3fn,b=e5m2; min_alignment_exponent: none or any up to -5; "
        "zero_sign: kept, positive"},
       {"sm90.wgmma.e4m3:terms=5,F=9,M=9,round=upward", 11, e5m2, e5m2,
        "fused_dot_product:terms=5,F=9,round=upward,e_min=none,output=f32,product_exponent=stored,"
        "M=9,zero_sign=kept,a=e5m2,b=e5m2; min_alignment_exponent: none or any up to -23; "
        "zero_sign: kept, positive"},
       {"sm90.wgmma.e4m3:terms=2,F=64,M=23,round=nearest_even", 8, bf16, bf16,
        "fused_dot_product:terms=2,F=64,round=nearest_even,e_min=none,output=f32,product_exponent="
        "stored,M=23,zero_sign=kept,a=bf16,b=bf16; min_alignment_exponent: none or any up to -90; "
        "product_exponent: normalized, stored; zero_sign: kept, positive"},
       {"sequential14.rne:P=3,M=5,round=downward", 8, e4m3fn, e4m3fn,
        "sequential:M=5,round=downward,P=3,a=e4m3fn,b=e4m3fn"}});
}

TEST_CASE("reveal: halves of two products each, which are pairs by their tree", "[reveal]") {
  using enum FormatId;
  check_units(
      {{"sm90.mma.e4m3:terms=4,halves_order=separate", 12, e4m3fn, e4m3fn,
        "fp16_halves:terms=4,F=25,round=toward_zero,e_min=none,output=f32,product_exponent=stored,"
        "M=23,zero_sign=kept,halves_order=separate,a=e4m3fn,b=e4m3fn; min_alignment_exponent: none "
        "or any up to 7; product_exponent: normalized, stored; zero_sign: kept, positive"}});
}
