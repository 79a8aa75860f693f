// Where alignments end: their lower limit, and a subnormal FP16 c.

#include "catch.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("products about the alignment's lower limit keep the reference's bits", "[gemm]") {
  std::uint64_t seed = 30000;
  for (const std::string_view name :
       {"sm80.mma.bf16", "sm80.mma.tf32", "sm90.mma.bf16", "sm90.mma.tf32", "sm70.mma.f16.f16",
        "sm80.mma.f16.f16", "sm90.mma.f16.f16", "sm89.mma.e5m2.f16", "sm90.wgmma.e5m2.f16",
        "sm90.mma.e5m2.f16"})
    for (const int lower : {-1, 0, 1})
      for (const HalfCExponent half_c : {HalfCExponent::stored, HalfCExponent::widened})
        for (const Start start : {Start::none, Start::tiny}) {
          ++seed;
          InstructionModel model = find_instruction_model(name);
          AccumulatorModel& m = model.accumulator;
          if (m.min_alignment_exponent != kNoMinAlignmentExponent)
            m.min_alignment_exponent += lower;
          m.half_c_exponent = half_c;
          m.zero_sign = seed / 2 % 2 == 0 ? ZeroSign::kept : ZeroSign::positive;
          const Operands operands(model, {5, 67, 40}, Data::tiny, start, seed);
          INFO(name << " limit " << m.min_alignment_exponent << " " << to_string(half_c) << " seed "
                    << seed);
          CHECK(gemm_method(operands.problem) != "reference");
          check_all_targets(operands.problem);
        }
}

TEST_CASE("any lower limit keeps the reference's bits in every kernel", "[gemm]") {
  std::uint64_t seed = 31000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2.f16", "sm89.mma.e5m2", "sm100.tcgen05.e5m2",
        "sm100.mma.e4m3", "sm90.mma.f16.f16", "exact32"})
    for (const int limit : {-300, -70, -20, -10, -3, 0, 5, 20, 100})
      for (const Shape shape : {Shape{5, 67, 65}, Shape{1, 130, 96}})
        for (const Start start : {Start::none, Start::normal, Start::extreme}) {
          ++seed;
          InstructionModel model = find_instruction_model(name);
          model.accumulator.min_alignment_exponent = limit;
          const Operands operands(model, shape, Data::finite, start, seed);
          INFO(name << " limit " << limit << " seed " << seed);
          check_all_targets(operands.problem);
        }
}
