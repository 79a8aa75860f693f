// The parts of units' steps: wide integers and their bits, alignments, and roundings of exact sums,
// on both sides of every width.

#include "fp8lab/accumulate/arithmetic.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "accumulate/unit_oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "message_of.hpp"

using namespace fp8lab;
using accumulate_detail::Wide;
using unit_oracle::Fixed;

namespace {

__extension__ using WideBits = unsigned __int128;

/// Numbers of exactly `bits` bits: the top one alone, all, the top and one more, and random ones.
std::vector<WideBits> numbers_of(int bits) {
  const WideBits top = WideBits{1} << (bits - 1);
  std::vector<WideBits> all{top, top | (top - 1), top | 1};
  for (int other = 0; other < bits - 1; ++other) all.push_back(top | WideBits{1} << other);
  const RandomStream random(static_cast<std::uint64_t>(bits), "wide numbers");
  for (std::uint64_t i = 0; i < 20; ++i) {
    WideBits x = 0;
    for (std::uint64_t word = 0; word < 4; ++word) x = x << 32 | random.bits32(16 * i + word);
    all.push_back(top | (x & (top - 1)));
  }
  return all;
}

Fixed fixed_of(WideBits x, int exponent) {
  Fixed units = static_cast<std::uint64_t>(x >> 64);
  units = (units << 64) + static_cast<std::uint64_t>(x);
  return units << (exponent - unit_oracle::kUnit);
}

std::string text_of(WideBits x) {
  return fmt::format("{:x}.{:016x}", static_cast<std::uint64_t>(x >> 64),
                     static_cast<std::uint64_t>(x));
}

constexpr RoundingMode kFixedModes[] = {
    RoundingMode::nearest_even, RoundingMode::nearest_away, RoundingMode::nearest_toward_zero,
    RoundingMode::toward_zero,  RoundingMode::upward,       RoundingMode::downward};

}  // namespace

TEST_CASE(
    "integers wider than 64 bits keep their upper ones, and say whether any of the others was set",
    "[accumulate][arithmetic]") {
  for (int bits = 1; bits <= 127; ++bits)
    for (const WideBits x : numbers_of(bits))
      for (const bool negative : {false, true}) {
        const int dropped = std::max(bits - 64, 0);
        const auto sum = static_cast<Wide>(x);
        const Exact got = accumulate_detail::exact_of(negative ? -sum : sum, -31);
        INFO(text_of(x) << ", negative " << negative);
        CHECK(got.significand == static_cast<std::uint64_t>(x >> dropped));
        CHECK(got.exponent == dropped - 31);
        CHECK(got.negative == negative);
        CHECK(got.sticky == ((x & ((WideBits{1} << dropped) - 1)) != 0));
      }
  const Exact zero = accumulate_detail::exact_of(Wide{0}, 5);
  CHECK(zero.significand == 0);
  CHECK_FALSE(zero.negative);
  CHECK_FALSE(zero.sticky);
}

TEST_CASE("a term is aligned toward zero, a sum down, from either side of their last bits",
          "[accumulate][arithmetic]") {
  std::size_t turn = 0;
  for (const int bits : {1, 2, 24, 47, 48, 63, 64})
    for (const WideBits x : numbers_of(bits))
      for (int shift = -130; shift <= 36; ++shift) {
        if (++turn % 5 != 0) continue;
        const int unit = 17;
        INFO(text_of(x) << " by " << shift);
        const accumulate_detail::Term positive{static_cast<std::uint64_t>(x), shift + unit + 9, 9,
                                               false};
        accumulate_detail::Term negative = positive;
        negative.negative = true;
        const WideBits whole = shift >= 0 ? x << shift : shift <= -128 ? 0 : x >> -shift;
        const auto kept = static_cast<Wide>(whole);
        CHECK((accumulate_detail::aligned_toward_zero(positive, unit) == kept));
        CHECK((accumulate_detail::aligned_toward_zero(negative, unit) == -kept));
        const bool rest = shift < 0 && (shift <= -128 || (whole << -shift) != x);
        const auto sum = static_cast<Wide>(x);
        CHECK((accumulate_detail::aligned_down(sum, shift + unit, unit) == kept));
        CHECK(
            (accumulate_detail::aligned_down(-sum, shift + unit, unit) == -kept - (rest ? 1 : 0)));
      }
  CHECK((accumulate_detail::aligned_toward_zero({.exponent = 900}, -900) == 0));
  CHECK((accumulate_detail::aligned_down(0, 900, -900) == 0));
}

