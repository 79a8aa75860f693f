// The device's arithmetic, run on the host against the library's reference.

#include "cuda/emulated_core.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda/emulated_model.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// a * b + c toward zero by exact integer arithmetic.
float slow_fma_toward_zero(float a, float b, float c) {
  const Unpacked x = unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(a));
  const Unpacked y = unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(b));
  const Unpacked z = unpack(format(FormatId::f32), std::bit_cast<std::uint32_t>(c));
  KulischAccumulator sum;
  const std::uint64_t product = std::uint64_t{x.significand} * y.significand;
  // The accumulator's lowest bit is 2^-300: the smallest product, 2^-298, fits.
  if (product != 0) sum.add(x.negative != y.negative, product, x.exponent + y.exponent - 46);
  if (z.significand != 0) sum.add(z.negative, z.significand, z.exponent - 23);
  const Exact exact = sum.value();
  if (exact.significand == 0) return 0.0F;
  return std::bit_cast<float>(
      round_and_pack(format(FormatId::f32), {.rounding = RoundingMode::toward_zero}, exact).code);
}

struct Split {
  SplitOperand value;
  int exponent;
};

Split split(const Format& f, std::uint32_t code) {
  const auto x = static_cast<float>(decode(f, code));
  const Unpacked u = unpack(f, code);
  const float zero = 0.0F;
  return {{std::fabs(x), std::max(x, zero), std::max(-x, zero)},
          u.value_class == ValueClass::zero ? kNoExponent : u.exponent};
}

/// A step as the kernel takes it: FMAs where they fit, integers elsewhere.
float step(const EmulatedModel& model, const VectorCase& one, const Format& a_format,
           const Format& b_format, int begin, int count, float c, bool allow_fma,
           std::size_t& by_fma) {
  const EmulatedFormat a = emulated_format(a_format.id);
  const EmulatedFormat b = emulated_format(b_format.id);
  const auto word = [&](const std::vector<std::uint32_t>& codes, const Format& f, int i) {
    const std::uint32_t code = codes[static_cast<std::size_t>(begin + i)];
    return f.storage_bits == 32 ? code << (23 - f.mantissa_bits) : code;
  };
  const auto load_a = [&](int i) { return unpack_operand(a, word(one.a, a_format, i)); };
  const auto load_b = [&](int i) { return unpack_operand(b, word(one.b, b_format, i)); };
  int top = std::max(accumulator_field(model, c), lowest_field(model));
  bool finite = std::isfinite(c);
  for (int i = 0; i < count; ++i) {
    const Operand x = load_a(i);
    const Operand y = load_b(i);
    finite &= !x.nan && !y.nan && !x.infinite && !y.infinite;
    if (x.significand != 0 && y.significand != 0)
      top = std::max(top, x.exponent + y.exponent + 127);
  }
  if (!allow_fma || !finite || !fma_path_fits(model) || top > fma_path_top(model))
    return fused_step_integer(model, a.mantissa_bits, b.mantissa_bits, count, load_a, load_b, c);
  ++by_fma;
  FmaAccumulator sum(model, top, c);
  for (int i = 0; i < count; ++i)
    sum.add(split(a_format, one.a[static_cast<std::size_t>(begin + i)]).value,
            split(b_format, one.b[static_cast<std::size_t>(begin + i)]).value);
  return round_aligned_sum(model, sum.sum());
}

std::uint32_t emulate(const InstructionModel& instruction, const VectorCase& one, bool allow_fma,
                      std::size_t& by_fma) {
  const EmulatedModel model = emulated_model(instruction.accumulator);
  float c = enter_accumulator(model, std::bit_cast<float>(one.c));
  const int terms = static_cast<int>(one.a.size());
  for (int begin = 0; begin < terms; begin += model.terms)
    c = step(model, one, format(instruction.a_format), format(instruction.b_format), begin,
             std::min(model.terms, terms - begin), c, allow_fma, by_fma);
  return std::bit_cast<std::uint32_t>(c);
}

}  // namespace

TEST_CASE("the host's FMA toward zero is exact", "[cuda]") {
  const RandomStream random(1, "fma_toward_zero");
  int wrong = 0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    // Exponents near each other, so that cancellation and ties happen.
    const auto value = [&](std::uint64_t draw) {
      const std::uint32_t bits = random.bits32(8 * i + draw);
      const std::uint32_t field = i % 4 == 0 ? (bits >> 23) % 255 : 117 + (bits >> 23) % 20;
      const std::uint32_t mask = i % 3 == 0 ? 0x7ff000u : 0x7fffffu;
      return std::bit_cast<float>((bits & 0x80000000u) | (field << 23) | (bits & mask));
    };
    const float a = value(0);
    const float b = value(1);
    const float c = value(2);
    const float expected = slow_fma_toward_zero(a, b, c);
    const float got = fma_toward_zero(a, b, c);
    if (std::bit_cast<std::uint32_t>(got + 0.0F) == std::bit_cast<std::uint32_t>(expected + 0.0F))
      continue;
    if (++wrong == 1)
      UNSCOPED_INFO("a " << std::hexfloat << a << " b " << b << " c " << c << " expected "
                         << expected << " got " << got);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the device arithmetic gives the library's bits", "[cuda]") {
  const SweepShare share;
  std::uint64_t item = 0;
  int checked = 0;
  for (const InstructionModel& model : instruction_models()) {
    if (!can_emulate(model.accumulator, model.a_format, model.b_format)) continue;
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special}) {
      if (!share.takes_one_in(3, "kinds of cases", item++)) continue;
      ++checked;
      std::size_t by_fma = 0;
      std::size_t mismatches = 0;
      const int terms = 3 * model.accumulator.terms;
      const VectorFile file = generate_cases(model, kind, 1300, 21, terms);
      for (const VectorCase& one : file.cases)
        for (const bool allow_fma : {false, true}) {
          const std::uint32_t got = emulate(model, one, allow_fma, by_fma);
          if (got == one.d || ++mismatches > 3) continue;
          const std::string shown =
              describe({one.line, file.a_format, file.b_format, one, one.d, got});
          INFO(model.name << " " << to_string(kind) << (allow_fma ? " by FMA\n" : " by integers\n")
                          << shown);
          CHECK(got == one.d);
        }
      INFO(model.name << " " << to_string(kind));
      CHECK(mismatches == 0);
      if (fma_path_fits(emulated_model(model.accumulator)) && kind != CaseKind::special)
        CHECK(by_fma > 1000);
    }
  }
  CHECK(checked > 20);
}

TEST_CASE("models that the device cannot take are refused", "[cuda]") {
  for (const char* name : {"exact32", "sm100.mma.e4m3"}) {
    const InstructionModel& model = find_instruction_model(name);
    CHECK_FALSE(can_emulate(model.accumulator, model.a_format, model.b_format));
    CHECK_THROWS_WITH(emulated_model(model.accumulator), contains("alignment_fraction_bits"));
  }
  CHECK_THROWS_WITH(emulated_model(find_instruction_model("sm100.mma.e4m3").accumulator),
                    contains("kind fp16_halves"));
  CHECK_THROWS_WITH(emulated_format(FormatId::e4m3fnuz), contains("e4m3fnuz"));
}
