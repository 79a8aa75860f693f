// The casts of processors and of ONNX against their published rules: AVX10.2's pseudo-code on bits
// of FP16, RISC-V's Zvfofp8min on all BF16 numbers by the grid of values, ONNX's tables of special
// values.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/avx10_2.hpp"
#include "fp8lab/cast/cast.hpp"

using namespace fp8lab;

namespace {

constexpr int kHalfCodes = 1 << 16;

/// FP16's fields as the pseudo-code reads them.
struct HalfFields {
  explicit HalfFields(int code)
      : bits(code),
        sign((code >> 8) & 0x80),
        exponent((code >> 10) & 0x1f),
        fraction(code & 0x3ff) {}
  [[nodiscard]] bool infinite() const { return exponent == 0x1f && fraction == 0; }
  [[nodiscard]] bool nan() const { return exponent == 0x1f && fraction != 0; }
  int bits;
  int sign;
  int exponent;
  int fraction;
};

/// BF8: `added` to FP16's bits, of which the lower eight are then dropped.
int bf8_by_bits(const HalfFields& x, int added, bool saturates) {
  constexpr int kInfinity = 0x7c;
  constexpr int kLargest = 0x7b;
  if (x.nan()) return x.bits >> 8 | 2;
  const int code = x.infinite() ? x.bits >> 8 : (x.bits + added) >> 8;
  return (code & 0x7f) == kInfinity && saturates ? x.sign | kLargest : code;
}

int bf8_nearest(int half, bool saturates) {
  return bf8_by_bits(HalfFields(half), 0x7f + (half >> 8 & 1), saturates);
}

int hf8_of_overflow(const HalfFields& x, bool saturates) {
  return x.sign | (saturates && !x.nan() ? 0x7e : 0x7f);
}

constexpr int kRebias = 8;  // FP16's exponent bias less HF8's

/// HF8 of a number below 2^-6: its significand at the place of 2^-9, with what is lost there as
/// sticky bits, rounded to nearest even.
int hf8_subnormal(const HalfFields& x) {
  int significand = (x.fraction | 0x400) >> std::min(kRebias + 1 - x.exponent, 31);
  significand |= ((x.fraction & 0x7f) + 0x7f) >> 7;
  significand += 0x3f + (significand >> 7 & 1);
  return x.sign | significand >> 10 << 3 | (significand >> 7 & 7);
}

int hf8_nearest(int half, bool saturates) {
  const HalfFields x(half);
  constexpr int kLastField = kRebias + 15;
  const bool beyond = x.exponent > kLastField || (x.exponent == kLastField && x.fraction > 0x340);
  if (beyond) return hf8_of_overflow(x, saturates);
  if (x.exponent == 0 && x.fraction == 0) return x.sign;
  if (x.exponent <= kRebias) return hf8_subnormal(x);
  const int rounded = (half & 0x7fff) + 0x3f + (x.fraction >> 7 & 1);
  return x.sign | ((rounded >> 10) - kRebias) << 3 | (rounded >> 7 & 7);
}

int hf8_biased(int half, int bias, bool saturates) {
  const HalfFields x(half);
  const int added = (half & 0x7fff) + (bias >> 1);
  const int field = added >> 10;
  if (x.exponent == 0x1f || field > kRebias + 15 ||
      (field == kRebias + 15 && (added & 0x3ff) >= 0x380))
    return hf8_of_overflow(x, saturates);
  if (x.exponent == 0) return x.sign | (x.fraction + (bias << 7)) >> (kRebias + 7);
  if (field > kRebias) return x.sign | (field - kRebias) << 3 | (added >> 7 & 7);
  const int significand =
      ((x.fraction | 0x400) + (bias << (kRebias - x.exponent))) >> (kRebias + 1 - x.exponent);
  return x.sign | significand >> 10 << 3 | (significand >> 7 & 7);
}

/// A NaN of BF8 keeps the upper bits of FP16's, which a cast does not see: its sign must be right.
bool same_code(int expected, std::uint32_t got) {
  const bool nan = (expected & 0x7c) == 0x7c && (expected & 3) > 1;
  return nan ? (got | 1U) == (static_cast<unsigned>(expected) | 1U)
             : got == static_cast<unsigned>(expected);
}

std::uint32_t cast_half(const Format& to, const CastPolicy& policy, int half) {
  return cast(to, policy, unpack(format(FormatId::f16), static_cast<std::uint32_t>(half))).code;
}

/// The first cases that differ, and how many there are.
class Differences {
 public:
  void note(const std::string& what) {
    if (++count_ <= 5) text_ += "\n" + what;
  }
  [[nodiscard]] std::string text() const {
    return count_ == 0 ? "" : fmt::format("{} differ:{}", count_, text_);
  }

