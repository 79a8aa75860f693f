// CDNA3's two stages in rational arithmetic, with widths that no kernel takes.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <vector>

#include "accumulate/oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;
using oracle::cpp_int;
using oracle::cpp_rational;

namespace {

constexpr int kNothing = -100000;

/// x rounded down to a multiple of 2^unit.
cpp_rational floored(const cpp_rational& x, int unit) {
  const cpp_rational scaled = x / oracle::power_of_two(unit);
  cpp_int units = oracle::truncate(scaled);
  if (scaled < cpp_rational(units)) --units;
  return cpp_rational(units) * oracle::power_of_two(unit);
}

struct Products {
  cpp_rational sum = 0;
  int exponent = kNothing;
};

/// Some products, each truncated to F bits at the largest exponent among them.
Products first_stage(const AccumulatorModel& m, const Format& f, const std::vector<double>& a,
                     const std::vector<double>& b) {
  Products all;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != 0 && b[i] != 0)
      all.exponent = std::max(
          all.exponent, oracle::operand_exponent(f, a[i]) + oracle::operand_exponent(f, b[i]));
  if (all.exponent == kNothing) return all;
  const cpp_rational unit = oracle::power_of_two(all.exponent - m.alignment_fraction_bits);
  for (std::size_t i = 0; i < a.size(); ++i)
    all.sum +=
        cpp_rational(oracle::truncate(oracle::exactly(a[i]) * oracle::exactly(b[i]) / unit)) * unit;
  return all;
}

/// One step: what binary32 holds of it, unbounded above.
cpp_rational step(const AccumulatorModel& m, const Format& f, const std::vector<double>& a,
                  const std::vector<double>& b, const cpp_rational& c) {
  const bool apart = m.kind == AccumulationKind::even_odd_dot_product;
  Products all;
  if (apart) {
    std::vector<double> of_a[2];
    std::vector<double> of_b[2];
    for (std::size_t i = 0; i < a.size(); ++i) {
      of_a[i % 2].push_back(a[i]);
      of_b[i % 2].push_back(b[i]);
    }
    const Products even = first_stage(m, f, of_a[0], of_b[0]);
    const Products odd = first_stage(m, f, of_a[1], of_b[1]);
    all.exponent = std::max(even.exponent, odd.exponent);
    const int unit = all.exponent - m.alignment_fraction_bits;
    if (all.exponent != kNothing) all.sum = floored(even.sum, unit) + floored(odd.sum, unit);
  } else {
    all = first_stage(m, f, a, b);
  }
  const int of_c = c == 0 ? -126 : std::max(oracle::exponent_of(c), -126);
  const int largest = std::max(all.exponent, of_c);
  const bool drops = apart && of_c < largest - m.alignment_fraction_bits - 1;
  cpp_rational sum = floored(all.sum, largest - m.second_stage_fraction_bits);
  if (!drops) sum += floored(c, largest - m.alignment_fraction_bits);
  if (m.second_stage_fraction_bits > 31 && sum != 0)
    sum = floored(sum, std::max(oracle::exponent_of(sum), -126) - 31);
  return oracle::round_to(sum, 23, RoundingMode::nearest_even, -149);
}

/// Codes whose exponents are within `spread` of one another about 2^center.
std::vector<std::uint32_t> codes_near(const RandomStream& stream, const Format& f,
                                      std::size_t count, int center, int spread) {
  std::vector<std::uint32_t> codes;
  for (std::uint64_t i = 0; codes.size() < count; ++i) {
    const auto exponent =
        center + static_cast<int>(stream.below(3 * i, static_cast<std::uint64_t>(2 * spread + 1))) -
        spread;
    const double x = std::ldexp(1.0 + stream.uniform(3 * i + 1), exponent);
    const std::uint32_t word = stream.bits32(4 * (3 * i + 2));
    const auto value = static_cast<float>(word % 2 == 0 ? x : -x);
    codes.push_back(word % 16 == 1 ? 0 : encode(f, kNvidiaSatfinite, value));
  }
  return codes;
}

}  // namespace

TEST_CASE("CDNA3's two stages equal rational arithmetic at every width", "[accumulate][units]") {
  std::uint64_t seed = 600;
  int negative = 0;
  int subnormal = 0;
  for (const char* name : {"gfx942.mfma.f16", "gfx942.mfma.bf16", "gfx942.mfma.xf32",
                           "gfx942.mfma.fp8", "gfx942.mfma.bf8"})
    for (const int second : {1, 8, 23, 24, 25, 30, 31, 32, 33, 36, 40})
      for (const int first : {1, 11, 24, 25, 40}) {
        const InstructionModel& model = find_instruction_model(name);
        const Format& f = format(model.a_format);
        AccumulatorModel m = model.accumulator;
        m.alignment_fraction_bits = first;
        m.second_stage_fraction_bits = second;
        int failures = 0;
        for (int i = 0; i < 24; ++i) {
          ++seed;
          const RandomStream stream(seed, "cdna3");
          const auto k = static_cast<std::size_t>(1 + seed * 7 % 20);
          // Where the format has them, also about the end of binary32's normal numbers.
          const bool low = f.exponent_bits == 8 && i % 3 == 0;
          const int center = low ? -66 : 0;
          const auto a = codes_near({seed, "a"}, f, k, center, 1 + i % 7);
          const auto b = codes_near({seed, "b"}, f, k, center, 1 + i % 5);
          const int shift = static_cast<int>(stream.below(0, 70)) - 45 + 2 * center;
          float c = static_cast<float>(std::ldexp(stream.normal(1), shift));
          if (i % 6 == 0) c = i % 4 == 0 ? 0.0F : std::copysign(0x1p-149F, c);
          cpp_rational sum = oracle::exactly(static_cast<double>(c));
          const auto terms = static_cast<std::size_t>(m.terms);
          for (std::size_t begin = 0; begin < k; begin += terms) {
            std::vector<double> x;
            std::vector<double> y;
            for (std::size_t t = begin; t < std::min(begin + terms, k); ++t) {
              x.push_back(decode(f, a[t]));
              y.push_back(decode(f, b[t]));
            }
            sum = step(m, f, x, y, sum);
          }
          const auto expected = static_cast<float>(static_cast<double>(sum));
          const float got = dot_product(m, model.a_format, a, model.b_format, b, c);
          negative += expected < 0.0F ? 1 : 0;
          subnormal += expected != 0.0F && std::fabs(expected) < 0x1p-126F ? 1 : 0;
          // The oracle has no sign of zero.
          if (got != expected && ++failures <= 3)
            UNSCOPED_INFO(fmt::format("case {} k {} c {:a}: expected {:a}, got {:a}", i, k, c,
                                      expected, got));
        }
        INFO(name << " F " << first << " S " << second);
        CHECK(failures == 0);
      }
  CHECK(negative > 1000);
  CHECK(subnormal > 50);
}

