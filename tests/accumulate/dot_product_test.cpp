#include "fp8lab/accumulate/accumulate.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "accumulate/oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/vectors/cases.hpp"

using namespace fp8lab;

namespace {

using Codes = std::vector<std::uint32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

const AccumulatorModel& hopper() { return find_instruction_model("sm90.wgmma.e4m3").accumulator; }

std::uint32_t e4m3(float x) { return encode(format(FormatId::e4m3fn), kNvidiaSatfinite, x); }

/// c + the products of a and b in E4M3 under Hopper's wgmma, as bits.
std::uint32_t hopper_bits(const std::vector<float>& a, const std::vector<float>& b, float c) {
  Codes a_codes;
  Codes b_codes;
  for (const float x : a) a_codes.push_back(e4m3(x));
  for (const float x : b) b_codes.push_back(e4m3(x));
  return bits(dot_product(hopper(), FormatId::e4m3fn, a_codes, FormatId::e4m3fn, b_codes, c));
}

/// Uniform codes of a format, specials and an excess of exponent left out.
Codes random_codes(const RandomStream& stream, FormatId id, std::size_t count) {
  const Format& f = format(id);
  Codes codes;
  for (std::uint64_t draw = 0; codes.size() < count; ++draw) {
    const std::uint32_t code = stream.bits32(draw) & (f.sign_mask() | f.magnitude_mask());
    const Unpacked u = unpack(f, code);
    if (u.is_finite() && u.exponent < 30 && u.exponent > -60) codes.push_back(code);
  }
  return codes;
}

std::vector<double> decode_all(FormatId id, const Codes& codes) {
  std::vector<double> values;
  for (const std::uint32_t code : codes) values.push_back(decode(format(id), code));
  return values;
}

float random_c(const RandomStream& stream, std::uint64_t index) {
  const double scale = std::ldexp(1.0, static_cast<int>(stream.below(2 * index, 60)) - 30);
  return index % 4 == 0 ? 0.0F : static_cast<float>(stream.normal(2 * index + 1) * scale);
}

}  // namespace

TEST_CASE("every fused model equals rational arithmetic on random codes", "[accumulate]") {
  for (const InstructionModel& model : instruction_models()) {
    if (model.accumulator.kind != AccumulationKind::fused_dot_product) continue;
    DYNAMIC_SECTION(std::string(model.name)) {
      int failures = 0;
      for (std::uint64_t i = 0; i < 60; ++i) {
        const auto k = static_cast<std::size_t>(1 + (i * 7) % 70);
        const Codes a = random_codes({i, "a"}, model.a_format, k);
        const Codes b = random_codes({i, "b"}, model.b_format, k);
        const float c = random_c({9, "c"}, i);
        if (model.accumulator.output_format == FormatId::f16 && std::fabs(c) > 1000.0F) continue;
        const float start =
            model.accumulator.output_format == FormatId::f16
                ? static_cast<float>(round_trip(format(FormatId::f16), kNvidiaNosat, c))
                : c;
        const std::vector<double> a_values = decode_all(model.a_format, a);
        const std::vector<double> b_values = decode_all(model.b_format, b);
        const auto sum_of_first = [&](std::size_t count) {
          return oracle::fused(model.accumulator, format(model.a_format),
                               std::span(a_values).first(count), format(model.b_format),
                               std::span(b_values).first(count), start);
        };
        // The oracle has no infinities: a step past the limit would not come back.
        const double limit = model.accumulator.output_format == FormatId::f16 ? 65504.0 : 0x1p127;
        const auto terms = static_cast<std::size_t>(model.accumulator.terms);
        bool overflows = false;
        for (std::size_t end = std::min(terms, k); end < k; end += terms)
          overflows |= abs(sum_of_first(end)) > oracle::exactly(limit);
        const auto exact = sum_of_first(k);
        if (overflows || abs(exact) > oracle::exactly(limit)) continue;
        const auto expected = static_cast<float>(static_cast<double>(exact));
        const float got = dot_product(model.accumulator, model.a_format, a, model.b_format, b, c);
        if (bits(got) != bits(expected) && ++failures <= 5)
          UNSCOPED_INFO(fmt::format("case {} k {} c {:a}: expected {:08x}, got {:08x}", i, k, c,
                                    bits(expected), bits(got)));
      }
      CHECK(failures == 0);
    }
  }
}

