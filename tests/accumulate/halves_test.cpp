// FP8 mma.sync where it is not an instruction: FP16 halves and a binary32 sum with c.

#include "fp8lab/accumulate/halves.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "accumulate/oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;

namespace {

using Codes = std::vector<std::uint32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

const AccumulatorModel& blackwell() { return find_instruction_model("sm100.mma.e4m3").accumulator; }

/// An instruction's 32 values in E4M3, zeros but for some, times ones.
struct Terms {
  std::vector<float> a = std::vector<float>(32, 0.0F);
  std::vector<float> b = std::vector<float>(32, 1.0F);

  Terms& set(std::size_t k, float x, float y = 1.0F) {
    a[k] = x;
    b[k] = y;
    return *this;
  }
  [[nodiscard]] std::uint32_t sum(float c = 0.0F) const {
    Codes a_codes;
    Codes b_codes;
    for (const float x : a) a_codes.push_back(encode(format(FormatId::e4m3fn), kNvidiaNosat, x));
    for (const float x : b) b_codes.push_back(encode(format(FormatId::e4m3fn), kNvidiaNosat, x));
    return bits(dot_product(blackwell(), FormatId::e4m3fn, a_codes, FormatId::e4m3fn, b_codes, c));
  }
};

/// Finite codes, of exponents up to `highest`.
Codes finite_codes(const RandomStream& stream, const Format& f, std::size_t count,
                   int highest = 99) {
  Codes codes;
  for (std::uint64_t draw = 0; codes.size() < count; ++draw) {
    const std::uint32_t code = stream.bits32(draw) & 0xff;
    const Unpacked x = unpack(f, code);
    if (x.is_finite() && x.exponent <= highest) codes.push_back(code);
  }
  return codes;
}

std::vector<double> decode_all(const Format& f, const Codes& codes) {
  std::vector<double> values;
  for (const std::uint32_t code : codes) values.push_back(decode(f, code));
  return values;
}

}  // namespace

TEST_CASE("halves equal rational arithmetic on all finite codes and every size of c",
          "[accumulate]") {
  const SweepShare share;
  for (const char* name : {"sm90.mma.e4m3", "sm90.mma.e4m3.f16", "sm90.mma.e4m3.separate",
                           "sm90.mma.e4m3.f16.separate"}) {
    const AccumulatorModel& model = find_instruction_model(name).accumulator;
    const bool half = model.output_format == FormatId::f16;
    std::array<int, 4> seen{};  // outputs that faults change
    for (const FormatId a_format : {FormatId::e4m3fn, FormatId::e5m2})
      for (const FormatId b_format : {FormatId::e4m3fn, FormatId::e5m2}) {
        int failures = 0;
        for (std::uint64_t i = 0; i < 300; ++i) {
          if (!share.takes_one_in(4, name, i)) continue;
          const auto k = static_cast<std::size_t>(1 + i * 7 % 70);
          // The oracle has no infinities: sums stay inside FP16's range.
          const int highest = half ? 2 : 99;
          const Codes a = finite_codes({i, "a"}, format(a_format), k, highest);
          const Codes b = finite_codes({i, "b"}, format(b_format), k, highest);
          const RandomStream stream(i, "c");
          const int scale = static_cast<int>(half ? stream.below(0, 36) : stream.below(0, 240));
          const float c =
              i % 5 == 0
                  ? 0.0F
                  : static_cast<float>(std::ldexp(stream.normal(1), scale - (half ? 24 : 140)));
          const auto expected_with = [&](const AccumulatorModel& m, oracle::HalvesFault fault) {
            return oracle::halves(m, decode_all(format(a_format), a),
                                  decode_all(format(b_format), b), c, fault);
          };
          const oracle::cpp_rational sum = expected_with(model, {});
          const auto expected = static_cast<float>(static_cast<double>(sum));
          const float got = dot_product(model, a_format, a, b_format, b, c);
          if (bits(got) != bits(expected) && ++failures <= 5)
            UNSCOPED_INFO(fmt::format("case {} k {} c {:a}: expected {:08x}, got {:08x}", i, k, c,
                                      bits(expected), bits(got)));
          seen[0] += expected_with(model, {.swapped = true}) != sum;
          seen[1] += expected_with(model, {.c_unrounded = true}) != sum;
          seen[2] += expected_with(model, {.c_truncated = true}) != sum;
          AccumulatorModel other = model;
          other.halves_order = model.halves_order == HalvesOrder::chained ? HalvesOrder::separate
                                                                          : HalvesOrder::chained;
          seen[3] += expected_with(other, {}) != sum;
        }
        INFO(name << " " << format(a_format).name << " " << format(b_format).name);
        CHECK(failures == 0);
      }
    INFO(name << ": outputs changed by halves swapped " << seen[0] << ", c not rounded " << seen[1]
              << ", c truncated " << seen[2] << ", the other order " << seen[3]);
    const int fewest = share.is_part() ? 1 : 20;
    CHECK((model.halves_order == HalvesOrder::separate || seen[0] >= fewest));
    CHECK((!half || seen[1] >= fewest));
    CHECK(seen[2] >= fewest);
    CHECK(seen[3] >= fewest);
  }
}

