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

TEST_CASE("what ran follows the data of either operand", "[gemm][ran]") {
  for (const Target target : available_targets()) {
    if (target == Target::scalar) continue;
    INFO(to_string(target));
    const Shape shape{9, 40, 70};
    for (const bool of_a : {true, false})
      for (const std::int64_t row : {std::int64_t{0}, of_a ? shape.m - 1 : shape.n - 1})
        for (const std::uint16_t code : {std::uint16_t{0x1000}, std::uint16_t{0x7000}}) {
          // One number far from 1, in the first or in the last row.
          Operands operands(find_instruction_model("sm80.mma.bf16"), shape, Data::normal,
                            Start::none, 6);
          OwnedMatrix& m = of_a ? operands.a : operands.b;
          const std::int64_t at = row * m.view.row_stride + (shape.k - 1) * m.view.k_stride;
          std::memcpy(m.bytes.data() + 2 * at, &code, sizeof code);
          std::vector<float> expected(static_cast<std::size_t>(shape.m * shape.n));
          std::vector<float> got(expected.size());
          gemm_reference(operands.problem, expected);
          INFO("of a " << of_a << " row " << row << " code " << code);
          for (const int threads : {1, 3}) {
            CHECK(run_gemm(operands.problem, got, target, threads) == "fused double");
            CHECK(compare(operands.problem, expected, got) == "equal");
          }
        }
  }
}

TEST_CASE("what ran is said of products in parts", "[gemm][ran]") {
  const InstructionModel& e4m3 = find_instruction_model("sm90.wgmma.e4m3");
  const InstructionModel& bf16 = find_instruction_model("sm80.mma.bf16");
  const InstructionModel& mx = find_instruction_model("sm100.tcgen05.mxf8f6f4.e4m3");
  for (const Target target : available_targets()) {
    INFO(to_string(target));
    const bool vectors = target != Target::scalar;
    const auto run = [&](const InstructionModel& model, std::int64_t interval, CPlacement place,
                         bool of_blocks = false) {
      const Shape shape{9, 40, 96};
      Operands operands(model, shape, Data::normal, Start::normal, 7);
      GemmProblem& p = operands.problem;
      p.promotion_interval = interval;
      p.c_enters = place;
      const std::vector<float> scales(static_cast<std::size_t>(shape.m * 3), 0.5F);
      if (of_blocks) p.scale_a = {scales, 1, 32};
      std::vector<float> expected(operands.c.size());
      std::vector<float> got(operands.c.size());
      gemm_reference(p, expected);
      std::string method(run_gemm(p, got, target, 2));
      CHECK(compare(p, expected, got) == "equal");
      return method;
    };
    const auto expected = [&](const char* method) -> std::string {
      return vectors ? method : "reference";
    };
    using enum CPlacement;
    for (const CPlacement place : {accumulator, promoted_sum, epilogue}) {
      INFO(to_string(place));
      CHECK(run(e4m3, 32, place) == expected("fused float"));
      CHECK(run(e4m3, 32, place, true) == expected("fused float"));
      CHECK(run(bf16, 32, place) == expected("fused words"));
      // Kernels have no C before the scales that an instruction applies.
      CHECK(run(mx, 32, place, true) ==
            (place == accumulator ? "reference" : expected("fused double")));
    }
  }
}