TEST_CASE("products at the alignment's lower limit equal rational arithmetic", "[accumulate]") {
  for (const char* name : {"sm80.mma.bf16", "sm80.mma.tf32", "sm90.mma.bf16", "sm90.mma.tf32",
                           "sm70.mma.f16.f16", "sm80.mma.f16.f16", "sm90.mma.f16.f16"}) {
    const InstructionModel& model = find_instruction_model(name);
    const bool half = model.accumulator.output_format == FormatId::f16;
    std::array<int, 3> seen{};  // outputs that faults change
    int failures = 0;
    const VectorFile file = generate_cases(model, CaseKind::adversarial, 13 * 300, 5);
    for (std::size_t i = 12; i < file.cases.size(); i += 13) {  // the cases about the limit
      const VectorCase& one = file.cases[i];
      const auto start = std::bit_cast<float>(one.c);
      const auto sum_of = [&](const AccumulatorModel& m) {
        return oracle::fused(m, format(model.a_format), decode_all(model.a_format, one.a),
                             format(model.b_format), decode_all(model.b_format, one.b), start);
      };
      const oracle::cpp_rational sum = sum_of(model.accumulator);
      // The oracle has no sign of zero: only the value of such outputs is compared.
      const auto got = std::bit_cast<float>(one.d);
      if (got != static_cast<float>(static_cast<double>(sum)) && ++failures <= 5)
        UNSCOPED_INFO(fmt::format("case {} c {:a}: expected {:a}, got {:a}", i, start,
                                  static_cast<double>(sum), got));
      AccumulatorModel fault = model.accumulator;
      ++fault.min_alignment_exponent;
      seen[0] += sum_of(fault) != sum;
      fault.min_alignment_exponent -= 2;
      seen[1] += sum_of(fault) != sum;
      fault = model.accumulator;
      fault.half_c_exponent = HalfCExponent::widened;
      seen[2] += sum_of(fault) != sum;
    }
    INFO(name << ": outputs changed by a limit above " << seen[0] << ", below " << seen[1]
              << ", a widened c " << seen[2]);
    CHECK(failures == 0);
    CHECK(seen[0] >= 10);
    CHECK(seen[1] >= 10);
    CHECK((!half || seen[2] >= 10));
  }
}

TEST_CASE("what is below the alignment's lower limit vanishes, done by hand", "[accumulate]") {
  const auto bf16 = [](const char* name, const Codes& a, const Codes& b, float c) {
    return bits(dot_product(find_instruction_model(name).accumulator, FormatId::bf16, a,
                            FormatId::bf16, b, c));
  };
  const std::uint32_t down = 0x8000;
  // 2^-79 * 2^-77 = 2^-156 is the last place on Ampere, 2^-157 is not; on Hopper it is 2^-158.
  const Codes a(8, 0x1800);    // 2^-79
  const Codes b(8, 0x1900);    // 2^-77
  const Codes low(8, 0x1880);  // 2^-78
  CHECK(a[0] == encode(format(FormatId::bf16), kNvidiaNosat, 0x1p-79F));
  // Eight times 2^-156 is below 2^-149; an output of zero could keep the sum's sign.
  CHECK(bf16("sm80.mma.bf16", a, b, 0.0F) == bits(0.0F));
  Codes negative = a;
  for (std::uint32_t& code : negative) code |= down;
  CHECK(bf16("sm80.mma.bf16:zero_sign=kept", negative, b, 0.0F) == bits(-0.0F));
  CHECK(bf16("sm80.mma.bf16", negative, b, 0.0F) == bits(0.0F));
  // One place lower nothing is left of the sum, and that is +0.
  CHECK(bf16("sm80.mma.bf16:zero_sign=kept", negative, low, 0.0F) == bits(0.0F));
  CHECK(bf16("sm80.mma.bf16:zero_sign=kept", negative, low, -0.0F) == bits(0.0F));
  // A Hopper's limit is a place lower.
  CHECK(bf16("sm90.mma.bf16:zero_sign=kept", negative, low, 0.0F) == bits(-0.0F));
  CHECK(bf16("sm90.mma.bf16", negative, low, 0.0F) == bits(0.0F));
  CHECK(bf16("sm90.mma.bf16", {down | 1}, {1}, 0.0F) == bits(0.0F));
}