 private:
  int count_ = 0;
  std::string text_;
};

/// RISC-V's conversion by the format's values: rounded as if one more value came after the last,
/// which stands for infinity.
class GridOfValues {
 public:
  explicit GridOfValues(const Format& f) : format_(f) {
    for (std::uint32_t code = 0; code <= f.max_finite_code(); ++code)
      values_.push_back(decode(f, code));
    const std::size_t last = values_.size() - 1;
    values_.push_back(2 * values_[last] - values_[last - 1]);
  }

  [[nodiscard]] std::uint32_t convert(double x, RoundingMode mode, bool saturates) const {
    constexpr std::uint32_t kSign = 0x80;
    if (std::isnan(x)) return 0x7f;
    const std::uint32_t sign = std::signbit(x) ? kSign : 0;
    const std::size_t place = std::isinf(x) ? values_.size() - 1 : rounded(x, mode);
    if (place + 1 < values_.size()) return sign | static_cast<std::uint32_t>(place);
    if (saturates) return sign | format_.max_finite_code();
    return format_.has_infinity() ? sign | format_.infinity_code() : 0x7f;
  }

 private:
  [[nodiscard]] std::size_t rounded(double x, RoundingMode mode) const {
    const double magnitude = std::fabs(x);
    const bool away = mode == (std::signbit(x) ? RoundingMode::downward : RoundingMode::upward);
    const bool nearest = mode == RoundingMode::nearest_even || mode == RoundingMode::nearest_away;
    const std::size_t last = values_.size() - 1;
    if (magnitude >= values_[last]) return away || nearest ? last : last - 1;
    std::size_t below = 0;
    while (values_[below + 1] <= magnitude) ++below;
    if (values_[below] == magnitude) return below;
    if (!nearest) return away ? below + 1 : below;
    const double middle = (values_[below] + values_[below + 1]) / 2.0;
    const bool tie_up = mode == RoundingMode::nearest_away || below % 2 == 1;
    return magnitude > middle || (magnitude == middle && tie_up) ? below + 1 : below;
  }

  const Format& format_;
  std::vector<double> values_;
};

}  // namespace

TEST_CASE("AVX10.2's conversions of all FP16 codes are those of its pseudo-code", "[cast]") {
  for (const bool saturates : {false, true}) {
    const CastPolicy& policy = find_cast_profile(saturates ? "avx10_2_sat" : "avx10_2").policy;
    Differences differences;
    for (int half = 0; half < kHalfCodes; ++half) {
      const std::uint32_t bf8 = cast_half(format(FormatId::e5m2), policy, half);
      const std::uint32_t hf8 = cast_half(format(FormatId::e4m3fn), policy, half);
      if (!same_code(bf8_nearest(half, saturates), bf8))
        differences.note(fmt::format("{:04x} to BF8: expected {:02x}, got {:02x}", half,
                                     bf8_nearest(half, saturates), bf8));
      if (static_cast<std::uint32_t>(hf8_nearest(half, saturates)) != hf8)
        differences.note(fmt::format("{:04x} to HF8: expected {:02x}, got {:02x}", half,
                                     hf8_nearest(half, saturates), hf8));
    }
    INFO((saturates ? "saturating" : "not saturating"));
    CHECK(differences.text() == "");
  }
}

TEST_CASE("AVX10.2's conversions with a bias are those of its pseudo-code", "[cast]") {
  std::vector<int> biases{0, 1, 2, 3, 127, 128, 129, 254, 255};
  for (int bias = 5; bias < 250; bias += 37) biases.push_back(bias);
  for (const bool saturates : {false, true})
    for (const int bias : biases) {
      Differences differences;
      for (int half = 0; half < kHalfCodes; ++half) {
        const auto code = [&](FormatId to) {
          return cast_with_bias(format(to), saturates, static_cast<std::uint16_t>(half),
                                static_cast<std::uint8_t>(bias))
              .code;
        };
        const int bf8 = bf8_by_bits(HalfFields(half), bias, saturates);
        const int hf8 = hf8_biased(half, bias, saturates);
        if (!same_code(bf8, code(FormatId::e5m2)))
          differences.note(fmt::format("{:04x} to BF8: expected {:02x}, got {:02x}", half, bf8,
                                       code(FormatId::e5m2)));
        if (static_cast<std::uint32_t>(hf8) != code(FormatId::e4m3fn))
          differences.note(fmt::format("{:04x} to HF8: expected {:02x}, got {:02x}", half, hf8,
                                       code(FormatId::e4m3fn)));
      }
      INFO("bias " << bias << (saturates ? ", saturating" : ""));
      CHECK(differences.text() == "");
    }
}

