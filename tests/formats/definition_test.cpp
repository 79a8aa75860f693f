// Formats beyond the table: names, texts, values and refusals.

#include "fp8lab/formats/definition.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "formats/p3109_digests.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/code_hex.hpp"

using namespace fp8lab;

namespace {

/// FNV-1a over the binary64 values of all codes, as p3109_digests.py has it.
std::uint64_t digest_of(const Format& f) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (std::uint32_t code = 0; code < std::uint32_t{1} << f.code_bits(); ++code) {
    const double value = decode(f, code);
    std::uint64_t word =
        std::isnan(value) ? 0x7ff8000000000000 : std::bit_cast<std::uint64_t>(value);
    for (int byte = 0; byte < 8; ++byte, word >>= 8)
      digest = (digest ^ (word & 0xff)) * 0x100000001b3;
  }
  return digest;
}

/// What a code of a format is, from its definition in words: where the codes are that are no
/// numbers, counted from the largest magnitude down.
struct Layout {
  const char* text;
  int e, m, bias;
  bool sign;
  std::uint32_t nans_on_top;  ///< of each sign
  bool infinity_below_them;
  bool nan_at_negative_zero;
  bool flushed = false;
};

double value_of(const Layout& l, std::uint32_t code) {
  const std::uint32_t magnitudes = 1U << (l.e + l.m);
  const bool negative = code >= magnitudes;
  const std::uint32_t magnitude = code % magnitudes;
  const double sign = negative ? -1.0 : 1.0;
  if (l.nan_at_negative_zero && negative && magnitude == 0) return NAN;
  const std::uint32_t from_top = magnitudes - 1 - magnitude;
  if (from_top < l.nans_on_top) return NAN;
  if (l.infinity_below_them && from_top == l.nans_on_top) return sign * HUGE_VAL;
  const std::uint32_t field = magnitude >> l.m;
  const double fraction = (magnitude % (1U << l.m)) / std::pow(2.0, l.m);
  if (field == 0) return sign * (l.flushed ? 0.0 : fraction) * std::pow(2.0, 1 - l.bias);
  return sign * (1.0 + fraction) * std::pow(2.0, static_cast<int>(field) - l.bias);
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts{
      {"float:e=3,m=4", 3, 4, 3, true, 15, true, false},
      {"float:e=4,m=3", 4, 3, 7, true, 7, true, false},
      {"float:e=4,m=3,bias=-2,inf=yes,nan=none", 4, 3, -2, true, 0, true, false},
      {"float:e=2,m=5,nan=one", 2, 5, 1, true, 1, false, false},
      {"float:e=2,m=4,bias=5,inf=yes,nan=one", 2, 4, 5, true, 1, true, false},
      {"float:e=3,m=0,nan=none", 3, 0, 3, true, 0, false, false},
      {"float:e=1,m=1,nan=none", 1, 1, 0, true, 0, false, false},
      {"float:e=4,m=3,bias=11,nan=one,negative_zero=no", 4, 3, 11, true, 0, false, true},
      {"float:e=5,m=6,inf=yes,nan=one,negative_zero=no", 5, 6, 15, true, 0, true, true},
      {"float:e=4,m=3,subnormals=flushed", 4, 3, 7, true, 7, true, false, true},
      {"float:e=5,m=2,nan=one,negative_zero=no,subnormals=flushed", 5, 2, 15, true, 0, false, true,
       true},
      {"float:e=5,m=3,nan=one,signed=no", 5, 3, 15, false, 1, false, false},
      {"float:e=4,m=3,nan=one,signed=no", 4, 3, 7, false, 1, false, false},
      {"float:e=4,m=4,signed=no", 4, 4, 7, false, 15, true, false},
      {"float:e=8,m=2,bias=127,inf=yes,nan=one,signed=no", 8, 2, 127, false, 1, true, false},
      {"float:e=5,m=9", 5, 9, 15, true, 511, true, false},
      {"float:e=11,m=4", 11, 4, 1023, true, 15, true, false}};
  return kLayouts;
}