TEST_CASE("a subnormal FP16 c brings its stored exponent, or the widened one", "[accumulate]") {
  AccumulatorModel model = find_instruction_model("sm80.mma.f16.f16").accumulator;
  // c = 2^-20 and a tie, 2^-25, above which is 2^-40: F = 24 keeps that from exponent -16 down.
  const Codes a{0x0400, 0x0001};  // 2^-14, 2^-24
  const Codes b{0x1000, 0x0100};  // 2^-11, 2^-16
  const auto sum = [&] { return dot_product(model, FormatId::f16, a, FormatId::f16, b, 0x1p-20F); };
  model.half_c_exponent = HalfCExponent::stored;
  CHECK(sum() == 0x1p-20F);
  model.half_c_exponent = HalfCExponent::widened;
  CHECK(sum() == 0x1p-20F + 0x1p-24F);
}

TEST_CASE("truncation, alignment and the width of the sum on cases done by hand", "[accumulate]") {
  // 256 sets the unit to 2^(8-13) = 2^-5; 2^-6 is cut, 2^-5 stays.
  CHECK(hopper_bits({16, 0.125F}, {16, 0.125F}, 0.0F) == bits(256.0F));
  CHECK(hopper_bits({16, 0.25F}, {16, 0.125F}, 0.0F) == bits(256.03125F));
  // Toward zero on both sides.
  CHECK(hopper_bits({16, -0.125F}, {16, 0.125F}, 0.0F) == bits(256.0F));
  CHECK(hopper_bits({-16, -0.125F}, {16, 0.125F}, 0.0F) == bits(-256.0F));
  // Products are not normalised: 1.5 * 1.5 = 2.25 aligns at exponent 0, so 2^-13 survives.
  CHECK(hopper_bits({1.5F, 0x1p-7F}, {1.5F, 0x1p-6F}, 0.0F) == bits(2.25F));
  CHECK(hopper_bits({1.5F, 0x1p-7F}, {0.5F, 0x1p-6F}, 0.0F) == bits(0.75F + 0x1p-13F));
  // c joins the alignment and is cut itself.
  CHECK(hopper_bits({1}, {1}, 0x1p13F) == bits(8193.0F));
  CHECK(hopper_bits({1}, {1}, 0x1p14F) == bits(0x1p14F));
  CHECK(hopper_bits({1, 1}, {1, 1}, 0x1p14F) == bits(0x1p14F));
  CHECK(hopper_bits({0}, {0}, 1.0F + 0x1p-14F) == bits(1.0F));
}

TEST_CASE("special values follow the documented rule", "[accumulate]") {
  const std::uint32_t e5m2_inf = 0x7c;
  const std::uint32_t e5m2_one = 0x3c;
  const auto e5m2 = [](const Codes& a, const Codes& b, float c) {
    return bits(dot_product(hopper(), FormatId::e5m2, a, FormatId::e5m2, b, c));
  };
  CHECK(hopper_bits({kNan}, {0}, 0.0F) == kCanonicalNan);
  CHECK(hopper_bits({1}, {1}, kNan) == kCanonicalNan);
  CHECK(hopper_bits({1}, {1}, -kNan) == kCanonicalNan);
  CHECK(e5m2({e5m2_inf}, {e5m2_one}, 0.0F) == bits(kInf));
  CHECK(e5m2({e5m2_inf | 0x80}, {e5m2_one}, 1e30F) == bits(-kInf));
  CHECK(e5m2({e5m2_inf}, {0}, 0.0F) == kCanonicalNan);
  CHECK(e5m2({e5m2_inf, e5m2_inf | 0x80}, {e5m2_one, e5m2_one}, 0.0F) == kCanonicalNan);
  CHECK(e5m2({e5m2_inf}, {e5m2_one}, -kInf) == kCanonicalNan);
  CHECK(hopper_bits({1}, {1}, -kInf) == bits(-kInf));
  // An infinity in one step is still there after the next ones.
  CHECK(e5m2(Codes(64, e5m2_inf), Codes(64, e5m2_one), 0.0F) == bits(kInf));
}

