// Sums rounded after every product: kernels against the reference, at ties and at the ends of
// ranges.

#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

AccumulatorModel sequential(int fraction_bits, RoundingMode rounding, int product_bits = -1) {
  AccumulatorModel model = find_instruction_model("sequential14.rne").accumulator;
  model.output_fraction_bits = fraction_bits;
  model.rounding = rounding;
  model.product_fraction_bits = product_bits;
  return model;
}

/// BF16 codes of numbers that have them.
std::vector<std::uint16_t> bf16_codes(const std::vector<float>& values) {
  std::vector<std::uint16_t> codes;
  for (const float x : values) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    REQUIRE((bits & 0xffff) == 0);
    codes.push_back(static_cast<std::uint16_t>(bits >> 16));
  }
  return codes;
}

/// c and one row of A times one of B, on all targets.
void check_one(const AccumulatorModel& model, const std::vector<float>& a,
               const std::vector<float>& b, float c) {
  const std::vector<std::uint16_t> a_codes = bf16_codes(a);
  const std::vector<std::uint16_t> b_codes = bf16_codes(b);
  const auto k = static_cast<std::int64_t>(a.size());
  GemmProblem p;
  p.model = model;
  p.a = {FormatId::bf16, a_codes.data(), 1, k, k, 1};
  p.b = {FormatId::bf16, b_codes.data(), 1, k, k, 1};
  p.c = &c;
  CHECK(gemm_method(p) == "sequential");
  check_all_targets(p);
}

constexpr RoundingMode kKernelModes[] = {RoundingMode::nearest_even, RoundingMode::toward_zero};

}  // namespace

TEST_CASE("sequential sums of any bits keep the reference's bits", "[gemm]") {
  using enum FormatId;
  constexpr FormatId kInputs[] = {e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1,
                                  e2m3,   e3m2, f16,      bf16,     tf32};
  const RandomStream random(5, "sequential models");
  std::size_t on_kernels = 0;
  constexpr std::uint64_t kModels = 1200;
  for (std::uint64_t i = 0; i < kModels; ++i) {
    const auto draw = [&](std::uint64_t which, std::uint64_t bound) {
      return static_cast<std::size_t>(random.below(8 * i + which, bound));
    };
    InstructionModel model = find_instruction_model("sequential14.rne");
    model.a_format = kInputs[draw(0, 10)];
    model.b_format = kInputs[draw(1, 10)];
    const int product_bits = draw(2, 4) == 0 ? static_cast<int>(draw(3, 24)) : -1;
    model.accumulator =
        sequential(1 + static_cast<int>(draw(4, 23)), kKernelModes[i % 2], product_bits);
    const Data data = kAllData[draw(5, 7)];
    constexpr Start kStarts[] = {Start::none, Start::normal, Start::wide, Start::extreme};
    Operands operands(model, {4, 21, 45}, data, kStarts[draw(6, 4)], i);
    if (draw(7, 3) == 0) operands.problem.promotion_interval = 7;
    INFO(format(model.a_format).name
         << " x " << format(model.b_format).name << " M " << model.accumulator.output_fraction_bits
         << " " << to_string(model.accumulator.rounding) << " product bits " << product_bits
         << " model " << i);
    on_kernels += gemm_method(operands.problem) == "sequential" ? 1 : 0;
    check_all_targets(operands.problem);
  }
  CHECK(on_kernels > kModels * 4 / 5);
}