bool same_value(double a, double b) {
  return std::isnan(a) ? std::isnan(b)
                       : std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

TEST_CASE("format texts: every code has the value that its definition gives", "[formats]") {
  for (const Layout& layout : layouts()) {
    INFO(layout.text);
    const Format& f = find_format(layout.text);
    REQUIRE(f.code_bits() == layout.e + layout.m + (layout.sign ? 1 : 0));
    CHECK(f.storage_bits == (f.code_bits() <= 8 ? 8 : 16));
    CHECK(f.is_padded() == (f.code_bits() % 8 != 0));
    double largest = 0.0;
    double least = HUGE_VAL;
    bool has_nan = false;
    bool has_infinity = false;
    bool narrow = true;
    for (std::uint32_t code = 0; code < 1U << f.code_bits(); ++code) {
      const double expected = value_of(layout, code);
      const double got = decode(f, code);
      if (!same_value(expected, got))
        FAIL_CHECK(code_hex(f, code) << ": expected " << expected << ", got " << got);
      has_nan = has_nan || std::isnan(expected);
      has_infinity = has_infinity || std::isinf(expected);
      if (!std::isfinite(expected)) continue;
      largest = std::max(largest, expected);
      if (expected > 0.0) least = std::min(least, expected);
      narrow = narrow && static_cast<double>(static_cast<float>(expected)) == expected;
    }
    CHECK(f.max_finite() == largest);
    CHECK(f.min_subnormal() == least);
    CHECK(f.has_nan() == has_nan);
    CHECK(f.has_infinity() == has_infinity);
    CHECK(f.fits_binary32() == narrow);
    if (has_infinity) CHECK(decode(f, f.infinity_code()) == HUGE_VAL);
  }
}

TEST_CASE("format texts: tables hold every storage word", "[formats]") {
  for (const Layout& layout : layouts()) {
    INFO(layout.text);
    const Format& f = find_format(layout.text);
    const std::span<const Unpacked> parts = unpack_table(f.id);
    REQUIRE(parts.size() == std::size_t{1} << f.storage_bits);
    if (!f.fits_binary32()) {
      CHECK_THROWS_WITH(
          decode_table(f.id),
          "format: expected a format whose values binary32 represents, got " + std::string(f.name));
      continue;
    }
    const std::span<const float> values = decode_table(f.id);
    REQUIRE(values.size() == parts.size());
    const std::uint32_t mask = (1U << f.code_bits()) - 1;
    for (std::uint32_t word = 0; word < values.size(); ++word) {
      const double expected = value_of(layout, word & mask);
      const bool same = same_value(expected, static_cast<double>(values[word])) &&
                        parts[word].value_class == unpack(f, word & mask).value_class;
      if (!same) FAIL_CHECK("word " << word);
    }
  }
}

TEST_CASE("format texts: a format has one name, whatever it was asked by", "[formats]") {
  const std::vector<std::vector<std::string>> groups{
      {"e5m2", "float:e=5,m=2",
       "float:m=2,e=5,bias=15,inf=yes,nan=ieee,negative_zero=yes,"
       "subnormals=yes,signed=yes"},
      {"e4m3fn", "float:e=4,m=3,nan=one", "float:e=4,m=3,inf=no,nan=one,negative_zero=yes"},
      {"e4m3fnuz", "binary8p4sf", "float:e=4,m=3,bias=8,nan=one,negative_zero=no"},
      {"e8m0fnu", "float:e=8,m=0,nan=one,subnormals=normal,signed=no"},
      {"f16", "float:e=5,m=10"},
      {"bf16", "float:e=8,m=7"},
      {"e2m1", "float:e=2,m=1,nan=none"},
      {"e3m4", "float8_e3m4", "float:e=3,m=4"},
      {"e4m3_ieee", "float8_e4m3", "float:e=4,m=3"},
      {"e4m3b11fnuz", "float8_e4m3b11fnuz"},
      {"ue4m3", "float:e=4,m=3,nan=one,signed=no,negative_zero=no"},
      {"ue5m3", "float:e=5,m=3,nan=one,signed=no"},
      {"binary8p3se", "Binary8p3se", "binary8p3",
       "float:e=5,m=2,bias=16,inf=yes,nan=one,negative_zero=no"},
      {"binary8p8uf", "float:e=1,m=7,bias=1,nan=one,signed=no"},
      {"binary8p1ue", "float:e=8,m=0,bias=128,inf=yes,nan=one,signed=no"},
      {"float:e=3,m=4,bias=4", "float:bias=4,inf=yes,m=4,e=3"},
      {"float:e=4,m=2,bias=3,inf=yes,nan=none,subnormals=flushed"},
      {"float:e=4,m=0,nan=one,subnormals=normal,signed=no"}};
  for (const std::vector<std::string>& names : groups)
    for (const std::string& name : names) {
      INFO(name);
      const Format& f = find_format(name);
      CHECK(f.name == names.front());
      CHECK(&f == &find_format(names.front()));
      CHECK(&f == &format(f.id));
      if (f.code_bits() <= 16) CHECK(&f == &find_format(format_text(f)));
    }
  CHECK(is_built_in(find_format("binary8p4sf").id));
  CHECK(!is_built_in(find_format("binary8p4se").id));
}

TEST_CASE("format texts: what is wrong is said, with the text", "[formats]") {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"float:e=4,m=3,bits=8",
       "format float:e=4,m=3,bits=8: parameter: expected one of e, m, bias, inf, nan, "
       "negative_zero, "
       "subnormals, signed (did you mean bias?), got 'bits'"},
      {"float:m=3", "format float:m=3: e: expected bits of the exponent field, got none"},
      {"float:e=4", "format float:e=4: m: expected bits of the mantissa field, got none"},
      {"float:e=0,m=3", "format float:e=0,m=3: e: expected 1 to 15, got 0"},
      {"float:e=x,m=3", "format float:e=x,m=3: e: expected a whole number, got 'x'"},
      {"float:e=4,m=16", "format float:e=4,m=16: m: expected 0 to 15, got 16"},
      {"float:e=1,m=0,nan=none",
       "format float:e=1,m=0,nan=none: e + m: expected 3 to 16 bits, with the sign, got 2"},
      {"float:e=8,m=8",
       "format float:e=8,m=8: e + m: expected 3 to 16 bits, with the sign, got 17"},
      {"float:e=4,m=3,e=4",
       "format: expected each parameter once, got e twice in "
       "'float:e=4,m=3,e=4'"},
      {"float:e=4,m=3,inf=maybe",
       "format float:e=4,m=3,inf=maybe: inf: expected one of no, yes, got 'maybe'"},
      {"float:e=4,m=3,inf=no",
       "format float:e=4,m=3,inf=no: inf: expected yes, since nan=ieee (nan=one and nan=none go "
       "without), got no"},
      {"float:e=5,m=0",
       "format float:e=5,m=0: m: expected 1 or more, since nan=ieee tells NaN from Inf by the "
       "mantissa (nan=one does not), got 0"},
      {"float:e=4,m=3,negative_zero=no",
       "format float:e=4,m=3,negative_zero=no: negative_zero: expected yes, since no NaN takes its "
       "code (nan=one does), got no"},
      {"float:e=4,m=3,nan=one,signed=no,negative_zero=yes",
       "format float:e=4,m=3,nan=one,signed=no,negative_zero=yes: negative_zero: expected no, "
       "since "
       "signed=no, got yes"},
      {"float:e=4,m=3,nan=one,subnormals=normal",
       "format float:e=4,m=3,nan=one,subnormals=normal: subnormals: expected yes or flushed, since "
       "only unsigned formats have no zero, got normal"},
      {"float:e=4,m=3,bias=2000",
       "format float:e=4,m=3,bias=2000: bias: expected one with which binary64 represents all "
       "values, got 2000 (values from 2^-2002 to 2^-1986)"},
      {"float:e=4,m=3,bias=40000",
       "format float:e=4,m=3,bias=40000: bias: expected -32768 to 32768, got 40000"},
      {"binary2p1se", "format binary2p1se: K: expected 3 to 16 bits, got 2"},
      {"binary8p8se",
       "format binary8p8se: P: expected 1 to 7 of 8 bits, one of them the sign (u: unsigned), got "
       "8"},
      {"binary8p9uf", "format binary8p9uf: P: expected 1 to 8 of 8 bits, unsigned, got 9"},
      {"binary16p1se",
       "format binary16p1se: bias: expected one with which binary64 represents all values, got "
       "16384 (values from 2^-16383 to 2^16382)"}};
  for (const auto& [text, message] : rows) {
    INFO(text);
    CHECK_THROWS_WITH(find_format(text), message);
  }
  for (const char* other :
       {"float", "binary8", "binary8p3s", "binary8p3es", "binary8p3se ", "floats", "e3m5"}) {
    INFO(other);
    CHECK_THROWS_WITH(find_format(other),
                      Catch::Matchers::Contains("format: expected one of") &&
                          Catch::Matchers::EndsWith(", got '" + std::string(other) + "'"));
  }
}