TEST_CASE("zeros, subnormals and very large c", "[accumulate]") {
  CHECK(hopper_bits({}, {}, 0.0F) == bits(0.0F));
  CHECK(hopper_bits({-0.0F}, {1}, -0.0F) == bits(0.0F));
  CHECK(hopper_bits({1, -1}, {1, 1}, 0.0F) == bits(0.0F));
  // A subnormal c aligns at 2^-126 and keeps 13 fraction bits there.
  CHECK(hopper_bits({0}, {0}, 0x1p-139F) == bits(0x1p-139F));
  CHECK(hopper_bits({0}, {0}, 0x1p-140F) == bits(0.0F));
  CHECK(hopper_bits({0}, {0}, -0x1.8p-138F) == bits(-0x1.8p-138F));
  // A huge c swallows every product; its own low bits are cut.
  CHECK(hopper_bits({448}, {448}, 0x1p127F) == bits(0x1p127F));
  CHECK(hopper_bits({448}, {448}, std::numeric_limits<float>::max()) == bits(0x1.fff8p127F));
  // A sum past binary32 becomes an infinity.
  const auto& bf16 = find_instruction_model("sm90.mma.bf16").accumulator;
  const Codes big{0x7f7f, 0x7f7f};
  CHECK(bits(dot_product(bf16, FormatId::bf16, big, FormatId::bf16, big)) == bits(kInf));
  // BF16 products far below binary32's subnormals vanish.
  const Codes tiny{0x0001};
  CHECK(bits(dot_product(bf16, FormatId::bf16, tiny, FormatId::bf16, tiny)) == bits(0.0F));
}

TEST_CASE("all ones stick at 16384 without promotion", "[accumulate]") {
  const std::vector<float> ones(32768, 1.0F);
  CHECK(hopper_bits(ones, ones, 0.0F) == bits(16384.0F));
}

TEST_CASE("the exact model equals rational arithmetic over 2000 terms", "[accumulate]") {
  const AccumulatorModel& exact = find_instruction_model("exact").accumulator;
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16, FormatId::f16}) {
    const Codes a = random_codes({5, "a"}, id, 2000);
    const Codes b = random_codes({5, "b"}, id, 2000);
    oracle::cpp_rational sum = oracle::exactly(0.375);
    for (std::size_t i = 0; i < a.size(); ++i)
      sum += oracle::exactly(decode(format(id), a[i])) * oracle::exactly(decode(format(id), b[i]));
    const auto rounded = oracle::round_to(sum, 23, RoundingMode::nearest_even, -149);
    const auto expected = static_cast<float>(static_cast<double>(rounded));
    INFO(format(id).name);
    CHECK(bits(dot_product(exact, id, a, id, b, 0.375F)) == bits(expected));
  }
}

TEST_CASE("the Kulisch accumulator is exact at its ends", "[accumulate]") {
  KulischAccumulator sum;
  sum.add(false, 1, -300);
  sum.add(true, (std::uint64_t{1} << 62) - 1, 257);
  sum.add(false, (std::uint64_t{1} << 62) - 1, 257);
  Exact x = sum.value();
  CHECK(x.significand >> 63 == 1);
  CHECK(x.exponent == -363);
  CHECK_FALSE(x.negative);
  CHECK_FALSE(x.sticky);
  sum.add(true, 1, 0);
  x = sum.value();
  CHECK(x.negative);
  CHECK(x.sticky);
}

TEST_CASE("the Kulisch accumulator equals whole numbers of any length", "[accumulate]") {
  // Terms in all words, among them sums whose highest bit is that of a word, and sums of which
  // only words far below the highest are not zero.
  using boost::multiprecision::cpp_int;
  int stickies = 0;
  int whole_words = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const RandomStream stream(i, "kulisch");
    KulischAccumulator sum;
    cpp_int exact = 0;
    const std::uint64_t terms = 1 + stream.below(0, 4);
    for (std::uint64_t t = 0; t < terms; ++t) {
      const bool negative = stream.below(4 * t + 1, 2) == 0;
      // One bit, or many.
      std::uint64_t significand = stream.bits32(16 * t + 2) | 1;
      if (stream.below(4 * t + 2, 2) == 0)
        significand = std::uint64_t{1} << stream.below(4 * t + 3, 62);
      else
        significand = (significand << 29 | significand) & ((std::uint64_t{1} << 62) - 1);
      // Mostly where a word begins or ends.
      const int exponent = stream.below(100 + t, 2) == 0
                               ? static_cast<int>(stream.below(200 + t, 558)) - 300
                               : std::min(static_cast<int>(64 * stream.below(200 + t, 9)) - 300 +
                                              static_cast<int>(stream.below(300 + t, 5)),
                                          257);
      sum.add(negative, significand, exponent);
      const cpp_int term = cpp_int(significand) << (exponent + 300);
      exact += negative ? cpp_int(-term) : term;
    }
    const Exact x = sum.value();
    const cpp_int magnitude = abs(exact);
    INFO("case " << i);
    if (exact == 0) {
      CHECK(x.significand == 0);
      CHECK_FALSE(x.sticky);
      continue;
    }
    const int top = static_cast<int>(boost::multiprecision::msb(magnitude));
    const cpp_int kept = top >= 63 ? cpp_int(magnitude >> (top - 63)) : magnitude << (63 - top);
    const cpp_int rest = top >= 63 ? cpp_int(magnitude - (kept << (top - 63))) : cpp_int(0);
    CHECK(x.negative == (exact < 0));
    CHECK(cpp_int(x.significand) == kept);
    CHECK(x.exponent == top - 63 - 300);
    CHECK(x.sticky == (rest != 0));
    stickies += x.sticky ? 1 : 0;
    whole_words += top % 64 == 63 && x.sticky ? 1 : 0;
  }
  CHECK(stickies > 500);
  CHECK(whole_words > 5);
}

