#include "fp8lab/vectors/reduce.hpp"

#include <algorithm>
#include <bit>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/cases.hpp"

using namespace fp8lab;

namespace {

std::uint32_t result_bits(const AccumulatorModel& model, const InstructionModel& inputs,
                          const VectorCase& one) {
  return std::bit_cast<std::uint32_t>(dot_product(model, inputs.a_format, one.a, inputs.b_format,
                                                  one.b, std::bit_cast<float>(one.c)));
}

}  // namespace

TEST_CASE("a case where two models differ reduces to a few terms and still differs", "[verify]") {
  const InstructionModel& right = find_instruction_model("sm90.wgmma.e4m3");
  AccumulatorModel wrong = right.accumulator;
  wrong.alignment_fraction_bits -= 1;
  const auto fails = [&](const VectorCase& one) {
    return result_bits(right.accumulator, right, one) != result_bits(wrong, right, one);
  };
  std::size_t reduced = 0;
  for (std::uint64_t index = 0; reduced < 20 && index < 5000; ++index) {
    const VectorCase start = generate_case(right, 32, CaseKind::adversarial, 1, index);
    if (!fails(start)) continue;
    ++reduced;
    const ReducedCase reduction = reduce_case(start, right.a_format, right.b_format, fails);
    INFO("case " << index << ": " << live_terms(start) << " terms before, "
                 << live_terms(reduction.smallest) << " after");
    CHECK(fails(reduction.smallest));
    // A bit is lost between the largest term and one other; c may be either.
    CHECK(live_terms(reduction.smallest) <= 4);
    for (std::size_t i = 0; i < 32; ++i) {
      VectorCase without = reduction.smallest;
      if (without.a[i] == 0 && without.b[i] == 0) continue;
      without.a[i] = without.b[i] = 0;
      CHECK_FALSE(fails(without));
    }
  }
  CHECK(reduced == 20);
}

TEST_CASE("reduction finds the one operand that a failure needs", "[verify]") {
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e5m2");
  VectorCase start = generate_case(model, 32, CaseKind::random, 2, 1);
  start.a[17] = 0x7d;  // NaN
  start.c = 0xc2345678;
  const auto fails = [](const VectorCase& one) { return one.a[17] == 0x7d; };
  const ReducedCase reduction = reduce_case(start, model.a_format, model.b_format, fails);
  CHECK(live_terms(reduction.smallest) == 1);
  CHECK(reduction.smallest.a[17] == 0x7d);
  CHECK(reduction.smallest.b[17] == 0x3c);  // 1.0
  CHECK(reduction.smallest.c == 0);
}

TEST_CASE("reduction keeps to its budget and refuses a case that passes", "[verify]") {
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e4m3");
  const VectorCase start = generate_case(model, 32, CaseKind::random, 2, 1);
  std::size_t asked = 0;
  const auto only_once = [&](const VectorCase&) { return ++asked == 1; };
  CHECK(reduce_case(start, model.a_format, model.b_format, only_once, 10).tried == 10);
  CHECK(asked == 10);
  CHECK_THROWS_WITH(
      reduce_case(start, model.a_format, model.b_format, [](const VectorCase&) { return false; }),
      contains("failing: expected a case for which the predicate holds"));
}

