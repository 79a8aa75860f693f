// Every unit against exact arithmetic, bit for bit: operands at the ends of their formats, every
// kind of c, special values, and parameters that no instruction has.

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "accumulate/unit_oracle.hpp"
#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

/// Draws of one case, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : stream_(seed, "exact units") {}
  std::uint64_t below(std::uint64_t bound) { return stream_.below(at_++, bound); }
  std::uint32_t bits() { return stream_.bits32(4 * at_++); }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low + 1)));
  }

 private:
  RandomStream stream_;
  std::uint64_t at_ = 0;
};

enum class Profile {
  finite,
  ends,
  near_one,
  one_huge,
  powers,
  cancelling,
  any,
  zeros,
  low,   ///< products about the smallest numbers of binary32, or of FP16
  high,  ///< products about the largest ones
};
constexpr std::uint64_t kProfiles = 10;

std::uint32_t draw_code(const Format& f, Profile profile, std::size_t k, Draws& draws) {
  const std::uint32_t most = f.max_finite_code();
  const std::uint32_t one = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
  const std::uint32_t normal = 1U << f.mantissa_bits;
  const std::uint32_t word = draws.bits();
  std::uint32_t magnitude = word % (most + 1);
  switch (profile) {
    case Profile::ends: {
      const std::uint32_t ends[] = {0, 1, 2, normal - 1, normal, normal + 1, most - 1, most, one};
      magnitude = ends[word % 9];
      break;
    }
    case Profile::near_one:
    case Profile::cancelling:
      magnitude = std::min(most, one - (one > 2 * normal ? normal : 0) + word % (3 * normal));
      break;
    case Profile::one_huge:
      magnitude = k == 0 ? most - word % 2 : word % (2 * normal + 1);
      break;
    case Profile::powers: {
      const int reach = std::min(f.bias - 1, 14);
      magnitude = one - (word % static_cast<std::uint32_t>(reach + 1)) * normal;
      break;
    }
    case Profile::any:
      if (draws.below(8) == 0) return word & (f.sign_mask() | f.magnitude_mask());
      break;
    case Profile::low:
    case Profile::high: {
      const bool wide = f.exponent_bits == 8;
      const int center = profile == Profile::low ? (wide ? -75 : -12) : (wide ? 63 : 100);
      const int field = center + f.bias + draws.between(-4, 4);
      magnitude = (static_cast<std::uint32_t>(std::max(field, 0)) << f.mantissa_bits) |
                  (word & (normal - 1));
      magnitude = std::min(magnitude, most - word % 2);
      break;
    }
    case Profile::zeros:
      magnitude = word % 16 == 0 ? 1 : 0;
      break;
    case Profile::finite:
      break;
  }
  const bool negative = draws.below(2) == 0;
  if (f.specials == SpecialValues::fnuz && magnitude == 0) return 0;
  return magnitude | (negative ? f.sign_mask() : 0);
}

struct UnitCase {
  std::vector<std::uint32_t> a;
  std::vector<std::uint32_t> b;
  std::vector<std::uint32_t> scale_a;
  std::vector<std::uint32_t> scale_b;
  BlockScales scales;
  float c = 0.0F;
};

/// c's of every size beside products of about 2^exponent.
float draw_c(int exponent, bool half, Draws& draws) {
  const auto signed_of = [&](float x) { return draws.below(2) == 0 ? x : -x; };
  const auto some = static_cast<float>(draws.bits() >> 8) * 0x1p-24F + 1.0F;
  switch (half && draws.below(3) == 0 ? 4 : draws.below(12)) {
    case 0:
      return signed_of(0.0F);
    case 1:
      return signed_of(std::numeric_limits<float>::max());
    case 2:
      return signed_of(std::ldexp(1.0F, draws.between(-149, -120)));
    case 3:
      return signed_of(std::ldexp(some, draws.between(-140, -120)));
    case 4:  // about FP16's subnormal numbers, and ties between them
      return signed_of(std::ldexp(static_cast<float>(draws.below(64)), -25));
    case 5: {
      const float ends[] = {65504.0F, 65519.0F, 65520.0F, 65536.0F, 2049.0F, 0x1p-14F};
      return signed_of(ends[draws.below(6)]);
    }
    case 6:
      if (draws.below(3) != 0) return std::bit_cast<float>(draws.bits());
      return draws.below(2) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                 : signed_of(std::numeric_limits<float>::infinity());
    case 7:
      return signed_of(std::ldexp(1.0F, std::clamp(exponent + draws.between(-40, 40), -149, 127)));
    default:
      return signed_of(std::ldexp(some, std::clamp(exponent + draws.between(-36, 36), -149, 127)));
  }
}