TEST_CASE("where halves cut, done by hand", "[accumulate]") {
  // 448 * 448 has exponent 16, so a unit of its half is 2^-9, and 24 bits of the sum end at 2^-6.
  CHECK(Terms().set(0, 448, 448).set(1, 0x1p-9F, 4).sum() == bits(448.0F * 448.0F));
  CHECK(Terms().set(0, 448, 448).set(1, 0x1p-9F, 8).sum() == bits(448.0F * 448.0F + 0x1p-6F));
  // A sum of the first half that is small is not cut by it; in the second half it is, 2^-10 below.
  CHECK(Terms().set(0, 0x1p-9F, 0.5F).set(2, 448, 448).set(6, -448, 448).sum() == bits(0.0F));
  CHECK(Terms().set(0, 448, 448).set(4, -448, 448).set(2, 0x1p-9F, 0.5F).sum() == bits(0x1p-10F));
  // c takes no part in the alignment: it neither cuts products nor is cut by them.
  CHECK(Terms().set(0, 1).sum(0x1p24F) == bits(0x1p24F));
  CHECK(Terms().set(0, 1).set(2, 1).sum(0x1p24F) == bits(0x1p24F + 2.0F));
  CHECK(Terms().set(0, 1).set(2, 0.5F).sum(0x1p24F) == bits(0x1p24F + 2.0F));
  CHECK(Terms().set(0, 448, 448).sum(-448.0F * 448.0F + 0x1p-6F) == bits(0x1p-6F));
  // E4M3's subnormal 2^-9 times 2^15 has exponent 6, a unit of 2^-19; by the exponent that E4M3
  // stores for it, 9, the small product would be cut.
  CHECK(dot_product(blackwell(), FormatId::e4m3fn, Codes{0x01, 0x81, 0, 0, 0x20}, FormatId::e5m2,
                    Codes{0x78, 0x78, 0, 0, 0x01}) == 0x1p-19F);
  // Binary32 subnormals of c are kept.
  CHECK(Terms().sum(0x1p-149F) == bits(0x1p-149F));
  CHECK(Terms().sum(-0.0F) == bits(0.0F));
}

TEST_CASE("special values by halves follow the rule of all models", "[accumulate]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t k : {std::size_t{0}, std::size_t{2}, std::size_t{31}}) {
    CHECK(Terms().set(k, nan).sum() == kCanonicalNan);
    CHECK(Terms().set(k, 1).sum(-kInf) == bits(-kInf));
    CHECK(Terms().set(k, 1).sum(-nan) == kCanonicalNan);
  }
  const auto e5m2 = [](std::size_t at, std::size_t other, std::uint32_t second, float c) {
    Codes a(40, 0x3c);
    a[at] = 0x7c;
    a[other] = second;
    return bits(dot_product(blackwell(), FormatId::e5m2, a, FormatId::e5m2, Codes(40, 0x3c), c));
  };
  CHECK(e5m2(1, 3, 0x3c, -5.0F) == bits(kInf));
  CHECK(e5m2(1, 3, 0xfc, 0.0F) == kCanonicalNan);
  CHECK(e5m2(1, 39, 0xfc, 0.0F) == kCanonicalNan);
  CHECK(e5m2(39, 1, 0x3c, -kInf) == kCanonicalNan);
  Codes zeros(32, 0);
  Codes infinite(32, 0x7c);
  CHECK(bits(dot_product(blackwell(), FormatId::e5m2, zeros, FormatId::e5m2, infinite)) ==
        kCanonicalNan);
  CHECK(Terms().set(0, 448, 448).sum(std::numeric_limits<float>::max()) ==
        bits(std::numeric_limits<float>::max()));
}

TEST_CASE("halves take every term once, the other way round other bits", "[accumulate]") {
  for (const int terms : {4, 8, 32, 256}) {
    std::set<int> seen;
    for (int place = 0; place < terms; ++place) {
      const int term = term_of_halves(place, terms);
      CHECK((term % 4 < 2) == (place < terms / 2));
      seen.insert(term);
    }
    CHECK(seen.size() == static_cast<std::size_t>(terms));
    CHECK(*seen.rbegin() == terms - 1);
  }
  // The large product of the second half hides what the first one summed.
  const Terms small_first = Terms().set(0, 0x1p-9F).set(2, 448, 448).set(3, -448, 448);
  const Terms large_first = Terms().set(2, 0x1p-9F).set(0, 448, 448).set(1, -448, 448);
  CHECK(small_first.sum() == large_first.sum());
  CHECK(Terms(small_first).set(0, 0x1p-9F, 0.25F).sum() == bits(0.0F));
  CHECK(Terms(large_first).set(2, 0x1p-9F, 0.25F).sum() == bits(0x1p-11F));
}