TEST_CASE("exact sums of every width are rounded to binary32 and FP16 once, in every mode",
          "[accumulate][arithmetic]") {
  // About the ends of each format, and about 1.
  constexpr int kLeading[] = {-151, -150, -149, -127, -126, -26, -25,
                              -24,  -14,  0,    15,   16,   127, 128};
  int failures = 0;
  const auto check = [&](const std::string& what, auto wanted, auto got) {
    if (wanted != got && ++failures <= 10)
      UNSCOPED_INFO(fmt::format("{}: expected {:x}, got {:x}", what, wanted, got));
  };
  std::size_t turn = 0;
  for (const int bits : {1, 2, 11, 12, 13, 24, 25, 26, 63, 64, 65, 66, 90, 127})
    for (const WideBits x : numbers_of(bits))
      for (const int leading : kLeading) {
        const RoundingMode mode = kFixedModes[++turn % 6];
        const bool negative = turn / 6 % 2 == 0;
        const int fraction = std::array{1, 13, 22, 23}[turn / 12 % 4];
        const int exponent = leading - bits + 1;
        const auto sum = static_cast<Wide>(x);
        const Exact exact = accumulate_detail::exact_of(negative ? -sum : sum, exponent);
        Fixed units = fixed_of(x, exponent);
        if (negative) units = -units;
        const std::string what = fmt::format("{}{} below 2^{}, {}", negative ? "-" : "", text_of(x),
                                             leading + 1, to_string(mode));
        const auto single = unit_oracle::rounded(units, {fraction, -126 - fraction, 127}, mode);
        check(
            what + " to binary32", unit_oracle::bits_of(single),
            std::bit_cast<std::uint32_t>(accumulate_detail::round_to_float(exact, fraction, mode)));
        const auto half = unit_oracle::rounded(units, unit_oracle::kHalf, mode);
        check(what + " to FP16", unit_oracle::bits_of(half),
              std::bit_cast<std::uint32_t>(accumulate_detail::round_to_half(exact, mode)));
        const accumulate_detail::Term term = accumulate_detail::rounded(exact, fraction, mode);
        const auto unbounded = unit_oracle::rounded(units, {fraction}, mode);
        Fixed got = Fixed(term.significand)
                    << (term.exponent - term.fraction_bits - unit_oracle::kUnit);
        if (term.negative) got = -got;
        check(what + " unbounded", 0, got == unbounded.units ? 0 : 1);
      }
  CHECK(failures == 0);
  const Exact zero{.negative = true};
  CHECK(std::bit_cast<std::uint32_t>(
            accumulate_detail::round_to_float(zero, 23, RoundingMode::downward)) == 0);
  CHECK(std::bit_cast<std::uint32_t>(
            accumulate_detail::round_to_half(zero, RoundingMode::downward)) == 0);
}