UnitCase draw_case(const InstructionModel& m, Draws& draws) {
  const auto profile = static_cast<Profile>(draws.below(kProfiles));
  const auto other = draws.below(3) == 0 ? static_cast<Profile>(draws.below(kProfiles)) : profile;
  const Format& fa = format(m.a_format);
  const Format& fb = format(m.b_format);
  UnitCase one;
  const auto most = static_cast<std::uint64_t>(std::min(2 * m.accumulator.terms + 1, 70));
  const std::uint64_t k = draws.below(12) == 0 ? 0 : 1 + draws.below(most);
  for (std::size_t i = 0; i < k; ++i) {
    one.a.push_back(draw_code(fa, profile, i, draws));
    one.b.push_back(draw_code(fb, other, i, draws));
    const bool repeats = profile == Profile::cancelling && i % 2 == 1 && draws.below(8) != 0;
    if (repeats) {
      one.a[i] = one.a[i - 1] ^ fa.sign_mask();
      one.b[i] = one.b[i - 1];
    }
  }
  int largest = -300;
  for (std::size_t i = 0; i < k; ++i) {
    const double p = decode(fa, one.a[i]) * decode(fb, one.b[i]);
    if (std::isfinite(p) && p != 0.0) largest = std::max(largest, std::ilogb(p));
  }
  bool tiny = false;
  if (traits_of(m.accumulator).takes_scales && draws.below(6) != 0) {
    one.scales.block = draws.below(2) == 0 ? 16 : 32;
    one.scales.format = draws.below(2) == 0 ? FormatId::e8m0fnu : FormatId::e4m3fn;
    if (!unit_of(m.accumulator.kind)
             .takes_scales(m.accumulator, one.scales.format, one.scales.block))
      one.scales = {};
    const auto block = static_cast<std::size_t>(one.scales.block);
    const bool wide = draws.below(4) == 0;
    // Products about the smallest numbers of binary32, whose sum may round to zero.
    tiny = one.scales.format == FormatId::e8m0fnu && draws.below(4) == 0;
    const auto scale = [&] {
      if (draws.below(40) == 0) return 0xffU;
      if (one.scales.format == FormatId::e4m3fn) return draws.bits() & 0xff;
      if (tiny) return static_cast<std::uint32_t>(127 + draws.between(-90, -70));
      return wide ? draws.bits() % 255 : static_cast<std::uint32_t>(127 + draws.between(-9, 9));
    };
    for (std::size_t i = 0; i < (k + block - 1) / block; ++i) {
      one.scale_a.push_back(scale());
      one.scale_b.push_back(scale());
      if (one.scales.format == FormatId::e8m0fnu)
        largest += i == 0 ? static_cast<int>(one.scale_a[0] + one.scale_b[0]) - 254 : 0;
    }
  }
  one.c =
      draw_c(std::clamp(largest, -149, 127), m.accumulator.output_format == FormatId::f16, draws);
  if (tiny && draws.below(2) == 0) one.c = draws.below(2) == 0 ? 0.0F : -0.0F;
  return one;
}

struct Kinds {
  int nan = 0, infinite = 0, zero = 0, negative_zero = 0, subnormal = 0, other = 0;

  void count(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
      ++nan;
    else if (magnitude == 0x7f800000)
      ++infinite;
    else if (magnitude == 0)
      ++(bits == 0 ? zero : negative_zero);
    else
      ++(magnitude < 0x00800000 ? subnormal : other);
  }
};

/// Checks some cases of one model, among them ones in which c brings the sum to nothing.
void check_model(const InstructionModel& m, int cases, std::uint64_t seed, Kinds& kinds) {
  const Format& fa = format(m.a_format);
  const Format& fb = format(m.b_format);
  int failures = 0;
  for (int i = 0; i < cases; ++i) {
    Draws draws(seed + static_cast<std::uint64_t>(i));
    UnitCase one = draw_case(m, draws);
    one.scales.a = one.scale_a;
    one.scales.b = one.scale_b;
    const auto sum_with = [&](float c) {
      return unit_oracle::dot(m.accumulator, fa, one.a, fb, one.b, one.scales, c);
    };
    if (draws.below(8) == 0) {
      const auto sum = std::bit_cast<float>(sum_with(0.0F));
      one.c = draws.below(2) == 0 ? -sum : std::nextafter(-sum, 0.0F);
    }
    const std::uint32_t expected = sum_with(one.c);
    const auto got = std::bit_cast<std::uint32_t>(
        dot_product(m.accumulator, m.a_format, one.a, m.b_format, one.b, one.scales, one.c));
    kinds.count(expected);
    if (got != expected && ++failures <= 3)
      UNSCOPED_INFO(fmt::format("seed {} k {} c {:a}: expected {:08x}, got {:08x}",
                                seed + static_cast<std::uint64_t>(i), one.a.size(), one.c, expected,
                                got));
  }
  INFO(m.name);
  CHECK(failures == 0);
}

}  // namespace