TEST_CASE("operands become FP16 numbers of the same value", "[accumulate]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz,
                            FormatId::e5m2fnuz, FormatId::e2m1, FormatId::e2m3, FormatId::e3m2}) {
    CHECK(fits_half(format(id)));
    for (std::uint32_t code = 0; code < 256; ++code) {
      const Unpacked x = unpack(format(id), code);
      if (!x.is_finite() || x.significand == 0) continue;
      const Unpacked y = as_half(x, "a");
      const Unpacked through =
          unpack(format(FormatId::f16), cast(format(FormatId::f16), kNvidiaNosat, x).code);
      CHECK(y.significand == through.significand);
      CHECK(y.exponent == through.exponent);
      CHECK(y.negative == through.negative);
      CHECK(y.value_class == through.value_class);
    }
  }
  for (const FormatId id : {FormatId::bf16, FormatId::tf32, FormatId::f16, FormatId::e8m0fnu})
    CHECK_FALSE(fits_half(format(id)));
  // Wider significands that end in zeros.
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const Unpacked half = unpack(format(FormatId::f16), code);
    if (!half.is_finite() || half.significand == 0) continue;
    const auto value = static_cast<float>(decode(format(FormatId::f16), code));
    const Unpacked y = as_half(unpack(format(FormatId::f32), bits(value)), "a");
    if (y.significand == half.significand && y.exponent == half.exponent &&
        y.negative == half.negative && y.value_class == half.value_class)
      continue;
    INFO(fmt::format("{:#06x}: {} * 2^{}", code, y.significand, y.exponent));
    CHECK(y.significand == half.significand);
    CHECK(y.exponent == half.exponent);
  }
}

TEST_CASE("what halves cannot take is refused by name", "[accumulate]") {
  const Codes one{0x3f80};
  CHECK_THROWS_WITH(dot_product(blackwell(), FormatId::bf16, one, FormatId::e4m3fn, Codes{0x38}),
                    contains("a: expected an 8-bit format whose values FP16 has (fp16_halves)"));
  CHECK_THROWS_WITH(dot_product(blackwell(), FormatId::e4m3fn, Codes{0x38}, FormatId::bf16, one),
                    contains("b: expected an 8-bit format"));
  const std::vector<Unpacked> large{unpack(format(FormatId::bf16), 0x4780)};  // 2^16
  const std::vector<Unpacked> tiny{unpack(format(FormatId::bf16), 0x3300)};   // 2^-25
  const std::vector<Unpacked> unit{unpack(format(FormatId::e4m3fn), 0x38)};
  CHECK_THROWS_WITH(dot_product(blackwell(), large, unit),
                    contains("a: expected values that FP16 has, got 128 * 2^9"));
  CHECK_THROWS_WITH(dot_product(blackwell(), unit, tiny),
                    contains("b: expected values that FP16 has, got 128 * 2^-32"));
  const std::vector<Unpacked> odd{unpack(format(FormatId::bf16), 0xb381)};  // 129 * 2^-31
  CHECK_THROWS_WITH(dot_product(blackwell(), odd, unit),
                    contains("a: expected values that FP16 has, got -129 * 2^-31"));
  AccumulatorModel model = blackwell();
  model.terms = 30;
  CHECK_THROWS_WITH(validate(model), contains("terms: expected a multiple of 4"));
}

TEST_CASE("FP16 sums by halves end in FP16's addition of c", "[accumulate]") {
  const auto sum_of = [&](const char* name, const Codes& a, const Codes& b, float c) {
    const AccumulatorModel& model = find_instruction_model(name).accumulator;
    return bits(dot_product(model, FormatId::e5m2, a, FormatId::e5m2, b, c));
  };
  const auto sum = [&](const Codes& a, const Codes& b, float c) {
    return sum_of("sm90.mma.e5m2.f16", a, b, c);
  };
  // 57344 is E5M2's largest number: twice that is an infinity of FP16, which c does not undo.
  CHECK(sum({0x7b}, {0x3c}, 8192.0F - 20.0F) == bits(65504.0F));
  CHECK(sum({0x7b}, {0x3c}, 8192.0F) == bits(kInf));
  CHECK(sum({0x7b, 0x7b}, {0x3c, 0x3c}, -60000.0F) == bits(kInf));
  CHECK(sum({0x3c}, {0x3c}, 70000.0F) == bits(kInf));
  // The addition gives zeros IEEE 754's signs. A product of the second half that rounds to -0 would
  // keep c = -0 negative; on Hopper it rounds to +0, as a step without products.
  CHECK(sum_of("sm90.mma.e5m2.f16:zero_sign=kept", {0, 0, 0x81}, {0, 0, 0x02}, -0.0F) ==
        bits(-0.0F));
  CHECK(sum({0, 0, 0x81}, {0, 0, 0x02}, -0.0F) == bits(0.0F));
  CHECK(sum({0, 0, 0x81}, {0, 0, 0x02}, 0.0F) == bits(0.0F));
  CHECK(sum({0x81}, {0x02}, -0.0F) == bits(0.0F));
  CHECK(sum({0x00}, {0x3c}, -0.0F) == bits(0.0F));
  // c = 1 + 2^-11 is a tie that goes to 1 before the products are added.
  CHECK(sum({0x11}, {0x3c}, 1.0F + 0x1p-11F) == bits(1.0F + 0x1p-10F));
}