TEST_CASE("sequential models round every partial sum", "[accumulate]") {
  for (const char* name : {"sequential14.rne", "sequential14.rz", "seed.listing"}) {
    const AccumulatorModel& model = find_instruction_model(name).accumulator;
    const Codes a = random_codes({6, "a"}, FormatId::e4m3fn, 300);
    const Codes b = random_codes({6, "b"}, FormatId::e4m3fn, 300);
    oracle::cpp_rational sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      oracle::cpp_rational p = oracle::exactly(decode(format(FormatId::e4m3fn), a[i])) *
                               oracle::exactly(decode(format(FormatId::e4m3fn), b[i]));
      if (model.product_fraction_bits >= 0)
        p = oracle::round_to(p, model.product_fraction_bits, RoundingMode::nearest_even, -4000);
      sum = oracle::round_to(sum + p, model.output_fraction_bits, model.rounding, -4000);
    }
    INFO(name);
    CHECK(bits(dot_product(model, FormatId::e4m3fn, a, FormatId::e4m3fn, b)) ==
          bits(static_cast<float>(static_cast<double>(sum))));
  }
}

TEST_CASE("a model out of range and operands of different length are refused", "[accumulate]") {
  AccumulatorModel model = hopper();
  model.terms = 0;
  CHECK_THROWS_WITH(dot_product(model, {}, {}), contains("terms: expected 1 .. 256, got 0"));
  const std::vector<Unpacked> three(3);
  const std::vector<Unpacked> two(2);
  CHECK_THROWS_WITH(dot_product(hopper(), three, two), contains("b: expected k = 3 operands"));
}

TEST_CASE("sequential: products are rounded to nearest even, however sums are", "[accumulate]") {
  // 1.5 * 1.625 = 2.4375 is 2.5 in three fraction bits, 1.25 * 1.5 = 1.875 is exact, and
  // 1.125 * 1.5 = 1.6875 is the tie between 1.625 and 1.75.
  const auto sum = [](const std::string& text, const std::vector<float>& a,
                      const std::vector<float>& b) {
    const InstructionModel model = find_instruction_model(ModelBook().resolve(text));
    std::vector<std::uint32_t> x;
    std::vector<std::uint32_t> y;
    for (std::size_t i = 0; i < a.size(); ++i) {
      x.push_back(encode(format(FormatId::e4m3fn), kNvidiaSatfinite, a[i]));
      y.push_back(encode(format(FormatId::e4m3fn), kNvidiaSatfinite, b[i]));
    }
    return dot_product(model.accumulator, FormatId::e4m3fn, x, FormatId::e4m3fn, y);
  };
  for (const std::string rounding : {"toward_zero", "nearest_even"}) {
    const std::string text = "sequential:M=13,P=3,rounding=" + rounding;
    INFO(text);
    CHECK(sum(text, {1.5F}, {1.625F}) == 2.5F);
    CHECK(sum(text, {-1.5F}, {1.625F}) == -2.5F);
    CHECK(sum(text, {1.25F}, {1.5F}) == 1.875F);
    CHECK(sum(text, {1.125F}, {1.5F}) == 1.75F);
    CHECK(sum(text, {1.5F, 1.125F}, {1.625F, -1.5F}) == 0.75F);
  }
}
