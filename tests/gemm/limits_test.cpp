// Where alignments end: their lower limit, and a subnormal FP16 c.

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

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

TEST_CASE("sums that round to zero keep the reference's sign under promotion and scales",
          "[gemm]") {
  // A C of -0 shows the sign of a partial sum. Scales so small that products with them vanish make
  // sums of -0 on the way.
  std::uint64_t seed = 32000;
  std::size_t negative_zeros = 0;
  for (const std::string_view name :
       {"sm90.wgmma.bf16", "sm90.wgmma.tf32", "sm90.wgmma.f16.f16", "sm90.wgmma.e5m2.f16",
        "sm90.mma.e5m2.f16", "sm90.mma.e5m2.f16.separate"})
    for (const ZeroSign sign : {ZeroSign::kept, ZeroSign::positive})
      for (const int interval : {0, 32})
        for (const float scale : {0.0F, 0x1p-120F, -1.0F}) {
          ++seed;
          const Shape shape{5, 67, 96};
          InstructionModel model = find_instruction_model(name);
          model.accumulator.zero_sign = sign;
          Operands operands(model, shape, Data::tiny, Start::none, seed);
          GemmProblem& p = operands.problem;
          const std::vector<float> c(static_cast<std::size_t>(shape.m * shape.n), -0.0F);
          p.c = c.data();
          p.promotion_interval = interval;
          const std::vector<float> scales(static_cast<std::size_t>(shape.n * 3), scale);
          if (scale != 0.0F) {
            p.scale_a = {.values = std::span(scales).first(static_cast<std::size_t>(shape.m)),
                         .k_block = 0};
            if (interval != 0) p.scale_b = {.values = scales, .k_block = interval};
          }
          const bool in_blocks = scale != 0.0F && interval != 0;
          p.c_enters = scale == 0.0F && interval == 0 ? CPlacement::accumulator
                       : in_blocks || scale == 0.0F   ? CPlacement::promoted_sum
                                                      : CPlacement::epilogue;
          INFO(name << " " << to_string(sign) << " interval " << interval << " scale " << scale);
          check_all_targets(p);
          std::vector<float> d(c.size());
          gemm(p, d);
          negative_zeros += static_cast<std::size_t>(
              std::ranges::count_if(d, [](float x) { return x == 0.0F && std::signbit(x); }));
        }
  CHECK(negative_zeros > 1000);
}