TEST_CASE("format texts: threads that ask at once get one format", "[formats]") {
  std::array<std::vector<const Format*>, 4> seen;
  std::vector<std::thread> threads;
  for (auto& mine : seen)
    threads.emplace_back([&mine] {
      for (int bias = 100; bias < 160; ++bias) {
        const Format& f = find_format("float:e=4,m=2,bias=" + std::to_string(bias));
        mine.push_back(unpack_table(f.id)[4].exponent == 1 - bias ? &format(f.id) : nullptr);
      }
    });
  for (std::thread& one : threads) one.join();
  for (const auto& mine : seen) CHECK(mine == seen[0]);
  for (std::size_t i = 0; i < seen[0].size(); ++i) {
    REQUIRE(seen[0][i] != nullptr);
    CHECK(seen[0][i]->bias == 100 + static_cast<int>(i));
  }
}

TEST_CASE("formats of IEEE P3109 have the values that it publishes", "[formats]") {
  std::size_t eight_bits = 0;
  for (const test::ValueTable& table : test::kP3109Tables) {
    const Format& f = find_format(table.format);
    INFO(table.format);
    if (digest_of(f) != table.digest) FAIL_CHECK("another digest");
    eight_bits += f.code_bits() == 8 ? 1 : 0;
  }
  CHECK(eight_bits == 30);
}