TEST_CASE("every registered unit equals exact arithmetic at the ends of its formats",
          "[accumulate][units]") {
  std::set<std::string> seen;
  Kinds kinds;
  std::uint64_t seed = 100000;
  for (const InstructionModel& m : instruction_models()) {
    seed += 1000;
    if (seen.insert(definition_of(m.accumulator, m.a_format, m.b_format)).second)
      check_model(m, 200, seed, kinds);
  }
  CHECK(kinds.nan > 100);
  CHECK(kinds.infinite > 100);
  CHECK(kinds.zero > 100);
  CHECK(kinds.negative_zero > 10);  // of AMD's units and definitions alone
  CHECK(kinds.subnormal > 100);
}

TEST_CASE("units of processors equal exact arithmetic in 10^5 cases", "[accumulate][units]") {
  constexpr int kCases = 6000;
  std::set<std::string> seen;
  Kinds kinds;
  std::uint64_t seed = 90'000'000;
  for (const InstructionModel& m : instruction_models()) {
    if (m.vendor != Vendor::x86 && m.vendor != Vendor::arm) continue;
    if (m.standing == Standing::definition) continue;
    seed += kCases;
    if (seen.insert(definition_of(m.accumulator, m.a_format, m.b_format)).second)
      check_model(m, kCases, seed, kinds);
  }
  CHECK(seen.size() * kCases >= 100'000);
  CHECK(kinds.nan > 1000);
  CHECK(kinds.infinite > 1000);
  CHECK(kinds.zero > 1000);
  CHECK(kinds.negative_zero > 100);
  CHECK(kinds.subnormal > 100);
}

TEST_CASE("units of all formats and parameters equal exact arithmetic", "[accumulate][units]") {
  Kinds kinds;
  int models = 0;
  for (std::uint64_t i = 0; i < 900; ++i) {
    Draws draws(700000 + i);
    const auto& bases = accumulator_kinds();
    InstructionModel m = find_instruction_model(bases[i % bases.size()].instruction);
    AccumulatorModel& p = m.accumulator;
    const auto any_format = [&] { return kFormats[draws.below(kFormats.size())].id; };
    m.a_format = any_format();
    m.b_format = any_format();
    if (!takes_formats(p, m.a_format, m.b_format)) {
      m.a_format = find_instruction_model(bases[i % bases.size()].instruction).a_format;
      m.b_format = m.a_format;
    }
    const int widths[] = {1, 7, 10, 13, 22, 23, 24, 25, 31, 40, 61, 62, 63, 64};
    p.alignment_fraction_bits = widths[draws.below(14)];
    p.output_fraction_bits = draws.between(1, 23);
    if (draws.below(2) == 0) p.output_fraction_bits = 23;
    p.rounding = static_cast<RoundingMode>(draws.below(6));
    p.product_fraction_bits = draws.between(-1, 12);
    if (draws.below(2) == 0) p.min_alignment_exponent = draws.between(-160, 20);
    if (draws.below(3) == 0) p.product_exponent = ProductExponent::normalized;
    if (draws.below(2) == 0) p.half_c_exponent = HalfCExponent::widened;
    if (draws.below(2) == 0) p.zero_sign = ZeroSign::positive;
    if (draws.below(2) == 0) p.halves_order = HalvesOrder::separate;
    p.second_stage_fraction_bits = draws.between(1, 40);
    p.chains = draws.between(1, 8);
    p.subnormals = static_cast<Subnormals>(draws.below(3));
    p.pair_rounding = static_cast<PairRounding>(draws.below(2));
    if (draws.below(4) == 0) p.output_format = FormatId::f16;
    const int terms[] = {1, 2, 4, 5, 8, 12, 16, 32, 33, 64};
    p.terms = terms[draws.below(10)];
    const AccumulatorModel usual =
        find_instruction_model(bases[i % bases.size()].instruction).accumulator;
    try {
      validate(p);
    } catch (const Error&) {  // what this kind has one value of
      p.terms = usual.terms;
      p.output_format = usual.output_format;
      p.alignment_fraction_bits = std::min(p.alignment_fraction_bits, 40);
    }
    ++models;
    const std::string name = definition_of(p, m.a_format, m.b_format);
    m.name = name;
    check_model(m, 12, 1000 * i, kinds);
  }
  CHECK(models == 900);
  CHECK(kinds.subnormal > 100);
  CHECK(kinds.negative_zero > 20);
}