TEST_CASE("reduction that is stopped anywhere leaves a case that fails, and asks no more",
          "[verify]") {
  VectorCase start;
  start.a = {0x51, 0xc9, 0x33, 0x7b, 0xaa};
  start.b = {0x2d, 0x46, 0xbc, 0x07, 0xd3};
  start.c = 0xc2345678;
  start.d = 0x12345678;
  start.scales_a = {0x7a, 0x81};
  start.scales_b = {0x90, 0x60};
  std::size_t asked = 0;
  const auto fails = [&](const VectorCase& one) {
    ++asked;
    return (one.a[1] & 0x41) == 0x41 && one.b[3] != 0 && (one.c & 0x10) != 0 &&
           one.scales_a[1] >= 0x80 && one.scales_b[0] >= 0x88;
  };
  asked = 0;
  const ReducedCase whole =
      reduce_case(start, FormatId::e4m3fn, FormatId::e5m2, fails, 20000, ScaleFormat::ue8m0);
  CHECK(whole.tried == asked);
  REQUIRE(whole.tried > 60);
  for (std::size_t budget = 1; budget <= whole.tried + 2; ++budget) {
    asked = 0;
    const ReducedCase some =
        reduce_case(start, FormatId::e4m3fn, FormatId::e5m2, fails, budget, ScaleFormat::ue8m0);
    INFO(budget << " of " << whole.tried);
    CHECK(some.tried == std::min(budget, whole.tried));
    CHECK(asked == some.tried);
    CHECK(fails(some.smallest));
    CHECK(some.smallest.d == start.d);
    if (budget < whole.tried) continue;
    CHECK(some.smallest.a == whole.smallest.a);
    CHECK(some.smallest.b == whole.smallest.b);
    CHECK(some.smallest.c == whole.smallest.c);
    CHECK(some.smallest.scales_a == whole.smallest.scales_a);
    CHECK(some.smallest.scales_b == whole.smallest.scales_b);
  }
}

TEST_CASE("reduction leaves of each part what the failure needs, and no more", "[verify]") {
  VectorCase start;
  start.a = {0x51, 0xc9, 0x33, 0x7b, 0xaa};
  start.b = {0x2d, 0x46, 0xbc, 0x07, 0xd3};
  start.c = 0xc2345678;
  start.d = 77;
  const auto smallest = [&](const FailurePredicate& fails) {
    const ReducedCase found = reduce_case(start, FormatId::e4m3fn, FormatId::e4m3fn, fails);
    CHECK(fails(found.smallest));
    CHECK(found.smallest.d == 77);
    return found.smallest;
  };
  using Codes = std::vector<std::uint32_t>;
  const Codes none(5);
  // c: its sign, its exponent, any one of its bits.
  const VectorCase of_size =
      smallest([](const VectorCase& one) { return (one.c & 0x7f800000U) == 0x42000000U; });
  CHECK(of_size.c == 0x42000000U);
  CHECK(of_size.a == none);
  CHECK(of_size.b == none);
  for (int bit = 0; bit < 32; ++bit) {
    const std::uint32_t mask = std::uint32_t{1} << bit;
    if ((start.c & mask) == 0) continue;
    INFO("bit " << bit);
    const VectorCase kept = smallest([&](const VectorCase& one) { return (one.c & mask) != 0; });
    CHECK((kept.c & ~0x7f800000U) == (mask & ~0x7f800000U));
    CHECK(live_terms(kept) == 0);
  }
  // A negative product has its sign in a; its magnitudes go to 1.
  for (std::size_t i = 0; i < 5; ++i) {
    const bool negative = ((start.a[i] ^ start.b[i]) & 0x80) != 0;
    INFO("term " << i);
    const VectorCase kept = smallest([&](const VectorCase& one) {
      return one.a[i] != 0 && one.b[i] != 0 && (((one.a[i] ^ one.b[i]) & 0x80) != 0) == negative;
    });
    Codes a = none;
    Codes b = none;
    a[i] = negative ? 0xb8 : 0x38;
    b[i] = 0x38;
    CHECK(kept.a == a);
    CHECK(kept.b == b);
    CHECK(kept.c == 0);
  }
  // Magnitudes move by binades and mantissa bits as far as they may, from above 1 and from below.
  CHECK(smallest([](const VectorCase& one) { return (one.a[3] & 0x7f) > 0x4c; }).a[3] == 0x50);
  CHECK(smallest([](const VectorCase& one) { return (one.a[0] & 0x7f) >= 0x41; }).a[0] == 0x48);
  CHECK(smallest([](const VectorCase& one) { return one.b[0] != 0 && one.b[0] < 0x36; }).b[0] ==
        0x30);
  CHECK(smallest([](const VectorCase& one) { return (one.b[1] & 7) == 6; }).b[1] == 0x3e);
  CHECK(smallest([](const VectorCase& one) { return one.b[3] != 0 && one.b[3] < 0x10; }).b[3] ==
        0x04);
  // Two terms that only go together.
  const VectorCase pair =
      smallest([](const VectorCase& one) { return one.a[1] != 0 && (one.b[2] & 0x80) != 0; });
  CHECK(pair.a == Codes{0, 0x38, 0x38, 0, 0});
  CHECK(live_terms(pair) == 2);
}

