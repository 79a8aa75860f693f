// Scales that a block-scaled instruction applies itself: gemm against the scalar step of every
// element, with the scales' own codes.

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Scales of a matrix, and their codes.
struct Scales {
  std::vector<float> values;
  std::vector<std::uint32_t> codes;

  Scales(FormatId id, std::int64_t count, std::uint64_t seed) {
    const RandomStream stream(seed, "block scales");
    for (std::int64_t i = 0; i < count; ++i) {
      const int low = id == FormatId::e8m0fnu ? 110 : 1;
      const int range = id == FormatId::e8m0fnu ? 34 : 0x7e;
      codes.push_back(static_cast<std::uint32_t>(low) +
                      stream.bits32(static_cast<std::uint64_t>(i)) %
                          static_cast<std::uint32_t>(range));
      values.push_back(static_cast<float>(decode(format(id), codes.back())));
    }
  }
};

struct Kind {
  std::string_view model;
  FormatId format;
  int block;
};

}  // namespace

TEST_CASE("block scales enter the instruction, on every target and with promotion", "[gemm]") {
  const Shape shape{5, 6, 200};
  std::uint64_t seed = 40;
  for (const Kind& kind : {Kind{"sm100.tcgen05.mxf8f6f4.e4m3", FormatId::e8m0fnu, 32},
                           Kind{"sm120.mma.mxf8f6f4.e5m2.e4m3", FormatId::e8m0fnu, 32},
                           Kind{"sm100.tcgen05.mxf4nvf4", FormatId::e4m3fn, 16},
                           Kind{"sm100.tcgen05.mxf4nvf4", FormatId::e8m0fnu, 32}})
    for (const std::int64_t interval : {0, 128}) {
      const InstructionModel& model = find_instruction_model(kind.model);
      Operands operands(model, shape, Data::finite, Start::none, ++seed);
      GemmProblem& p = operands.problem;
      p.promotion_interval = interval;
      const std::int64_t blocks = (shape.k + kind.block - 1) / kind.block;
      const Scales a(kind.format, shape.m * blocks, seed);
      const Scales b(kind.format, shape.n * blocks, seed + 1000);
      p.scale_a = {a.values, 1, kind.block};
      p.scale_b = {b.values, 1, kind.block};
      CHECK(applies_scales(p));
      check_all_targets(p);
      std::vector<float> d(static_cast<std::size_t>(shape.m * shape.n));
      gemm(p, d);
      for (std::int64_t i = 0; i < shape.m; ++i)
        for (std::int64_t j = 0; j < shape.n; ++j) {
          float expected = 0.0F;
          const std::int64_t step = interval == 0 ? shape.k : interval;
          for (std::int64_t k = 0; k < shape.k; k += step) {
            const std::int64_t end = std::min(k + step, shape.k);
            std::vector<std::uint32_t> a_codes;
            std::vector<std::uint32_t> b_codes;
            for (std::int64_t t = k; t < end; ++t) {
              a_codes.push_back(code_at(p.a, i, t));
              b_codes.push_back(code_at(p.b, j, t));
            }
            const auto part = [&](const Scales& scales, std::int64_t row) {
              return std::span(scales.codes)
                  .subspan(static_cast<std::size_t>(row * blocks + k / kind.block),
                           static_cast<std::size_t>((end - k + kind.block - 1) / kind.block));
            };
            const float sum =
                dot_product(model.accumulator, model.a_format, a_codes, model.b_format, b_codes,
                            {kind.format, kind.block, part(a, i), part(b, j)});
            expected = interval == 0 ? sum : expected + sum;
          }
          INFO(kind.model << " interval " << interval << " at " << i << ", " << j);
          CHECK(std::bit_cast<std::uint32_t>(d[static_cast<std::size_t>(i * shape.n + j)]) ==
                std::bit_cast<std::uint32_t>(expected));
        }
    }
}

TEST_CASE("block scales that the instruction does not take are said", "[gemm]") {
  Operands operands(find_instruction_model("sm100.tcgen05.mxf8f6f4.e4m3"), {2, 2, 64}, Data::normal,
                    Start::none, 9);
  GemmProblem& p = operands.problem;
  std::vector<float> d(4);
  std::vector<float> scales(4, 0.25F);
  p.scale_a = {scales, 1, 32};
  gemm(p, d);  // of one operand alone: the other one's are 1
  scales[3] = 0.3F;
  CHECK_THROWS_WITH(gemm(p, d), contains("scale_a") && contains("row 1, term 32"));
  // Every bit of a scale counts, also the last one.
  for (int bit = 0; bit < 23; ++bit) {
    INFO("fraction bit " << bit);
    scales[3] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(0.25F) | 1U << bit);
    CHECK_THROWS_WITH(gemm(p, d), contains("scale_a") && contains("row 1, term 32"));
  }
  scales[3] = 0.25F;
  p.scale_a.k_block = 16;
  const std::vector<float> finer(8, 0.25F);
  p.scale_a.values = finer;
  CHECK_FALSE(applies_scales(p));  // ordinary scales along K then, which need promotion
  CHECK_THROWS_WITH(gemm(p, d), contains("promotion_interval"));
}

