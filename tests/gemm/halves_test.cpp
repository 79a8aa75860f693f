// Products by FP16 halves: the kernels' steps against the model's own definition.

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::vector<std::uint32_t> codes_of(const CodeMatrix& matrix, std::int64_t row) {
  std::vector<std::uint32_t> codes;
  for (std::int64_t k = 0; k < matrix.k; ++k) codes.push_back(code_at(matrix, row, k));
  return codes;
}

}  // namespace

TEST_CASE("halves on kernels equal dot products, whatever the formats, K and C", "[gemm]") {
  using enum FormatId;
  const SweepShare share;
  std::uint64_t seed = 7000;
  const auto check = [&](const char* name, FormatId a, FormatId b, std::int64_t k, Data data,
                         Start start) {
    if (!share.takes_one_in(4, "halves", ++seed)) return;
    const Operands operands(with_formats(name, a, b), {3, 19, k}, data, start, seed);
    const GemmProblem& p = operands.problem;
    std::vector<float> expected;
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 19; ++j)
        expected.push_back(dot_product(p.model, a, codes_of(p.a, i), b, codes_of(p.b, j),
                                       p.c == nullptr ? 0.0F : p.c[i * 19 + j]));
    REQUIRE(gemm_method(p) == "fp16 halves");
    for (const Target target : available_targets()) {
      std::vector<float> got(expected.size());
      gemm_with_target(p, got, target, 1 + static_cast<int>(seed % 2));
      INFO(name << " " << to_string(target) << " " << format(a).name << " x " << format(b).name
                << " k " << k << " seed " << seed);
      CHECK(compare(p, expected, got) == "equal");
    }
  };
  for (const char* name : {"sm90.mma.e4m3", "sm90.mma.e4m3.f16", "sm90.mma.e4m3.separate",
                           "sm90.mma.e4m3.f16.separate"})
    for (const FormatId a : {e4m3fn, e5m2})
      for (const FormatId b : {e4m3fn, e5m2})
        for (const std::int64_t k : {1, 2, 15, 31, 32, 33, 64, 95, 160}) {
          // The others differ from the first in how sums meet, not in how K is cut.
          if (std::string_view(name) != "sm90.mma.e4m3" && k != 31 && k != 33 && k != 160) continue;
          for (const Data data : {Data::normal, Data::positive, Data::wide, Data::codes,
                                  Data::finite, Data::sparse, Data::specials, Data::tiny})
            for (const Start start :
                 {Start::none, Start::normal, Start::wide, Start::extreme, Start::tiny})
              check(name, a, b, k, data, start);
        }
}

TEST_CASE("halves promoted after every instruction keep the reference's bits", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 7900;
  for (const char* name : {"sm90.mma.e4m3", "sm90.mma.e5m2.f16", "sm90.mma.e5m2.separate",
                           "sm90.mma.e4m3.f16.separate"})
    for (const std::int64_t interval : {32, 64})
      for (const std::int64_t rows : {1, 5, 20})
        for (const Data data : {Data::normal, Data::codes, Data::finite}) {
          if (!share.takes_one_in(3, "promoted halves", ++seed)) continue;
          Operands operands(find_instruction_model(name), {rows, 133, 197}, data, Start::normal,
                            seed);
          operands.problem.promotion_interval = interval;
          INFO(name << " promotion " << interval << " rows " << rows << " seed " << seed);
          check_all_targets(operands.problem);
        }
}