TEST_CASE("sequential sums at and beside ties go where the model says", "[gemm]") {
  // c is n or n + 1/2 units of the last kept bit, the product the half, or nearly.
  for (const int fraction_bits : {1, 2, 7, 13, 14, 22}) {
    for (const RoundingMode mode : kKernelModes) {
      const AccumulatorModel model = sequential(fraction_bits, mode);
      const float binade = std::ldexp(1.0F, fraction_bits);
      for (const float units :
           {binade, binade + 1.0F, 2.0F * binade - 2.0F, 2.0F * binade - 1.0F}) {
        for (const float sign : {1.0F, -1.0F}) {
          for (const float step : {0.5F, 0.25F, 0.25F + 0x1p-7F, -0.5F, -0.25F, -0.25F - 0x1p-7F}) {
            INFO("M " << fraction_bits << " " << to_string(mode) << " c " << sign * units
                      << " product " << step);
            check_one(model, {step, step, step}, {1.0F, 1.0F, 1.0F}, sign * units);
          }
          // A tie that a product far below decides, in reach of binary64 and beyond.
          if (fraction_bits == 22) continue;
          for (const float tiny : {0x1p-9F, 0x1p-30F, 0x1p-60F, 0x1p-100F}) {
            for (const float other : {1.0F, -1.0F}) {
              INFO("M " << fraction_bits << " " << to_string(mode) << " c " << sign * units + 0.5F
                        << " product " << other * tiny);
              check_one(model, {other * tiny, 0.0F}, {1.0F, 1.0F}, sign * (units + 0.5F));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a product on a tie is decided by the smallest sum before it", "[gemm]") {
  // 129 * 129 has 15 bits; with 13 kept ones, 16641 = 16640 + 1 is no tie, with 14 it is.
  for (const int fraction_bits : {6, 7, 11, 12, 13}) {
    for (const RoundingMode mode : kKernelModes) {
      for (const float c : {0x1p-20F, 0x1p-45F, 0x1p-80F, 0x1p-140F}) {
        for (const float sign : {1.0F, -1.0F}) {
          for (const float x : {129.0F, 131.0F, 193.0F}) {
            INFO("M " << fraction_bits << " " << to_string(mode) << " c " << sign * c << " x "
                      << x);
            check_one(sequential(fraction_bits, mode), {x, x}, {x, -x}, sign * c);
            check_one(sequential(fraction_bits, mode), {x}, {x}, sign * c);
          }
        }
      }
    }
  }
}

TEST_CASE("sequential sums are unbounded inside and binary32 outside", "[gemm]") {
  const float largest = std::numeric_limits<float>::max();
  for (const RoundingMode mode : kKernelModes) {
    for (const int fraction_bits : {13, 23}) {
      const AccumulatorModel model = sequential(fraction_bits, mode);
      // Past binary32 and back, past it for good, and among its subnormals.
      check_one(model, {0x1p100F, 0x1p100F}, {0x1p100F, -0x1p100F}, 1.0F);
      check_one(model, {0x1p100F, 0x1p100F}, {-0x1p100F, -0x1p50F}, largest);
      check_one(model, {0x1p127F}, {1.0F}, largest);
      check_one(model, {0x1.02p-70F, 0x1.04p-70F}, {0x1.06p-66F, -0x1.02p-67F}, 0.0F);
      check_one(model, {0x1.02p-120F}, {0x1.06p-120F}, 0.0F);
      for (const float c : {0x1.fffffep-130F, 0x1p-149F, -0x1p-126F, -0.0F, largest, -largest})
        check_one(model, {0.0F, -0.0F}, {1.0F, 1.0F}, c);
    }
  }
}

TEST_CASE("E4M3 and E5M2 sums start from any c", "[gemm]") {
  std::uint64_t seed = 600;
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2}) {
    for (const char* name : {"sequential14.rne", "sequential14.rz", "seed.listing"}) {
      for (int exponent = -149; exponent < 128; exponent += 3) {
        ++seed;
        const Data data = seed % 2 == 0 ? Data::finite : Data::sparse;  // so that some c stay alone
        Operands operands(with_formats(name, id, id), {2, 9, 3}, data, Start::normal, seed);
        for (float& c : operands.c) c = std::ldexp(c, exponent);
        INFO(name << " on " << format(id).name << " c near 2^" << exponent);
        check_all_targets(operands.problem);
      }
    }
  }
}

TEST_CASE("sums of every format start from a c of any exponent and of any bits", "[gemm]") {
  // Each column has another exponent of c, each row other products: the smallest numbers, of which
  // a tie of c needs but one to be none, 1, and the largest ones.
  using enum FormatId;
  constexpr std::int64_t kColumns = 128 + 149;
  struct Model {
    const char* name;
    int fraction_bits;  ///< that a sum keeps
  };
  for (const Model& one :
       {Model{"fp32", 23}, Model{"sequential14.rne", 13}, Model{"sequential14.rz", 13},
        Model{"seed.listing", 14}, Model{"sequential14.rne:M=21", 21},
        Model{"sequential14.rne:M=6", 6}, Model{"sequential14.rz:M=22", 22}})
    for (const FormatId id : {e4m3fn, e5m2, e2m1, f16, bf16, tf32}) {
      const Format& f = format(id);
      const std::uint32_t least = id == bf16 || id == tf32 ? 40U << f.mantissa_bits : 1;
      const std::uint32_t unit = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
      std::vector<std::uint32_t> of_a{least, least | f.sign_mask(), unit, unit | f.sign_mask()};
      for (const std::uint32_t code : {f.max_finite_code(), 3U, unit + 1, unit / 2})
        of_a.push_back(code);
      const std::vector<std::uint32_t> of_b{least, 0, unit};
      const auto m = static_cast<std::int64_t>(of_a.size());
      const auto k = static_cast<std::int64_t>(of_b.size());
      const auto width = static_cast<std::int64_t>(f.storage_bits / 8);
      std::vector<unsigned char> a(static_cast<std::size_t>(m * k * width));
      std::vector<unsigned char> b(static_cast<std::size_t>(kColumns * k * width));
      const auto put = [&](std::vector<unsigned char>& to, std::int64_t at, std::uint32_t code) {
        if (width == 4) code <<= 23 - f.mantissa_bits;
        std::memcpy(to.data() + at * width, &code, static_cast<std::size_t>(width));
      };
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t t = 0; t < k; ++t)
          put(a, i * k + t, t == 2 && i % 2 == 0 ? 0 : of_a[static_cast<std::size_t>(i)]);
      for (std::int64_t j = 0; j < kColumns; ++j)
        for (std::int64_t t = 0; t < k; ++t) put(b, j * k + t, of_b[static_cast<std::size_t>(t)]);
      // One bit more than a sum keeps, that bit less a little, all bits, and one.
      const float tie = 1.0F + std::ldexp(1.0F, -std::min(one.fraction_bits + 1, 23));
      for (const float significand : {tie, std::nextafter(tie, 1.0F), 0x1.fffffep0F, -1.0F}) {
        std::vector<float> c;
        for (std::int64_t i = 0; i < m; ++i)
          for (int exponent = -149; exponent < 128; ++exponent)
            c.push_back(std::ldexp(i % 3 == 0 ? -significand : significand, exponent));
        GemmProblem p;
        p.model = find_instruction_model(one.name).accumulator;
        p.a = {id, a.data(), m, k, k, 1};
        p.b = {id, b.data(), kColumns, k, k, 1};
        p.c = c.data();
        INFO(one.name << " on " << f.name << " c " << significand);
        check_all_targets(p);
      }
    }
}

TEST_CASE("sequential sums with other roundings stay with the reference", "[gemm]") {
  const auto method = [](const AccumulatorModel& model) {
    GemmProblem p;
    p.model = model;
    return gemm_method(p);
  };
  using enum RoundingMode;
  for (const RoundingMode mode : {nearest_away, nearest_toward_zero, upward, downward})
    CHECK(method(sequential(13, mode)) == "reference");
  CHECK(method(sequential(13, toward_zero, 3)) == "reference");
  CHECK(method(sequential(13, toward_zero, 7)) == "sequential");  // products have no more bits
  CHECK(method(sequential(2, nearest_even, 3)) == "reference");
  CHECK(method(sequential(3, nearest_even, 3)) == "sequential");
}

TEST_CASE("products that are rounded take A's significand times a power of two", "[gemm]") {
  // Formats of A with as many fraction bits as a product keeps, and with one more.
  using enum FormatId;
  std::uint64_t seed = 31000;
  for (const FormatId a : {e4m3fn, e5m2, e2m3, f16, bf16})
    for (const FormatId b : {e4m3fn, e5m2})
      for (const int bits : {2, 3, 7, 10}) {
        ++seed;
        InstructionModel model = find_instruction_model("seed.listing");
        model.a_format = a;
        model.b_format = b;
        model.accumulator = sequential(14, RoundingMode::nearest_even, bits);
        INFO(format(a).name << " x " << format(b).name << " product bits " << bits);
        const Operands operands(model, {5, 37, 70}, Data::finite, Start::normal, seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("sums of up to 54 bits are rounded once", "[gemm]") {
  // A large product and a small one beside it: what is left of a power of two has all ones.
  for (const int fraction_bits : {13, 14})
    for (const int bits : {40, 50, 51, 52, 53, 54})
      for (const float sign : {1.0F, -1.0F}) {
        INFO("M " << fraction_bits << ", " << bits << " bits, sign " << sign);
        const float small = std::ldexp(1.0F, -bits);
        const AccumulatorModel model = sequential(fraction_bits, RoundingMode::nearest_even);
        check_one(model, {sign, -sign, sign}, {1.0F, small, small}, 0.0F);
        check_one(model, {sign, sign, -sign}, {1.0F, small, small}, 0.0F);
        check_one(model, {-sign, sign}, {small, small}, sign);
      }
}

TEST_CASE("products of many rows are rounded for each significand", "[gemm]") {
  using enum FormatId;
  std::uint64_t seed = 32000;
  for (const FormatId a : {e4m3fn, e5m2, e4m3fnuz, e2m1})
    for (const std::int64_t rows : {7, 8, 64, 131})
      for (const std::int64_t promotion : {0, 12, 16}) {
        ++seed;
        InstructionModel model = find_instruction_model("seed.listing");
        model.a_format = a;
        INFO(format(a).name << ", " << rows << " rows, promotion " << promotion);
        Operands operands(model, {rows, 37, 67}, kAllData[seed % 7], Start::none, seed);
        operands.problem.promotion_interval = promotion;
        check_all_targets(operands.problem);
      }
}