TEST_CASE("a scale of a whole tensor without scales of its tiles is refused", "[gemm]") {
  const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {2, 3, 64}, Data::normal,
                          Start::none, 9);
  std::vector<float> d(6);
  const std::vector<float> one(1, 1.0F);
  for (const bool of_a : {true, false}) {
    GemmProblem p = operands.problem;
    InverseScales& scales = of_a ? p.scale_a : p.scale_b;
    scales.tensor_scale = 2.0F;
    CHECK_THROWS_WITH(gemm(p, d),
                      contains(of_a ? "scale_a.tensor_scale: expected 1 if there are no"
                                    : "scale_b.tensor_scale: expected 1 if there are no"));
    scales.values = one;
    scales.row_block = of_a ? 2 : 3;
    scales.k_block = 0;
    CHECK_NOTHROW(gemm(p, d));
  }
}

TEST_CASE("an operand without rows has no tiles, and any tensor scale", "[gemm]") {
  const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {2, 3, 64}, Data::normal,
                          Start::none, 9);
  for (const bool of_a : {true, false}) {
    GemmProblem p = operands.problem;
    (of_a ? p.a : p.b).rows = 0;
    (of_a ? p.scale_a : p.scale_b).tensor_scale = 0.0F;
    CHECK_NOTHROW(gemm(p, {}));
  }
}

TEST_CASE("tensor scales of either operand scale what a block-scaled instruction gives", "[gemm]") {
  std::uint64_t seed = 90;
  for (const Kind& kind : {Kind{"sm100.tcgen05.mxf4nvf4", FormatId::e4m3fn, 16},
                           Kind{"sm120.mma.mxf8f6f4.e5m2.e4m3", FormatId::e8m0fnu, 32}})
    for (const Shape shape : {Shape{3, 5, 100}, Shape{2, 130, 64}, Shape{20, 3, 64}})
      for (const std::int64_t interval : {0, 64})
        for (const auto& [of_a, of_b] : {std::pair{0.3F, 1.0F}, std::pair{1.0F, 0.7F},
                                         std::pair{0.3F, 1.9F}, std::pair{1.0F, 1.0F}}) {
          const InstructionModel& model = find_instruction_model(kind.model);
          ++seed;
          Operands operands(model, shape, Data::normal, Start::normal, seed);
          const std::int64_t blocks = (shape.k + kind.block - 1) / kind.block;
          const Scales a(kind.format, shape.m * blocks, seed);
          const Scales b(kind.format, shape.n * blocks, seed + 1000);
          GemmProblem plain = operands.problem;
          plain.promotion_interval = interval;
          plain.c = nullptr;
          plain.scale_a = {a.values, 1, kind.block, kind.format};
          plain.scale_b = {b.values, 1, kind.block, kind.format};
          std::vector<float> sums(operands.c.size());
          gemm_reference(plain, sums);
          for (const ScaleOrder order : scale_orders())
            for (const bool with_c : {false, true}) {
              GemmProblem p = plain;
              p.scale_a.tensor_scale = of_a;
              p.scale_b.tensor_scale = of_b;
              p.scale_order = order;
              if (with_c) p.c = operands.c.data();
              p.c_enters = CPlacement::epilogue;
              const bool scales = of_a != 1.0F || of_b != 1.0F;
              std::vector<float> expected;
              for (std::size_t i = 0; i < sums.size(); ++i) {
                const float c = with_c ? operands.c[i] : 0.0F;
                expected.push_back(scales ? scale_into(order, sums[i], of_a, of_b, c)
                                          : (with_c ? sums[i] + c : sums[i]));
              }
              std::vector<float> got(sums.size());
              gemm_reference(p, got);
              INFO(kind.model << " " << shape.m << "x" << shape.n << " interval " << interval
                              << " tensor scales " << of_a << ", " << of_b << " "
                              << to_string(order) << " C " << with_c);
              CHECK(compare(p, expected, got) == "equal");
              if (order == scale_orders()[seed % scale_orders().size()]) check_all_targets(p);
            }
        }
}

TEST_CASE("scales in tiles of several intervals are not the instruction's own", "[gemm]") {
  // With c in the accumulator the first interval of 32 terms is computed apart; the rest has scales
  // in tiles of 32 then, as the instruction's own would be.
  for (const std::string_view name : {"sm100.tcgen05.mxf8f6f4.e4m3", "sm120.mma.mxf8f6f4.e2m1"}) {
    INFO(name);
    Operands operands(find_instruction_model(name), {5, 6, 150}, Data::finite, Start::normal, 7);
    GemmProblem& p = operands.problem;
    const RandomStream stream(8, "scales of tiles");
    std::vector<float> values;
    for (std::uint64_t i = 0; i < 33; ++i)
      values.push_back(static_cast<float>(0.5 + stream.uniform(i)));
    p.promotion_interval = 32;
    p.scale_a = {std::span(values).first(15), 1, 64};
    p.scale_b = {std::span(values).last(18), 1, 64};
    for (const CPlacement place : possible_c_placements(p)) {
      p.c_enters = place;
      INFO(to_string(place));
      check_all_targets(p);
    }
  }
}
