// Zeros of both signs, infinities, NaN, subnormal and normal numbers in every place of two products
// and of c: every registered unit against exact arithmetic, so that no rule for some of them is
// asked before the rule for others.

#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "accumulate/unit_oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"

using namespace fp8lab;

namespace {

using Codes = std::vector<std::uint32_t>;

std::uint32_t one_of(const Format& f) {
  return static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
}

/// A code of every class that the format has, of both signs where signs may matter.
Codes places_of(const Format& f) {
  Codes codes{0, 1, one_of(f)};
  if (f.has_infinity()) codes.push_back(f.infinity_code());
  for (std::size_t i = codes.size(); i-- > 0;)
    if (codes[i] != 0 || f.specials != SpecialValues::fnuz)
      codes.push_back(codes[i] | f.sign_mask());
  if (f.specials == SpecialValues::fnuz)
    codes.push_back(f.sign_mask());
  else if (f.has_nan())
    codes.push_back(f.magnitude_mask());
  return codes;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::array kStarts{
    0.0F,      -0.0F,    kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
    1.0F,      -1.0F,    0x1p-130F, -0x1p-149F, 0x1p-20F,
    -0x1p-24F, -0x1p-25F};

/// What a block-scaled unit is given: no scales, or the same one for all blocks of a and 1 for b.
struct ScaleCase {
  FormatId format = FormatId::e8m0fnu;
  int block = 0;  ///< 0: none
  std::uint32_t of_a = 0;
  std::uint32_t of_b = 0;
};

std::vector<ScaleCase> scale_cases(const AccumulatorModel& m) {
  std::vector<ScaleCase> cases{{}};
  if (!traits_of(m).takes_scales) return cases;
  for (const std::uint32_t code : {0U, 254U, 255U})
    cases.push_back({FormatId::e8m0fnu, 32, code, 127});
  if (unit_of(m.kind).takes_scales(m, FormatId::e4m3fn, 16))
    for (const std::uint32_t code : {0x00U, 0x80U, 0x01U, 0xb8U, 0x7fU, 0xffU})
      cases.push_back({FormatId::e4m3fn, 16, code, 0x38});
  return cases;
}

struct Tally {
  std::size_t cases = 0, nan = 0, infinite = 0, zero = 0, negative_zero = 0, other = 0;
  std::size_t failures = 0;

  void count(std::uint32_t bits) {
    ++cases;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return void(++nan);
    if (magnitude == 0x7f800000) return void(++infinite);
    if (magnitude == 0) return void(++(bits == 0 ? zero : negative_zero));
    ++other;
  }
};

/// Two products among others that are -0: in one step, or the second one in the next step.
class Places {
 public:
  explicit Places(const InstructionModel& m) : m_(m) {}

  void check(Tally& tally) {
    const int terms = traits_of(m_.accumulator).has_steps ? m_.accumulator.terms : 1;
    for (const ScaleCase& scale : scale_cases(m_.accumulator)) check_products(scale, 1, tally);
    check_products({}, static_cast<std::size_t>(terms), tally);
  }

 private:
  void check_products(const ScaleCase& scale, std::size_t second, Tally& tally) {
    const Format& fa = format(m_.a_format);
    const Format& fb = format(m_.b_format);
    a_.assign(second + 1, 0);
    b_.assign(second + 1, one_of(fb) | fb.sign_mask());  // 0 * -1
    const std::size_t block = scale.block == 0 ? 1 : static_cast<std::size_t>(scale.block);
    a_scales_.assign((a_.size() + block - 1) / block, scale.of_a);
    b_scales_.assign(a_scales_.size(), scale.of_b);
    if (scale.block != 0)
      scales_ = {.format = scale.format, .block = scale.block, .a = a_scales_, .b = b_scales_};
    else
      scales_ = {};
    b_[second] = one_of(fb);
    for (const std::uint32_t a_first : places_of(fa))
      for (const std::uint32_t b_first : places_of(fb))
        for (const std::uint32_t a_second : places_of(fa)) {
          a_[0] = a_first;
          b_[0] = b_first;
          a_[second] = a_second;
          for (const float c : kStarts) compare(c, tally);
        }
  }

  void compare(float c, Tally& tally) const {
    const AccumulatorModel& m = m_.accumulator;
    const std::uint32_t expected =
        unit_oracle::dot(m, format(m_.a_format), a_, format(m_.b_format), b_, scales_, c);
    const auto got =
        std::bit_cast<std::uint32_t>(dot_product(m, m_.a_format, a_, m_.b_format, b_, scales_, c));
    tally.count(expected);
    if (got != expected && ++tally.failures <= 3)
      UNSCOPED_INFO(
          fmt::format("{:x} * {:x}, {:x} * {:x}, k {}, c {:a}: expected {:08x}, got {:08x}", a_[0],
                      b_[0], a_.back(), b_.back(), a_.size(), c, expected, got));
  }

  const InstructionModel& m_;
  Codes a_, b_, a_scales_, b_scales_;
  BlockScales scales_;
};

}  // namespace

TEST_CASE("special values in every place: units equal exact arithmetic", "[accumulate][units]") {
  std::set<std::string> seen;
  Tally all;
  for (const InstructionModel& m : instruction_models()) {
    if (!seen.insert(definition_of(m.accumulator, m.a_format, m.b_format)).second) continue;
    INFO(m.name);
    Tally tally;
    Places(m).check(tally);
    CHECK(tally.failures == 0);
    CHECK(tally.nan > 0);
    CHECK(tally.infinite > 0);
    CHECK(tally.zero > 0);
    CHECK(tally.other > 0);
    if (m.vendor == Vendor::nvidia && m.standing != Standing::definition &&
        m.accumulator.kind != AccumulationKind::fp16_halves)
      CHECK(tally.negative_zero == 0);
    all.negative_zero += tally.negative_zero;
    all.cases += tally.cases;
  }
  CHECK(all.negative_zero > 100);
  CHECK(all.cases > 300'000);
}

TEST_CASE("CDNA1: special values come before the sign of zeros", "[accumulate][units]") {
  for (const char* name : {"gfx908.mfma.f16", "gfx908.mfma.bf16"}) {
    INFO(name);
    const InstructionModel& m = find_instruction_model(name);
    const Format& f = format(m.a_format);
    const std::uint32_t one = one_of(f);
    const std::uint32_t zero = f.sign_mask();  // -0
    const std::uint32_t infinity = f.infinity_code();
    const auto sum = [&](std::uint32_t a, std::uint32_t b) {
      const Codes x{a, zero};
      const Codes y{b, one};
      return std::bit_cast<std::uint32_t>(
          dot_product(m.accumulator, m.a_format, x, m.b_format, y, -0.0F));
    };
    CHECK(sum(infinity | f.sign_mask(), one) == 0xff800000);
    CHECK(sum(zero, infinity) == kCanonicalNan);
    CHECK(sum(zero, f.magnitude_mask()) == kCanonicalNan);
    CHECK(sum(zero, one) == 0x80000000);
  }
}
