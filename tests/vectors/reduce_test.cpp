#include "fp8lab/vectors/reduce.hpp"

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
