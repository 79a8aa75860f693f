// What run_gemm says that it ran: the method of these data on this target.

#include "catch.hpp"
#include "fp8lab/gemm/run.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// What runs a product of the model on a vector target; its bits are checked, too.
std::string ran(const InstructionModel& model, Shape shape, Data data, Target target,
                CPlacement place = CPlacement::unnamed) {
  const Start start = place == CPlacement::unnamed ? Start::none : Start::normal;
  Operands operands(model, shape, data, start, 5);
  operands.problem.c_enters = place;
  const auto size = static_cast<std::size_t>(shape.m * shape.n);
  std::vector<float> expected(size);
  std::vector<float> got(size);
  gemm_reference(operands.problem, expected);
  std::string method(run_gemm(operands.problem, got, target, 2));
  CHECK(compare(operands.problem, expected, got) == "equal");
  return method;
}

}  // namespace

TEST_CASE("what ran is the method of the data and of the target", "[gemm][ran]") {
  const Shape shape{9, 40, 70};
  const InstructionModel& bf16 = find_instruction_model("sm90.mma.bf16");
  const InstructionModel& e4m3 = find_instruction_model("sm90.wgmma.e4m3");
  InstructionModel without_kernel = e4m3;
  without_kernel.accumulator.product_exponent = ProductExponent::normalized;
  for (const Target target : available_targets()) {
    INFO(to_string(target));
    const bool vectors = target != Target::scalar;
    const auto expected = [&](const char* method) -> std::string {
      return vectors ? method : "reference";
    };
    // BF16 far from 1 is not for 32-bit integers, whatever the plan without data says. With AVX-512
    // longer steps are faster in binary64.
    const bool wide = target == Target::avx512;
    const auto of_words = [&](bool in_double) {
      return expected(wide && in_double ? "fused double" : "fused words");
    };
    const auto model = [](const char* name) { return find_instruction_model(name); };
    CHECK(ran(bf16, shape, Data::normal, target) == of_words(true));
    CHECK(ran(model("sm80.mma.f16"), shape, Data::normal, target) == of_words(false));
    CHECK(ran(model("sm90.mma.f16.f16"), shape, Data::normal, target) == of_words(false));
    CHECK(ran(model("sm100.tcgen05.e4m3.f16"), shape, Data::normal, target) == of_words(true));
    CHECK(ran(model("sm100.tcgen05.e4m3"), {2, 256, 70}, Data::normal, target) == of_words(false));
    CHECK(ran(bf16, shape, Data::wide, target) == expected("fused double"));
    CHECK(ran(e4m3, shape, Data::codes, target) == expected("fused float"));
    CHECK(ran(e4m3, {130, 2, 70}, Data::normal, target) == expected("fused float"));
    CHECK(ran(e4m3, shape, Data::normal, target, CPlacement::epilogue) == expected("fused float"));
    CHECK(ran(bf16, shape, Data::wide, target, CPlacement::epilogue) == expected("fused double"));
    CHECK(ran(find_instruction_model("sm90.mma.e4m3"), shape, Data::normal, target) ==
          expected("fp16 halves"));
    CHECK(ran(find_instruction_model("exact"), shape, Data::wide, target) == expected("exact"));
    CHECK(ran(without_kernel, shape, Data::normal, target) == "reference");
    CHECK(ran(e4m3, {9, 40, 0}, Data::normal, target) == "reference");
    CHECK(ran(e4m3, {0, 40, 70}, Data::normal, target) == "reference");
  }
}
