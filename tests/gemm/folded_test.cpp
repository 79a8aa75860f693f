// Panels whose vectors several rows of A share, since columns fill a part of them, and rows of A
// that are packed slab by slab: against gemm_reference, bit for bit, on every target.

#include <array>

#include "catch.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Fused steps of 16 and 32 terms, in binary32 and binary64, with each end.
constexpr std::string_view kFoldedModels[] = {
    "sm90.wgmma.e4m3", "sm90.wgmma.e5m2",      "sm90.wgmma.e4m3.f16", "sm89.mma.e4m3",
    "sm89.mma.e5m2",   "sm90.mma.f16",         "sm90.wgmma.bf16",     "sm100.tcgen05.e4m3",
    "sm90.mma.e4m3",   "sm100.tcgen05.f16.f16"};

std::int64_t fold_of(std::string_view model, std::int64_t rows, std::int64_t columns,
                     Target target) {
  using namespace gemm_detail;
  GemmProblem p = problem_of(find_instruction_model(model));
  p.a.rows = rows;
  p.b.rows = columns;
  const MethodRequest request(p);
  MethodPtr method = plan_method(request);
  while (MethodPtr faster = method->for_target(request, target)) method = std::move(faster);
  return method->form().fold;
}

}  // namespace

TEST_CASE("folded panels: as many rows share one as its columns leave room for", "[gemm][folded]") {
  struct Expected {
    std::string_view model;
    std::int64_t rows, columns, avx2, avx512;
  };
  constexpr std::array<Expected, 14> kExpected{{{"sm90.wgmma.e4m3", 16, 16, 2, 4},
                                                {"sm90.wgmma.e4m3", 16, 9, 2, 4},
                                                {"sm90.wgmma.e4m3", 16, 17, 1, 2},
                                                {"sm90.wgmma.e4m3", 16, 32, 1, 2},
                                                {"sm90.wgmma.e4m3", 16, 33, 1, 1},
                                                // Along k.
                                                {"sm90.wgmma.e4m3", 16, 8, 1, 1},
                                                {"sm90.wgmma.e4m3", 4, 256, 1, 1},
                                                {"sm89.mma.e4m3", 16, 16, 2, 4},
                                                {"sm100.tcgen05.e4m3", 64, 16, 1, 2},
                                                {"sm90.mma.f16", 9, 16, 1, 2},
                                                {"sm90.mma.f16", 9, 17, 1, 1},
                                                // Eight terms; no panel of such steps; scales.
                                                {"sm80.mma.f16", 9, 16, 1, 1},
                                                {"sequential14.rz", 9, 16, 1, 1},
                                                {"sm120.mma.mxf8f6f4.e4m3", 9, 16, 1, 1}}};
  for (const Target target : available_targets()) {
    if (target == Target::scalar) continue;
    for (const Expected& e : kExpected) {
      INFO(to_string(target) << " " << e.model << " " << e.rows << " x " << e.columns);
      const std::int64_t expected = target == Target::avx2     ? e.avx2
                                    : target == Target::avx512 ? e.avx512
                                                               : 1;
      CHECK(fold_of(e.model, e.rows, e.columns, target) == expected);
    }
  }
}

TEST_CASE("folded panels: all data, C and shapes keep the reference's bits", "[gemm][folded]") {
  const SweepShare share;
  std::uint64_t seed = 51000;
  for (const std::string_view name : kFoldedModels)
    for (const Data data : {Data::normal, Data::wide, Data::codes, Data::finite, Data::sparse,
                            Data::specials, Data::tiny, Data::ends})
      for (const Start start : {Start::none, Start::wide, Start::extreme, Start::tiny}) {
        ++seed;
        if (!share.takes_one_in(2, "folded panels", seed)) continue;
        const auto draw = static_cast<std::int64_t>(seed);
        const Shape shape{2 + draw * 7 % 31, 1 + draw * 13 % 33, 1 + draw * 17 % 150};
        INFO(name << " seed " << seed << " data " << static_cast<int>(data) << " start "
                  << static_cast<int>(start) << " shape " << shape.m << "x" << shape.n << "x"
                  << shape.k);
        const Operands operands(find_instruction_model(name), shape, data, start, seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("folded panels: rows, slabs, promotion and scales keep the reference's bits",
          "[gemm][folded]") {
  const SweepShare share;
  std::uint64_t seed = 52000;
  for (const std::string_view name : kFoldedModels)
    for (const std::int64_t interval : {0, 128})
      for (const bool scaled : {false, true})
        for (const std::int64_t rows : {5, 16, 47}) {
          if (!share.takes_one_in(4, "rows of folded panels", ++seed)) continue;
          // Longer than what is read at a time, and not whole steps.
          const Shape shape{rows, 12 + rows % 7, 1100 - 7 * rows};
          INFO(name << " rows " << rows << " interval " << interval << " scaled " << scaled
                    << " seed " << seed);
          Operands operands(find_instruction_model(name), shape, Data::normal,
                            seed % 2 == 0 ? Start::none : Start::normal, seed);
          GemmProblem& p = operands.problem;
          p.promotion_interval = interval;
          const std::int64_t blocks = interval == 0 ? 1 : (shape.k + interval - 1) / interval;
          const auto scale_a =
              random_c(Start::normal, shape.m * blocks, RandomStream(seed, "scales of a"));
          const auto scale_b =
              random_c(Start::normal, shape.n * blocks, RandomStream(seed, "scales of b"));
          if (scaled) {
            p.scale_a = {scale_a, 1, interval};
            p.scale_b = {scale_b, 1, interval};
          }
          check_all_targets(p);
        }
}

TEST_CASE("rows packed slab by slab: every model keeps the reference's bits", "[gemm][folded]") {
  const SweepShare share;
  std::uint64_t seed = 53000;
  for (const InstructionModel& model : instruction_models())
    for (const Data data : {Data::normal, Data::codes}) {
      if (!share.takes_one_in(8, "slabs of rows", ++seed)) continue;
      // Blocks of 64 rows, the last one not full; more than a slab of terms, the last one not full.
      // Columns cost what rows do: one in eight has more than the widest panel.
      const auto columns = static_cast<std::int64_t>(seed % 8 == 0 ? 79 : 17 + seed % 24);
      const Shape shape{70, columns, 1037};
      INFO(model.name << " seed " << seed << " shape " << shape.m << "x" << shape.n << "x"
                      << shape.k);
      const Operands operands(model, shape, data, Start::normal, seed);
      check_all_targets(operands.problem);
    }
}
