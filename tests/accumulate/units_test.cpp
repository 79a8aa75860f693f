// Units of AMD and with block scales: rows worked out by hand from the specification, and the
// rules that each unit has for itself.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/separate.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

const AccumulatorModel& model(std::string_view name) {
  return find_instruction_model(name).accumulator;
}

std::vector<std::uint32_t> codes(FormatId id, const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float x : values) {
    result.push_back(encode(format(id), kNvidiaNosat, x));
    REQUIRE((std::isnan(x) || decode(format(id), result.back()) == static_cast<double>(x)));
  }
  return result;
}

/// c + a . b of values that the instruction's formats have.
std::uint32_t run(std::string_view name, const std::vector<float>& a, const std::vector<float>& b,
                  float c) {
  const InstructionModel& m = find_instruction_model(name);
  return bits(dot_product(m.accumulator, m.a_format, codes(m.a_format, a), m.b_format,
                          codes(m.b_format, b), c));
}

float power(int exponent) { return std::ldexp(1.0F, exponent); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("CDNA1: a step is exact, rounded once", "[accumulate][units]") {
  // 2^24 + 1 + 1 - 2^24 loses nothing in one step of four; BF16 steps of two round between.
  CHECK(run("gfx908.mfma.f16", {power(12), 1, 1, -power(12)}, {power(12), 1, 1, power(12)}, 0) ==
        bits(2.0F));
  CHECK(run("gfx908.mfma.bf16", {power(12), 1, 1, -power(12)}, {power(12), 1, 1, power(12)}, 0) ==
        bits(1.0F));
  // A tie between two steps goes to the even one.
  CHECK(run("gfx908.mfma.f16", {1}, {1}, power(24)) == bits(power(24)));
  CHECK(run("gfx908.mfma.f16", {1, power(-24)}, {1, 1}, power(24)) == bits(power(24) + 2.0F));
  // Subnormal sums and c stay.
  CHECK(run("gfx908.mfma.bf16", {power(-70)}, {power(-70)}, power(-149)) == 513u);
}

TEST_CASE("CDNA2: pairs, every subnormal zero", "[accumulate][units]") {
  // (2^24 + 1) rounds to 2^24 in the pair; 1 + 1 = 2 in the other one.
  CHECK(run("gfx90a.mfma.f16", {power(12), 1, 1, 1}, {power(12), 1, 1, 1}, 0) ==
        bits(power(24) + 2.0F));
  // Groups of two: the second 1 + 1 comes after.
  CHECK(run("gfx90a.mfma.bf16", {power(12), 1, 1, 1}, {power(12), 1, 1, 1}, 0) ==
        bits(power(24) + 2.0F));
  CHECK(run("gfx90a.mfma.bf16_1k", {1, -1, power(12), 1}, {1, 1, power(12), 1}, 0) ==
        bits(power(24)));
  CHECK(run("gfx90a.mfma.f16", {power(-15)}, {1}, 0) == bits(0.0F));  // a subnormal operand
  CHECK(run("gfx90a.mfma.f16", {power(-14)}, {1}, 0) == bits(power(-14)));
  CHECK(run("gfx90a.mfma.f16", {0}, {0}, power(-127)) == bits(0.0F));  // a subnormal c
  CHECK(run("gfx90a.mfma.bf16", {power(-70)}, {power(-57)}, 0) == bits(0.0F));
  CHECK(run("gfx90a.mfma.bf16", {power(-70)}, {power(-56)}, 0) == bits(power(-126)));
  CHECK(run("gfx90a.mfma.bf16", {power(100), -power(100)}, {power(100), power(100)}, 0) ==
        kCanonicalNan);
}

TEST_CASE("CDNA3: the row that tells 31 bits of the second stage from 32", "[accumulate][units]") {
  const std::vector<float> a{-power(-4), power(-12), power(-16)};
  const std::vector<float> b{power(-4), power(-13), power(-16)};
  CHECK(run("gfx942.mfma.f16", a, b, 1.0F) == 0x3f7f0001u);
  CHECK(run("gfx942.mfma.f16:S=32", a, b, 1.0F) == 0x3f7f0001u);
  CHECK(run("gfx942.mfma.f16:S=31", a, b, 1.0F) == 0x3f7f0000u);
}

TEST_CASE("CDNA3: products toward zero, then down", "[accumulate][units]") {
  // A negative c far below the sum still takes one unit of 2^-24: 1 - 2^-24 is a number.
  CHECK(run("gfx942.mfma.f16", {1}, {1}, -power(-100)) == bits(1.0F - power(-24)));
  CHECK(run("gfx942.mfma.f16", {1}, {1}, power(-100)) == bits(1.0F));
  // A negative product beside a larger one is cut toward zero.
  CHECK(run("gfx942.mfma.f16", {1, -power(-13)}, {1, power(-13)}, 0) == bits(1.0F));
  // A negative sum of products beside a larger c loses a unit of 2^-31, which nearest hides.
  CHECK(run("gfx942.mfma.f16", {-power(-24)}, {power(-24)}, 1.0F) == bits(1.0F));
  // Products past binary32 are infinite, also against c and in later steps.
  CHECK(run("gfx942.mfma.bf16", {power(100)}, {power(28)}, 0) == bits(kInfinity));
  CHECK(run("gfx942.mfma.bf16", {power(100)}, {power(28)}, -kInfinity) == kCanonicalNan);
  CHECK(run("gfx942.mfma.bf16", {power(100), 0, 0, 0, 0, 0, 0, 0, -power(100)},
            {power(28), 0, 0, 0, 0, 0, 0, 0, power(100)}, 0) == kCanonicalNan);
  CHECK(run("gfx942.mfma.bf16", {power(100)}, {power(27)}, 0) == bits(power(127)));
}

TEST_CASE("CDNA3 FP8: even and odd products, and a c that is too small", "[accumulate][units]") {
  const float tiny = power(-10);  // E4M3FNUZ's smallest number
  // In one group 2^14 * 1 and 2^-20 meet: the small one is 2^-34 of it and lost. In another group
  // it survives to the second alignment, which rounds it down: -2^-20 takes one unit of 2^-10.
  const std::vector<float> same{128, 0, -tiny};
  const std::vector<float> other{128, -tiny, 0};
  const std::vector<float> b{128, tiny, tiny};
  CHECK(run("gfx942.mfma.fp8", same, b, 0) == bits(16384.0F));
  CHECK(run("gfx942.mfma.fp8", other, b, 0) == bits(16384.0F - power(-10)));
  // A small negative c takes one unit of 2^-24 down to 2^-25 of the sum, and nothing below.
  CHECK(run("gfx942.mfma.fp8", {1}, {1}, -power(-25)) == bits(1.0F - power(-24)));
  CHECK(run("gfx942.mfma.fp8", {1}, {1}, -power(-26)) == bits(1.0F));
  const AccumulatorModel& fp8 = model("gfx942.mfma.fp8");
  CHECK(bits(dot_product(fp8, FormatId::e4m3fnuz, std::vector<std::uint32_t>{0x80},
                         FormatId::e5m2fnuz, std::vector<std::uint32_t>{0}, 1.0F)) ==
        kCanonicalNan);
}

TEST_CASE("CDNA binary32: one fused multiply-add a term", "[accumulate][units]") {
  const float above = 1.0F + power(-23);
  // The product's 2^-46 decides, which a rounded product would have lost.
  CHECK(run("gfx908.mfma.f32", {above}, {above}, -(1.0F + power(-22))) == bits(power(-46)));
  CHECK(run("gfx942.mfma.f32", {power(24), 1, -power(24)}, {1, 1, 1}, 0) == bits(0.0F));
  CHECK(run("gfx90a.mfma.f32", {power(-100)}, {power(-49)}, 0) == 1u);
  CHECK(run("gfx90a.mfma.f32", {-0.0F}, {1.0F}, -0.0F) == 0x80000000u);
  CHECK_THROWS_WITH(run("gfx908.mfma.f16", {1}, {1, 2}, 0), contains("b"));
  CHECK_FALSE(takes_formats(model("gfx908.mfma.f32"), FormatId::f16, FormatId::f16));
  CHECK_FALSE(takes_formats(model("gfx908.mfma.f16"), FormatId::f32, FormatId::f32));
}

TEST_CASE("VDPBF16PS: an FMA of the odd elements, then one of the even ones",
          "[accumulate][units]") {
  // 2^24 + 1 ties to 2^24 twice; 1 + 1 first would have given 2^24 + 2.
  CHECK(run("x86.vdpbf16ps", {1, 1}, {1, 1}, power(24)) == bits(power(24)));
  // The odd products come first: (2^24 - 2^24) + 1, and not 2^24 + 1 - 2^24.
  CHECK(run("x86.vdpbf16ps", {1, -power(12)}, {1, power(12)}, power(24)) == bits(1.0F));
  CHECK(run("x86.vdpbf16ps", {-power(12), 1}, {power(12), 1}, power(24)) == bits(0.0F));
  // A product is not rounded: 2^-126 - 2^-151 is a tie between numbers of 24 bits, which goes up,
  // and anything less is below 2^-126 after rounding, and flushed.
  CHECK(run("x86.vdpbf16ps", {-power(-76)}, {power(-75)}, power(-126)) == bits(power(-126)));
  CHECK(run("x86.vdpbf16ps", {-1.25F * power(-76)}, {power(-75)}, power(-126)) == bits(0.0F));
  CHECK(run("x86.vdpbf16ps", {power(-76)}, {power(-75)}, -power(-126)) == bits(-power(-126)));
  CHECK(run("x86.vdpbf16ps", {1.25F * power(-76)}, {power(-75)}, -power(-126)) == 0x80000000u);
  // Subnormals of operands and of c are zeros, by which an infinity gives NaN.
  CHECK(run("x86.vdpbf16ps", {power(-127)}, {power(100)}, 1) == bits(1.0F));
  CHECK(run("x86.vdpbf16ps", {power(-127)}, {kInfinity}, 1) == kCanonicalNan);
  CHECK(run("x86.vdpbf16ps", {0}, {0}, power(-127)) == bits(0.0F));
  // FP16's subnormals are normal numbers of binary32.
  CHECK(run("x86.vdpphps", {power(-24)}, {power(-24)}, 0) == bits(power(-48)));
  // Elements that a pair lacks are +0.
  CHECK(run("x86.vdpbf16ps", {-1}, {0}, -0.0F) == 0u);
  CHECK(run("x86.vdpbf16ps", {-1, -1}, {0, 0}, -0.0F) == 0x80000000u);
}

TEST_CASE("AMX: chains of even and odd elements from zero, then c", "[accumulate][units]") {
  // Even: 2^24 + 1 = 2^24; odd: 1 + 1 = 2; together 2^24 + 2.
  const std::vector<float> a{power(12), 1, 1, 1};
  CHECK(run("x86.tdpbf16ps", a, a, 0) == bits(power(24) + 2.0F));
  CHECK(run("x86.tdpbf16ps:chains=1", a, a, 0) == bits(power(24)));
  // c comes last: 2^24 and 1 + 1 + 1 + 1.
  CHECK(run("x86.tdpbf16ps", {1, 1, 1, 1}, {1, 1, 1, 1}, power(24)) == bits(power(24) + 4.0F));
  CHECK(run("x86.tdpfp16ps", {power(-24)}, {power(-24)}, 0) == bits(power(-48)));
  // TF32 reads subnormals as they are, and flushes results.
  CHECK(run("x86.tmmultf32ps", {power(-127)}, {power(10)}, 0) == bits(power(-117)));
  CHECK(run("x86.tmmultf32ps:subnormals=flushed", {power(-127)}, {power(10)}, 0) == bits(0.0F));
  CHECK(run("x86.tmmultf32ps", {power(-70)}, {power(-60)}, 0) == bits(0.0F));
  CHECK(run("x86.tmmultf32ps", {1, 1, 1}, {power(23), power(23), 1}, 0) == bits(power(24)));
}

TEST_CASE("AMX FP8 and ACE: exact sums rounded once, then c", "[accumulate][units]") {
  // The exact 2^16 - 2^16 + 2^-18 keeps its last term, and meets c after rounding.
  const std::vector<float> a{256, -256, power(-9)};
  const std::vector<float> b{256, 256, power(-9)};
  CHECK(run("x86.tdphf8ps", a, b, 0) == bits(power(-18)));
  CHECK(run("x86.tdphf8ps", {1}, {1}, power(24)) == bits(power(24)));
  // Two roundings: 1 + 2^-32 becomes 1, which is half of the last place of 2^24.
  CHECK(run("x86.tdpbf8ps", {1, power(-16)}, {1, power(-16)}, power(24)) == bits(power(24)));
  CHECK(run("arm.fdot.e5m2", {1, power(-16)}, {1, power(-16)}, power(24)) ==
        bits(power(24) + 2.0F));
  // A subnormal c of AMX is kept until the result is flushed; ACE reads it as zero.
  CHECK(run("x86.tdphf8ps", {0}, {0}, power(-127)) == bits(0.0F));
  // Sums of -0 are +0, as integers have it.
  CHECK(run("x86.tdphf8ps", {-1}, {0}, -0.0F) == 0u);
  CHECK(run("arm.bfdot.ebf16", {-1, -1}, {0, 0}, -0.0F) == 0x80000000u);

  const InstructionModel& ace = find_instruction_model("x86.top4mxbf8ps");
  const auto scaled = [&](std::uint32_t x, std::uint32_t y, std::uint32_t sa, std::uint32_t sb,
                          float c) {
    const std::vector<std::uint32_t> one_a{x};
    const std::vector<std::uint32_t> one_b{y};
    const std::vector<std::uint32_t> of_a{sa};
    const std::vector<std::uint32_t> of_b{sb};
    return bits(dot_product(ace.accumulator, ace.a_format, one_a, ace.b_format, one_b,
                            {.format = FormatId::e8m0fnu, .block = 32, .a = of_a, .b = of_b}, c));
  };
  constexpr std::uint32_t kOne = 0x3c;
  CHECK(scaled(kOne, kOne, 127, 127, 0) == bits(1.0F));
  CHECK(scaled(kOne, kOne, 137, 120, 0) == bits(8.0F));
  CHECK(scaled(kOne, kOne, 255, 127, 0) == kCanonicalNan);
  CHECK(scaled(0, 0, 127, 255, 0) == kCanonicalNan);
  CHECK(scaled(kOne, kOne, 0, 127, 0) == bits(0.0F));  // 2^-127, flushed
  CHECK(scaled(0xbc, kOne, 0, 127, -0.0F) == 0x80000000u);
  CHECK(scaled(kOne, kOne, 1, 127, 0) == bits(power(-126)));
  CHECK(scaled(kOne, kOne, 254, 254, 0) == bits(kInfinity));
  // Codes of infinity and NaN are 2^16 and 1.75 x 2^16.
  CHECK(scaled(0x7c, kOne, 127, 127, 0) == bits(power(16)));
  CHECK(scaled(0xff, kOne, 127, 127, 0) == bits(-1.75F * power(16)));
  CHECK(run("x86.top4mxhf8ps", {std::nanf("")}, {1}, 0) == bits(480.0F));
}

TEST_CASE("Arm: rounding to odd, and exact pairs", "[accumulate][units]") {
  // 2^24 + 1 is not even: its last bit is set. Nearest even gives 2^24.
  CHECK(run("arm.bfdot", {1}, {1}, power(24)) == bits(power(24) + 2.0F));
  CHECK(run("arm.bfdot:pair_rounding=nearest_even", {1}, {1}, power(24)) == bits(power(24)));
  CHECK(run("arm.bfdot", {power(12), 1}, {power(12), 1}, 0) == bits(power(24) + 2.0F));
  CHECK(run("arm.bfdot.ebf16", {power(12), 1}, {power(12), 1}, 0) == bits(power(24)));
  // A sum below 2^-126 before rounding is zero, even one that rounds up to it.
  CHECK(run("arm.bfdot", {-power(-26)}, {power(-100)}, power(-126)) == bits(0.0F));
  CHECK(run("arm.bfdot", {power(-63)}, {power(-63)}, 0) == bits(power(-126)));
  CHECK(run("arm.bfdot", {power(-63)}, {power(-64)}, 0) == bits(0.0F));
  CHECK(run("arm.bfdot.ebf16", {power(-63)}, {power(-64)}, 0) == bits(power(-127)));
  CHECK(run("arm.bfdot", {power(127)}, {power(1)}, 0) == bits(kInfinity));
  // FP8: c and all products in one rounding, of binary16 with its subnormals and infinities too.
  CHECK(run("arm.fdot.e4m3", {1, power(-9)}, {1, power(-9)}, power(24)) == bits(power(24) + 2.0F));
  CHECK(run("arm.fdot.e4m3.f16", {448, 448}, {448, 1}, 0) == bits(kInfinity));
  CHECK(run("arm.fdot.e5m2.f16", {power(-16)}, {power(-9)}, power(-24)) == bits(power(-23)));
  CHECK(run("arm.fdot.e5m2.f16", {power(-16)}, {power(-9)}, 0) == bits(0.0F));
  CHECK(run("arm.fdot.e4m3.f16", {1, 1}, {1, 1}, 2048) == bits(2050.0F));
  CHECK(run("arm.fmmla.e4m3.f16", {1, 1, 1, 1}, {1, 0.5F, 0.5F, 1}, 2048) == bits(2052.0F));
}

TEST_CASE("each rule of a processor's unit decides results: one changed gives other bits",
          "[accumulate][units]") {
  struct Rule {
    const char* model;
    const char* changed;
  };
  for (const Rule& rule :
       {Rule{"x86.vdpbf16ps", "x86.vdpbf16ps:subnormals=kept"},
        Rule{"x86.vdpbf16ps", "x86.vdpbf16ps:subnormals=flushed_results"},
        Rule{"x86.vdpbf16ps", "x86.top2bf16ps"}, Rule{"x86.vdpbf16ps", "arm.bfdot.ebf16"},
        Rule{"x86.vdpbf16ps", "gfx908.mfma.bf16"}, Rule{"x86.tdpbf16ps", "x86.tdpbf16ps:chains=1"},
        Rule{"x86.tdpbf16ps", "x86.tdpbf16ps:chains=4"},
        Rule{"x86.tdpbf16ps", "x86.tdpbf16ps:terms=16"},
        Rule{"x86.tdpbf16ps", "x86.tdpbf16ps:subnormals=kept"},
        Rule{"x86.tmmultf32ps", "x86.tmmultf32ps:subnormals=flushed"},
        Rule{"x86.tdphf8ps", "x86.tdphf8ps:terms=32"},
        Rule{"arm.bfdot.ebf16", "arm.bfdot.ebf16:subnormals=flushed"},
        Rule{"arm.bfdot.ebf16", "arm.bfdot.ebf16:zero_sign=positive"},
        Rule{"arm.bfdot", "arm.bfdot:pair_rounding=nearest_even"},
        Rule{"x86.top4mxhf8ps", "x86.top4mxhf8ps:terms=8"}, Rule{"arm.fdot.e4m3", "arm.fmmla.e4m3"},
        Rule{"arm.fdot.e4m3.f16", "arm.fdot.e4m3.f16:output=f32"}}) {
    INFO(rule.model << " and " << rule.changed);
    const InstructionModel& right = find_instruction_model(rule.model);
    const Separation found = separate(right, find_instruction_model(rule.changed), 1, 1, 0);
    CHECK(!found.file.cases.empty());
  }
}

TEST_CASE("mxf8f6f4: scales enter the alignment, and c is not scaled", "[accumulate][units]") {
  const InstructionModel& m = find_instruction_model("sm100.tcgen05.mxf8f6f4.e4m3");
  const auto scaled = [&](const std::vector<float>& a, const std::vector<float>& b,
                          std::vector<std::uint32_t> sa, std::vector<std::uint32_t> sb, float c) {
    return bits(dot_product(m.accumulator, m.a_format, codes(m.a_format, a), m.b_format,
                            codes(m.b_format, b), {.a = sa, .b = sb}, c));
  };
  CHECK(scaled({1.5F}, {1}, {127}, {127}, 0.25F) == bits(1.75F));
  // What rounds to zero is +0.
  CHECK(scaled({-1}, {1}, {53}, {54}, 0) == bits(-power(-147)));
  CHECK(scaled({-1}, {1}, {52}, {52}, 0) == bits(0.0F));
  CHECK(scaled({1.5F}, {1}, {130}, {128}, 1) == bits(25.0F));
  CHECK(scaled({1}, {1}, {255}, {127}, 1) == kCanonicalNan);
  CHECK(scaled({0}, {0}, {127}, {255}, 1) == kCanonicalNan);
  // 2^-127 twice: far below binary32, but not where c is: it sits at the limit 2^-133.
  CHECK(scaled({1}, {1}, {0}, {127}, 0) == bits(power(-127)));
  CHECK(scaled({1}, {1}, {0}, {0}, 0) == bits(0.0F));
  CHECK(scaled({1}, {1}, {254}, {254}, 0) == bits(kInfinity));
  CHECK(scaled({1}, {1}, {254}, {0}, 0) == bits(1.0F));
  // A scaled product of 2^30 leaves c = 1 no place among 25 bits; unscaled it has one.
  CHECK(scaled({1}, {1}, {142}, {142}, 1) == bits(power(30)));
  // Two steps, each under its own scales.
  std::vector<float> ones(64, 1.0F);
  CHECK(scaled(ones, ones, {127, 128}, {127, 129}, 0) == bits(32.0F + 256.0F));
  CHECK(bits(dot_product(m.accumulator, m.a_format, codes(m.a_format, ones), m.b_format,
                         codes(m.b_format, ones))) == bits(64.0F));
  CHECK_THROWS_WITH(scaled({1}, {1}, {127, 127}, {127}, 0), contains("a scales"));
}

TEST_CASE("mxf4nvf4: exact groups of 16 under their scales", "[accumulate][units]") {
  const InstructionModel& m = find_instruction_model("sm100.tcgen05.mxf4nvf4");
  const InstructionModel& wide = find_instruction_model("sm120.mma.mxf4nvf4");
  const auto scaled = [&](const InstructionModel& which, const std::vector<float>& a,
                          const std::vector<float>& b, FormatId id, int block,
                          std::vector<std::uint32_t> sa, std::vector<std::uint32_t> sb, float c) {
    return bits(dot_product(which.accumulator, which.a_format, codes(which.a_format, a),
                            which.b_format, codes(which.b_format, b),
                            {.format = id, .block = block, .a = sa, .b = sb}, c));
  };
  const std::vector<float> six(64, 6.0F);
  const std::vector<std::uint32_t> one(4, 0x38);  // UE4M3's 1
  CHECK(scaled(m, six, six, FormatId::e4m3fn, 16, one, one, 0) == bits(2304.0F));
  // The sign of UE4M3 is ignored, both of its NaN are NaN; 0x01 is 2^-9.
  CHECK(scaled(m, six, six, FormatId::e4m3fn, 16, {0xb8, 0xb8, 0xb8, 0xb8}, one, 0) ==
        bits(2304.0F));
  CHECK(scaled(m, six, six, FormatId::e4m3fn, 16, {0x38, 0xff, 0x38, 0x38}, one, 0) ==
        kCanonicalNan);
  CHECK(scaled(m, {1}, {1}, FormatId::e4m3fn, 16, {1}, {1}, 0) == bits(power(-18)));
  CHECK(scaled(m, six, six, FormatId::e8m0fnu, 32, {127, 128}, {127, 127}, 0) == bits(3456.0F));
  CHECK(scaled(m, six, six, FormatId::e8m0fnu, 32, {127, 128}, {127, 127}, kInfinity) ==
        bits(kInfinity));
  // A group's exponent is that of its scales: 576 under 2^0 counts as 2^0, so that 2^-35 beside
  // it stays, and takes part in the truncation of the whole.
  const std::vector<std::uint32_t> scale_a{127, 127 - 35, 127, 127};
  const std::vector<std::uint32_t> scale_b(4, 127);
  std::vector<float> a(64, 0.0F);
  std::vector<float> b(64, 0.0F);
  for (std::size_t i = 0; i < 4; ++i) a[i] = b[i] = 6.0F;
  a[16] = -1.0F;
  b[16] = 1.0F;
  CHECK(scaled(m, a, b, FormatId::e8m0fnu, 16, scale_a, scale_b, 0) ==
        bits(std::nextafter(144.0F, 0.0F)));
  a[16] = -0.5F;
  CHECK(scaled(m, a, b, FormatId::e8m0fnu, 16, scale_a, scale_b, 0) == bits(144.0F));
  // A group whose products cancel has its exponent, 44, beside which 1 and c = 3 are nothing; one
  // of zeros, or under a scale of zero, has none.
  std::vector<float> x(64, 0.0F);
  std::vector<float> y(64, 0.0F);
  x[0] = y[0] = x[32] = y[32] = x[33] = 1.0F;
  y[33] = -1.0F;
  const std::vector<std::uint32_t> large{127, 171};
  CHECK(scaled(m, x, y, FormatId::e8m0fnu, 32, large, {127, 127}, 3) == bits(0.0F));
  x[32] = x[33] = 0.0F;
  CHECK(scaled(m, x, y, FormatId::e8m0fnu, 32, large, {127, 127}, 3) == bits(4.0F));
  x[48] = y[48] = 6.0F;
  CHECK(scaled(m, x, y, FormatId::e4m3fn, 16, {0x01, 0x7e, 0x7e, 0x00}, one, 0x1p-30F) ==
        bits(0x1p-9F + 0x1p-30F));
  CHECK_THROWS_WITH(scaled(m, six, six, FormatId::e4m3fn, 32, {0x38, 0x38}, {0x38, 0x38}, 0),
                    contains("scales"));
  CHECK(scaled(wide, six, six, FormatId::e4m3fn, 32, {0x38, 0x38}, {0x38, 0x38}, 0) ==
        bits(2304.0F));
}

TEST_CASE("binary32 sums: NaN and infinities of c and of every product", "[accumulate][units]") {
  constexpr std::uint32_t kOne = 0x3c;  // of E5M2
  constexpr std::uint32_t kInf = 0x7c;
  constexpr std::uint32_t kNan = 0x7e;
  constexpr std::uint32_t kSign = 0x80;
  const auto sum = [](const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                      float c) {
    return bits(dot_product(model("fp32"), FormatId::e5m2, a, FormatId::e5m2, b, c));
  };
  CHECK(sum({kOne, kOne}, {kOne, kOne}, 0.5F) == bits(2.5F));
  CHECK(sum({kOne, kInf}, {kOne, kOne}, 0.5F) == bits(kInfinity));
  CHECK(sum({kInf, kOne}, {kSign | kOne, kOne}, 0.5F) == bits(-kInfinity));
  CHECK(sum({kOne, kOne}, {kOne, kInf}, kInfinity) == bits(kInfinity));
  CHECK(sum({kOne, kOne}, {kOne, kInf}, -kInfinity) == kCanonicalNan);
  CHECK(sum({kInf, kInf}, {kOne, kSign | kOne}, 0.0F) == kCanonicalNan);
  CHECK(sum({0, kOne}, {kInf, kOne}, 0.0F) == kCanonicalNan);
  CHECK(sum({kOne, kNan}, {kOne, 0}, 0.0F) == kCanonicalNan);
  CHECK(sum({kOne, 0}, {kOne, kNan}, kInfinity) == kCanonicalNan);
  CHECK(sum({kOne, kOne}, {kOne, kOne}, kInfinity) == bits(kInfinity));
}

TEST_CASE("fused steps: an alignment of more than 30 bits cuts as the sum's rounding does",
          "[accumulate][units]") {
  AccumulatorModel fused = model("sm90.wgmma.e4m3");
  const auto cut = [&](int alignment, int output) {
    fused.alignment_fraction_bits = alignment;
    fused.output_fraction_bits = output;
    return traits_of(fused).cut_fraction_bits;
  };
  CHECK(cut(13, 22) == 13);
  CHECK(cut(30, 22) == 30);
  CHECK(cut(31, 22) == 23);
  CHECK(cut(31, 7) == 8);
  CHECK(cut(62, 23) == 24);
}

TEST_CASE("AMD: a sum of zeros is -0 only if all are", "[accumulate][units]") {
  for (const std::string_view name : {"gfx908.mfma.f16", "gfx908.mfma.bf16", "gfx942.mfma.f16",
                                      "gfx942.mfma.xf32", "gfx942.mfma.fp8", "gfx942.mfma.f32"}) {
    INFO(name);
    const std::vector<float> ones(4, 1.0F);
    const std::vector<float> minus(4, -1.0F);
    const std::vector<float> zeros(4, 0.0F);
    CHECK(run(name, minus, zeros, -0.0F) == 0x80000000u);
    CHECK(run(name, minus, zeros, 0.0F) == 0u);
    CHECK(run(name, ones, zeros, -0.0F) == 0u);
    CHECK(run(name, {1, -1, 1, -1}, ones, -0.0F) == 0u);
  }
  // CDNA2 makes +0 of every operand and c below the smallest normal number, -0 among them.
  CHECK(run("gfx90a.mfma.bf16_1k", {-1, -1}, {0, 0}, -0.0F) == 0u);
}

TEST_CASE("what a unit does not take is named", "[accumulate][units]") {
  CHECK_THROWS_WITH(
      require_formats(model("sm100.tcgen05.mxf4nvf4"), FormatId::e2m1, FormatId::e4m3fn),
      contains("e2m1"));
  AccumulatorModel odd = model("gfx90a.mfma.f16");
  odd.terms = 3;
  CHECK_THROWS_WITH(validate(odd), contains("2 or 4"));
  const std::vector<std::uint32_t> scale{127};
  CHECK_THROWS_WITH(dot_product(model("sm90.wgmma.e4m3"), FormatId::e4m3fn,
                                std::vector<std::uint32_t>{0x38}, FormatId::e4m3fn,
                                std::vector<std::uint32_t>{0x38}, {.a = scale, .b = scale}, 0.0F),
                    contains("no block scales"));
}

TEST_CASE("parameters tell models apart that differ in one of them", "[accumulate][units]") {
  const auto text = [](const AccumulatorModel& m) {
    std::string all;
    for (const ModelParameter& one : parameters_of(m))
      all += std::string(one.name) + one.text + " ";
    return all;
  };
  AccumulatorModel second = model("gfx942.mfma.fp8");
  second.second_stage_fraction_bits = 31;
  CHECK(text(second) != text(model("gfx942.mfma.fp8")));
  CHECK(text(model("sm100.tcgen05.mxf4nvf4")) != text(model("sm120.mma.mxf4nvf4")));
  CHECK(text(model("sm90.wgmma.e4m3")).find("second_stage") == std::string::npos);
  for (const InstructionModel& a : instruction_models())
    for (const InstructionModel& b : instruction_models())
      CHECK((a.accumulator == b.accumulator) == (text(a.accumulator) == text(b.accumulator)));
}

TEST_CASE("each unit says what it is", "[accumulate][units]") {
  struct Row {
    const char* model;
    AccumulationKind kind;
    const char* traits;  ///< steps, aligns, rounds sums, keeps all, scales, second stage
    int cut;
    const char* operands;
    const char* scales;
  };
  constexpr const char* kAny = "a tensor-core input format";
  constexpr const char* kNone = "no block scales";
  for (const Row& row :
       {Row{"sm90.wgmma.e4m3", AccumulationKind::fused_dot_product, "sar...", 13, kAny, kNone},
        Row{"sequential14.rne", AccumulationKind::sequential, "..r...", 13, kAny, kNone},
        Row{"fp32", AccumulationKind::float32, "......", 23, kAny, kNone},
        Row{"exact", AccumulationKind::exact, "...k..", 23, kAny, kNone},
        Row{"sm90.mma.e4m3", AccumulationKind::fp16_halves, "sar...", 25,
            "an 8-bit format whose values FP16 has (fp16_halves)", kNone},
        Row{"gfx908.mfma.f16", AccumulationKind::exact_dot_product, "s.r...", 24, kAny, kNone},
        Row{"gfx90a.mfma.f16", AccumulationKind::flushed_pairwise_sum, "s.r...", 24, kAny, kNone},
        Row{"gfx942.mfma.f16:F=21", AccumulationKind::two_stage_dot_product, "sar..2", 21, kAny,
            kNone},
        Row{"gfx942.mfma.fp8:F=22", AccumulationKind::even_odd_dot_product, "sar..2", 22,
            "a format of at most 8 bits (even_odd_dot_product)", kNone},
        Row{"gfx942.mfma.f32", AccumulationKind::fused_multiply_add, "......", 24,
            "f32 (fused_multiply_add)", kNone},
        Row{"sm100.tcgen05.mxf8f6f4.e4m3", AccumulationKind::scaled_dot_product, "sar.m.", 25,
            "a format of at most 8 bits (scaled_dot_product)", "e8m0fnu per 32"},
        Row{"sm100.tcgen05.mxf4nvf4:F=29", AccumulationKind::scaled_group_dot_product, "sar.m.", 29,
            "e2m1 (scaled_group_dot_product)", "e8m0fnu per 16 or 32, or ue4m3 per 16"},
        Row{"sm120.mma.mxf4nvf4", AccumulationKind::scaled_group_dot_product, "sar.m.", 24,
            "e2m1 (scaled_group_dot_product)", "e8m0fnu or ue4m3, per 16 or 32"},
        Row{"arm.fdot.e4m3.f16", AccumulationKind::exact_dot_product, "s.r...", 11, kAny, kNone},
        Row{"x86.vdpbf16ps", AccumulationKind::multiply_add_pairs, "s.r...", 24, kAny, kNone},
        Row{"x86.tdpbf16ps", AccumulationKind::multiply_add_chains, "s.r...", 24, kAny, kNone},
        Row{"x86.tdphf8ps", AccumulationKind::rounded_sum, "s.r...", 24, kAny, kNone},
        Row{"x86.top4mxhf8ps", AccumulationKind::scaled_rounded_sum, "s.r.m.", 24,
            "e4m3fn or e5m2 (scaled_rounded_sum)", "e8m0fnu per 32"},
        Row{"arm.bfdot", AccumulationKind::rounded_pairs, "s.r...", 23, kAny, kNone}}) {
    INFO(row.model);
    const AccumulatorModel& m = model(row.model);
    const UnitTraits traits = traits_of(m);
    std::string said;
    said += traits.has_steps ? 's' : '.';
    said += traits.aligns ? 'a' : '.';
    said += traits.rounds_sums ? 'r' : '.';
    said += traits.keeps_all ? 'k' : '.';
    said += traits.takes_scales ? 'm' : '.';
    said += traits.has_second_stage ? '2' : '.';
    CHECK(m.kind == row.kind);
    CHECK(said == row.traits);
    CHECK(traits.cut_fraction_bits == row.cut);
    CHECK(unit_of(m.kind).operands() == row.operands);
    CHECK(unit_of(m.kind).scale_forms(m) == row.scales);
  }
}

TEST_CASE("each unit takes its formats and block scales, and no others", "[accumulate][units]") {
  using enum FormatId;
  const auto taken = [](const char* name) {
    std::string all;
    for (const Format& f : kFormats)
      if (unit_of(model(name).kind).takes(f)) all += std::string(f.name) + " ";
    return all;
  };
  const std::string any = "e4m3fn e5m2 e4m3fnuz e5m2fnuz e8m0fnu e2m1 e2m3 e3m2 f16 bf16 tf32 ";
  const std::string bytes = "e4m3fn e5m2 e4m3fnuz e5m2fnuz e2m1 e2m3 e3m2 ";
  for (const char* name : {"sm90.wgmma.e4m3", "sequential14.rne", "fp32", "exact",
                           "gfx908.mfma.f16", "gfx90a.mfma.f16", "gfx942.mfma.f16"}) {
    INFO(name);
    CHECK(taken(name) == any);
  }
  for (const char* name : {"sm90.mma.e4m3", "gfx942.mfma.fp8", "sm100.tcgen05.mxf8f6f4.e4m3"}) {
    INFO(name);
    CHECK(taken(name) == bytes);
  }
  CHECK(taken("sm100.tcgen05.mxf4nvf4") == "e2m1 ");
  CHECK(taken("gfx942.mfma.f32") == "f32 ");
  for (const char* name : {"x86.vdpbf16ps", "x86.tdpbf16ps", "x86.tdphf8ps", "arm.bfdot"}) {
    INFO(name);
    CHECK(taken(name) == any);
  }
  CHECK(taken("x86.top4mxhf8ps") == "e4m3fn e5m2 ");

  const auto scales = [](const char* name) {
    std::string all;
    for (const FormatId id : {e8m0fnu, e4m3fn, e5m2})
      for (const int block : {8, 16, 32, 64})
        if (unit_of(model(name).kind).takes_scales(model(name), id, block))
          all += std::string(format(id).name) + "/" + std::to_string(block) + " ";
    return all;
  };
  CHECK(scales("sm90.wgmma.e4m3").empty());
  CHECK(scales("gfx942.mfma.fp8").empty());
  CHECK(scales("sm100.tcgen05.mxf8f6f4.e4m3") == "e8m0fnu/32 ");
  CHECK(scales("sm100.tcgen05.mxf4nvf4") == "e8m0fnu/16 e8m0fnu/32 e4m3fn/16 ");
  CHECK(scales("sm120.mma.mxf4nvf4") == "e8m0fnu/16 e8m0fnu/32 e4m3fn/16 e4m3fn/32 ");
  CHECK(scales("x86.tdphf8ps").empty());
  CHECK(scales("x86.top4mxhf8ps") == "e8m0fnu/32 ");
}

TEST_CASE("block scales of the wrong number or form are refused, those of a and of b",
          "[accumulate][units]") {
  const InstructionModel& m = find_instruction_model("sm100.tcgen05.mxf4nvf4");
  const auto reason = [&](std::size_t k, std::size_t of_a, std::size_t of_b, FormatId id,
                          int block) -> std::string {
    const std::vector<std::uint32_t> ones(k, 0x2);
    const std::vector<std::uint32_t> a(of_a, 0x38);
    const std::vector<std::uint32_t> b(of_b, 0x38);
    return test::message_of(
        [&] {
          (void)dot_product(m.accumulator, m.a_format, ones, m.b_format, ones,
                            {.format = id, .block = block, .a = a, .b = b});
        },
        "nothing");
  };
  using enum FormatId;
  CHECK(reason(33, 3, 3, e4m3fn, 16) == "nothing");
  CHECK(reason(32, 2, 2, e4m3fn, 16) == "nothing");
  CHECK(reason(33, 2, 2, e8m0fnu, 32) == "nothing");
  CHECK(reason(33, 2, 3, e4m3fn, 16) == "a scales: expected ceil(k / 16) = 3 scales, got 2");
  CHECK(reason(33, 4, 3, e4m3fn, 16) == "a scales: expected ceil(k / 16) = 3 scales, got 4");
  CHECK(reason(33, 3, 2, e4m3fn, 16) == "b scales: expected ceil(k / 16) = 3 scales, got 2");
  CHECK(reason(33, 3, 4, e4m3fn, 16) == "b scales: expected ceil(k / 16) = 3 scales, got 4");
  CHECK(reason(33, 2, 0, e8m0fnu, 32) == "b scales: expected ceil(k / 32) = 2 scales, got 0");
  CHECK(reason(33, 2, 2, e4m3fn, 32) ==
        "scales: expected e8m0fnu per 16 or 32, or ue4m3 per 16, got e4m3fn per 32");
  CHECK(reason(33, 2, 2, e5m2, 16) ==
        "scales: expected e8m0fnu per 16 or 32, or ue4m3 per 16, got e5m2 per 16");
}