TEST_CASE("what each kind does not take is refused, on both sides of its limits",
          "[accumulate][units]") {
  struct Refusal {
    const char* model;
    void (*change)(AccumulatorModel&);
    const char* says;
  };
  using M = AccumulatorModel;
  constexpr const char* kTaken = "accepted";
  const Refusal refusals[] = {
      {"sm90.wgmma.e4m3", [](M& m) { m.terms = 0; }, "terms: expected 1 .. 256, got 0"},
      {"sm90.wgmma.e4m3", [](M& m) { m.terms = 1; }, kTaken},
      {"sm90.wgmma.e4m3", [](M& m) { m.terms = 256; }, kTaken},
      {"sm90.wgmma.e4m3", [](M& m) { m.terms = 257; }, "terms: expected 1 .. 256, got 257"},
      {"sm90.wgmma.e4m3", [](M& m) { m.alignment_fraction_bits = 0; },
       "alignment_fraction_bits: expected 1 .. 64, got 0"},
      {"sm90.wgmma.e4m3", [](M& m) { m.alignment_fraction_bits = 64; }, kTaken},
      {"sm90.wgmma.e4m3", [](M& m) { m.alignment_fraction_bits = 65; },
       "alignment_fraction_bits: expected 1 .. 64, got 65"},
      {"exact", [](M& m) { m.output_fraction_bits = 0; },
       "output_fraction_bits: expected 1 .. 23, got 0"},
      {"exact", [](M& m) { m.output_fraction_bits = 1; }, kTaken},
      {"exact", [](M& m) { m.output_fraction_bits = 24; },
       "output_fraction_bits: expected 1 .. 23, got 24"},
      {"seed.listing", [](M& m) { m.product_fraction_bits = -2; },
       "product_fraction_bits: expected -1 .. 23, got -2"},
      {"seed.listing", [](M& m) { m.product_fraction_bits = -1; }, kTaken},
      {"seed.listing", [](M& m) { m.product_fraction_bits = 23; }, kTaken},
      {"seed.listing", [](M& m) { m.product_fraction_bits = 24; },
       "product_fraction_bits: expected -1 .. 23, got 24"},
      {"sm80.mma.bf16", [](M& m) { m.min_alignment_exponent = -300; }, kTaken},
      {"sm80.mma.bf16", [](M& m) { m.min_alignment_exponent = -301; },
       "min_alignment_exponent: expected -300 .. 100, got -301"},
      {"sm80.mma.bf16", [](M& m) { m.min_alignment_exponent = 100; }, kTaken},
      {"sm80.mma.bf16", [](M& m) { m.min_alignment_exponent = 101; },
       "min_alignment_exponent: expected -300 .. 100, got 101"},
      {"sm80.mma.bf16", [](M& m) { m.min_alignment_exponent = -1023; },
       "min_alignment_exponent: expected -300 .. 100, got -1023"},
      {"sm80.mma.bf16", [](M& m) { m.output_format = FormatId::bf16; },
       "output_format: expected f32 or f16, got bf16"},
      {"sm80.mma.bf16", [](M& m) { m.output_format = FormatId::f16; }, kTaken},
      {"sequential14.rne", [](M& m) { m.rounding = RoundingMode::stochastic; },
       "rounding: expected a deterministic mode, got stochastic"},
      {"sm80.mma.f16.f16", [](M& m) { m.rounding = RoundingMode::stochastic; },
       "rounding: expected a deterministic mode, got stochastic"},
      {"sm90.mma.e4m3", [](M& m) { m.terms = 4; }, kTaken},
      {"sm90.mma.e4m3", [](M& m) { m.terms = 2; },
       "terms: expected a multiple of 4 (fp16_halves), got 2"},
      {"sm90.mma.e4m3", [](M& m) { m.terms = 254; },
       "terms: expected a multiple of 4 (fp16_halves), got 254"},
      {"gfx90a.mfma.f16", [](M& m) { m.terms = 1; },
       "terms: expected 2 or 4 (flushed_pairwise_sum), got 1"},
      {"gfx90a.mfma.f16", [](M& m) { m.terms = 2; }, kTaken},
      {"gfx90a.mfma.f16", [](M& m) { m.terms = 8; },
       "terms: expected 2 or 4 (flushed_pairwise_sum), got 8"},
      {"gfx942.mfma.f16", [](M& m) { m.second_stage_fraction_bits = 0; },
       "second_stage_fraction_bits: expected 1 .. 40, got 0"},
      {"gfx942.mfma.f16", [](M& m) { m.second_stage_fraction_bits = 40; }, kTaken},
      {"gfx942.mfma.fp8", [](M& m) { m.second_stage_fraction_bits = 41; },
       "second_stage_fraction_bits: expected 1 .. 40, got 41"},
      {"gfx942.mfma.fp8", [](M& m) { m.alignment_fraction_bits = 40; }, kTaken},
      {"gfx942.mfma.bf16", [](M& m) { m.alignment_fraction_bits = 0; },
       "alignment_fraction_bits: expected 1 .. 40, got 0"},
      {"gfx942.mfma.bf16", [](M& m) { m.alignment_fraction_bits = 65; },
       "alignment_fraction_bits: expected 1 .. 40, got 65"},
      {"gfx942.mfma.bf16", [](M& m) { m.alignment_fraction_bits = 41; },
       "alignment_fraction_bits: expected 1 .. 40, got 41"},
      {"sm120.mma.mxf8f6f4.e4m3", [](M& m) { m.terms = 31; },
       "terms: expected 32, as one scale covers (scaled_dot_product), got 31"},
      {"sm120.mma.mxf8f6f4.e4m3", [](M& m) { m.terms = 64; },
       "terms: expected 32, as one scale covers (scaled_dot_product), got 64"},
      {"sm120.mma.mxf8f6f4.e4m3", [](M& m) { m.output_format = FormatId::f16; },
       "output_format: expected f32 (scaled_dot_product), got f16"},
      {"sm100.tcgen05.mxf4nvf4", [](M& m) { m.terms = 32; },
       "terms: expected 64 (scaled_group_dot_product), got 32"},
      {"sm100.tcgen05.mxf4nvf4", [](M& m) { m.output_format = FormatId::f16; },
       "output_format: expected f32 (scaled_group_dot_product), got f16"}};
  for (const Refusal& one : refusals) {
    AccumulatorModel m = find_instruction_model(one.model).accumulator;
    one.change(m);
    INFO(one.model);
    CHECK(test::message_of([&] { validate(m); }) == one.says);
  }
}