TEST_CASE("a term with one operand that is not zero is alive", "[verify]") {
  VectorCase one;
  one.a = {0, 1, 0, 2, 0x80};
  one.b = {0, 0, 1, 2, 0};
  CHECK(live_terms(one) == 4);
}

TEST_CASE("scales that a failure needs move toward 1 and no further", "[verify]") {
  VectorCase start;
  start.a = {2, 2, 2};
  start.b = {2, 2, 2};
  start.scales_a = {0x9f, 0xc4, 0x3b};
  start.scales_b = {0x51, 0x12, 0xff};
  const auto smallest = [&](const FailurePredicate& fails, ScaleFormat scale) {
    return reduce_case(start, FormatId::e2m1, FormatId::e2m1, fails, 20000, scale).smallest;
  };
  using Scales = std::vector<std::uint8_t>;
  const VectorCase big =
      smallest([](const VectorCase& one) { return one.scales_a[1] > 0x90; }, ScaleFormat::ue8m0);
  CHECK(big.scales_a == Scales{0x7f, 0x91, 0x7f});
  CHECK(big.scales_b == Scales{0x7f, 0x7f, 0x7f});
  // UE4M3 has a sign bit without meaning, which goes.
  const VectorCase fine = smallest(
      [](const VectorCase& one) { return (one.scales_a[2] & 3) == 3 && one.scales_b[0] > 0x42; },
      ScaleFormat::ue4m3);
  CHECK(fine.scales_a == Scales{0x38, 0x38, 0x3b});
  CHECK(fine.scales_b == Scales{0x48, 0x38, 0x38});
}

TEST_CASE("reduction stops where no move toward 1 is left", "[verify]") {
  const RandomStream draws(3, "reduce");
  const Format& f = format(FormatId::e4m3fn);
  const std::uint32_t one = 0x38;
  const std::uint32_t binade = 1U << f.mantissa_bits;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    const auto code = [&](std::uint64_t i) {
      return static_cast<std::uint32_t>(1 + draws.below(4 * trial + i, 0x7e));
    };
    const std::uint32_t start = code(0);
    const std::uint32_t low = std::min(start, code(1));
    const std::uint32_t high = std::max(start, code(2));
    const bool of_a = trial % 2 == 0;
    const bool negative = trial % 3 == 0;
    const auto allowed = [&](std::uint32_t magnitude) {
      return magnitude >= low && magnitude <= high;
    };
    VectorCase given;
    given.a = given.b = {0x38, 0x41};
    (of_a ? given.a : given.b)[1] = start | (negative ? 0x80U : 0U);
    const VectorCase found =
        reduce_case(given, FormatId::e4m3fn, FormatId::e4m3fn, [&](const VectorCase& c) {
          return allowed((of_a ? c.a : c.b)[1] & 0x7fU);
        }).smallest;
    const std::uint32_t got = (of_a ? found.a : found.b)[1];
    INFO(start << " in " << low << " to " << high << " became " << got);
    CHECK(got < 0x80);  // its sign says nothing
    CHECK(allowed(got));
    CHECK((of_a ? found.b : found.a)[1] == one);
    CHECK((found.a[0] == 0 && found.b[0] == 0));
    if (got == one) continue;
    CHECK_FALSE(allowed(one));
    for (std::uint32_t bit = 1; bit < binade; bit *= 2)
      if ((got & bit) != 0) CHECK_FALSE(allowed(got & ~bit));
    if (got > one + binade) CHECK_FALSE(allowed(got - binade));
    if (got >= binade && got < one) CHECK_FALSE(allowed(got + binade));
  }
}