TEST_CASE("halves with other bits in their steps keep the reference's bits", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 8000;
  for (const int terms : {4, 16, 32, 60, 64, 128})
    for (const int alignment : {13, 23, 36, 50})
      for (const RoundingMode rounding : {RoundingMode::toward_zero, RoundingMode::nearest_even})
        for (const std::int64_t instructions : {0, 1, 2, 5}) {
          if (!share.takes_one_in(4, "halves of other bits", ++seed)) continue;
          InstructionModel model =
              find_instruction_model(seed % 3 == 0 ? "sm90.mma.e5m2.separate" : "sm100.mma.e5m2");
          model.accumulator.terms = terms;
          model.accumulator.alignment_fraction_bits = alignment;
          model.accumulator.rounding = rounding;
          Operands operands(model, {5, 34, 333}, seed % 2 == 0 ? Data::finite : Data::specials,
                            Start::wide, seed);
          operands.problem.promotion_interval = instructions * terms;
          INFO("terms " << terms << " F " << alignment << " " << to_string(rounding)
                        << " promotion " << operands.problem.promotion_interval);
          check_all_targets(operands.problem);
        }
}

TEST_CASE("scales whose block is longer than K stay on a K that is filled up", "[gemm]") {
  Operands operands(find_instruction_model("sm100.mma.e4m3"), {4, 33, 37}, Data::normal,
                    Start::normal, 3);
  const std::vector<float> scales{0.5F, 3.0F, 0.75F, 1e-20F};
  GemmProblem& p = operands.problem;
  for (const std::int64_t k_block : {0, 37, 50}) {
    p.scale_a = {scales, 1, k_block};
    check_all_targets(p);
    p.promotion_interval = 64;
    check_all_targets(p);
    p.promotion_interval = 0;
  }
  std::vector<float> columns;
  for (int j = 0; j < 33; ++j) columns.push_back(0.3F * static_cast<float>(j + 1));
  for (const bool both : {false, true})
    for (const std::int64_t k_block : {0, 37, 50}) {
      p.scale_a = {};
      if (both) p.scale_a = {scales, 1, 0};
      p.scale_b = {columns, 1, k_block};
      for (const std::int64_t interval : {0, 64}) {
        INFO("both " << both << " k_block " << k_block << " interval " << interval);
        p.promotion_interval = interval;
        check_all_targets(p);
      }
    }
}

TEST_CASE("halves of few rows take columns in parts, with their scales and C", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 9000;
  for (const std::string_view name : {"sm90.mma.e4m3", "sm90.mma.e5m2.f16.separate"})
    for (const Shape shape : {Shape{1, 129, 40}, Shape{3, 300, 96}, Shape{8, 256, 64}})
      for (const std::int64_t row_block : {1, 64, 128, 300, 96})
        for (const std::int64_t k_block : {0, 32}) {
          if (!share.takes_one_in(3, "halves of few rows", ++seed)) continue;
          Operands operands(find_instruction_model(name), shape, Data::normal,
                            seed % 2 == 0 ? Start::normal : Start::none, seed);
          GemmProblem& p = operands.problem;
          const RandomStream random(seed, "scales");
          std::vector<float> values;
          for (std::uint64_t i = 0; i < 300 * 3; ++i)
            values.push_back(static_cast<float>(std::exp2(random.normal(i))));
          const std::int64_t tiles = k_block == 0 ? 1 : (shape.k + k_block - 1) / k_block;
          const std::int64_t blocks = (shape.n + row_block - 1) / row_block;
          p.scale_b = {std::span(values).first(static_cast<std::size_t>(blocks * tiles)), row_block,
                       k_block};
          if (k_block != 0) p.promotion_interval = 32;
          if (p.c != nullptr) p.c_enters = possible_c_placements(p).front();
          INFO(name << " " << shape.m << "x" << shape.n << "x" << shape.k << " tiles " << row_block
                    << "x" << k_block << " seed " << seed);
          check_all_targets(p);
        }
}

TEST_CASE("halves refuse operands that FP16 does not hold", "[gemm]") {
  const Operands operands(with_formats("sm100.mma.e4m3", FormatId::e4m3fn, FormatId::bf16),
                          {2, 2, 8}, Data::normal, Start::none, 1);
  std::vector<float> d(4);
  CHECK_THROWS_WITH(gemm(operands.problem, d), contains("b: expected an 8-bit format"));
}