TEST_CASE("Zvfofp8min converts all BF16 numbers as RISC-V's text says", "[cast]") {
  constexpr std::array kFrm{RoundingMode::nearest_even, RoundingMode::toward_zero,
                            RoundingMode::downward, RoundingMode::upward,
                            RoundingMode::nearest_away};
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2}) {
    const GridOfValues grid(format(id));
    for (const RoundingMode mode : kFrm)
      for (const bool saturates : {false, true}) {
        CastPolicy policy = find_cast_profile(saturates ? "zvfofp8min_sat" : "zvfofp8min").policy;
        policy.rounding = mode;
        Differences differences;
        for (std::uint32_t code = 0; code < 0x10000; ++code) {
          const auto x = std::bit_cast<float>(code << 16);
          const std::uint32_t expected = grid.convert(x, mode, saturates);
          const std::uint32_t got = encode(format(id), policy, x);
          if (expected != got)
            differences.note(fmt::format("{:g}: expected {:02x}, got {:02x}", x, expected, got));
        }
        INFO(format(id).name << " " << to_string(mode) << (saturates ? ", saturating" : ""));
        CHECK(differences.text() == "");
      }
  }
}

TEST_CASE("ONNX's casts of special values are those of its tables", "[cast]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Row {
    std::string_view profile;
    FormatId format;
    std::vector<std::uint32_t> codes;  ///< of Inf, -Inf, 1e30, -1e30, NaN, 0, -0
  };
  using enum FormatId;
  const std::vector<Row> rows{
      {"onnx", e4m3fn, {0x7e, 0xfe, 0x7e, 0xfe, 0x7f, 0x00, 0x80}},
      {"onnx", e4m3fnuz, {0x7f, 0xff, 0x7f, 0xff, 0x80, 0x00, 0x00}},
      {"onnx", e5m2, {0x7b, 0xfb, 0x7b, 0xfb, 0x7f, 0x00, 0x80}},
      {"onnx", e5m2fnuz, {0x7f, 0xff, 0x7f, 0xff, 0x80, 0x00, 0x00}},
      {"onnx_19", e4m3fn, {0x7e, 0xfe, 0x7e, 0xfe, 0x7f, 0x00, 0x80}},
      {"onnx_19", e4m3fnuz, {0x80, 0x80, 0x7f, 0xff, 0x80, 0x00, 0x00}},
      {"onnx_19", e5m2, {0x7b, 0xfb, 0x7b, 0xfb, 0x7f, 0x00, 0x80}},
      {"onnx_19", e5m2fnuz, {0x80, 0x80, 0x7f, 0xff, 0x80, 0x00, 0x00}},
      {"ocp_nonsaturating", e4m3fn, {0x7f, 0xff, 0x7f, 0xff, 0x7f, 0x00, 0x80}},
      {"ocp_nonsaturating", e4m3fnuz, {0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0x00}},
      {"ocp_nonsaturating", e5m2, {0x7c, 0xfc, 0x7c, 0xfc, 0x7f, 0x00, 0x80}},
      {"ocp_nonsaturating", e5m2fnuz, {0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0x00}},
  };
  for (const Row& row : rows) {
    const CastPolicy& policy = find_cast_profile(row.profile).policy;
    std::vector<std::uint32_t> got;
    for (const float x : {kInf, -kInf, 1e30F, -1e30F, nan, 0.0F, -0.0F})
      got.push_back(encode(format(row.format), policy, x));
    INFO(row.profile << " into " << format(row.format).name);
    CHECK(got == row.codes);
  }
}

TEST_CASE("ONNX's round_mode into E8M0", "[cast]") {
  // Of 1, 1.25, 1.5, 1.75, 2^127, 1.75 2^127, Inf, NaN, 0.
  const std::vector<float> in{1.0F,
                              1.25F,
                              1.5F,
                              1.75F,
                              0x1p127F,
                              0x1.cp127F,
                              std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(),
                              0.0F};
  const auto codes = [&](RoundingMode mode) {
    CastPolicy policy = find_cast_profile("onnx").policy;
    policy.rounding = mode;
    std::vector<std::uint32_t> got;
    for (const float x : in) got.push_back(encode(format(FormatId::e8m0fnu), policy, x));
    return got;
  };
  CHECK(codes(RoundingMode::upward) ==
        std::vector<std::uint32_t>{127, 128, 128, 128, 254, 254, 254, 255, 0});
  CHECK(codes(RoundingMode::downward) ==
        std::vector<std::uint32_t>{127, 127, 127, 127, 254, 254, 254, 255, 0});
  CHECK(codes(RoundingMode::nearest_even) ==
        std::vector<std::uint32_t>{127, 127, 128, 128, 254, 254, 254, 255, 0});
}