TEST_CASE("CDNA3: sums below the normal numbers keep 31 bits of the smallest one's",
          "[accumulate][units]") {
  // Half of 2^-149 and a rest that decides the tie, or that a wide second stage drops before.
  const InstructionModel& model = find_instruction_model("gfx942.mfma.bf16");
  const Format& f = format(model.a_format);
  AccumulatorModel m = model.accumulator;
  m.alignment_fraction_bits = 40;
  int down = 0;
  int up = 0;
  for (const int second : {30, 31, 32, 33, 36, 40})
    for (int rest = -151; rest > -168; --rest)
      for (const double sign : {1.0, -1.0})
        for (const float c : {0.0F, 0x1p-149F, -0x1p-149F, 0x1.8p-147F}) {
          m.second_stage_fraction_bits = second;
          const std::vector<double> a{0x1p-75, sign * std::ldexp(1.0, rest / 2)};
          const std::vector<double> b{0x1p-75, std::ldexp(1.0, rest - rest / 2)};
          const auto codes = [&](const std::vector<double>& values) {
            std::vector<std::uint32_t> all;
            for (const double x : values)
              all.push_back(encode(f, kNvidiaNosat, static_cast<float>(x)));
            return all;
          };
          const cpp_rational sum = step(m, f, a, b, oracle::exactly(static_cast<double>(c)));
          const auto expected = static_cast<float>(static_cast<double>(sum));
          const float got = dot_product(m, model.a_format, codes(a), model.b_format, codes(b), c);
          INFO("S " << second << " rest 2^" << rest << " sign " << sign << " c " << c);
          CHECK(got == expected);
          if (second == 40 && c == 0.0F && sign > 0) (expected == 0.0F ? down : up) += 1;
        }
  CHECK(down > 5);
  CHECK(up > 5);
}

TEST_CASE("CDNA3: a product is infinite from 2^128 on, whatever its significands",
          "[accumulate][units]") {
  const auto run = [](float a, float b, float c) {
    const InstructionModel& m = find_instruction_model("gfx942.mfma.bf16");
    const auto code = [](float x) {
      return std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(x) >> 16};
    };
    return dot_product(m.accumulator, m.a_format, code(a), m.b_format, code(b), c);
  };
  // 1.5 * 1.5 has an exponent more than 1.25 * 1.25. A c that brings the sum back shows it.
  CHECK(std::isinf(run(0x1.8p64F, 0x1.8p63F, -0x1p127F)));
  CHECK(std::isinf(run(0x1.8p64F, -0x1.8p63F, 0x1p127F)));
  CHECK(run(0x1.4p64F, 0x1.4p63F, -0x1p127F) == 0x1.2p126F);
  CHECK(run(0x1.fep64F, 0x1p63F, -0x1p127F) == 0x1.fcp126F);
  CHECK(std::isinf(run(0x1p64F, 0x1p64F, -0x1p127F)));
}

TEST_CASE("CDNA3: a negative c is a unit however far below it is", "[accumulate][units]") {
  const auto run = [](const char* name, float c) {
    const InstructionModel& m = find_instruction_model(name);
    const std::vector<std::uint32_t> one{encode(format(m.a_format), kNvidiaNosat, 1.0F)};
    return dot_product(m.accumulator, m.a_format, one, m.b_format, one, c);
  };
  for (int exponent = -30; exponent >= -149; --exponent) {
    const float c = std::ldexp(1.0F, exponent);
    INFO("c 2^" << exponent);
    CHECK(run("gfx942.mfma.f16", -c) == 1.0F - 0x1p-24F);
    CHECK(run("gfx942.mfma.f16", c) == 1.0F);
    CHECK(run("gfx942.mfma.fp8", -c) == 1.0F);
  }
  // Products of 2^126 beside the smallest c.
  const InstructionModel& m = find_instruction_model("gfx942.mfma.bf16");
  const std::vector<std::uint32_t> large{std::bit_cast<std::uint32_t>(0x1p63F) >> 16};
  const auto beside = [&](float c) {
    return dot_product(m.accumulator, m.a_format, large, m.b_format, large, c);
  };
  CHECK(beside(-0x1p-149F) == std::nextafter(0x1p126F, 0.0F));
  CHECK(beside(0x1p-149F) == 0x1p126F);
}
