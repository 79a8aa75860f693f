// Exact sums with lanes along k, which few rows take: against gemm_reference, bit for bit, on every
// target.

#include "catch.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr FormatId kOperandFormats[] = {FormatId::e4m3fn,   FormatId::e5m2, FormatId::e4m3fnuz,
                                        FormatId::e5m2fnuz, FormatId::e2m1, FormatId::f16,
                                        FormatId::bf16,     FormatId::tf32};

bool runs_along_k(std::string_view name, std::int64_t rows, std::int64_t interval) {
  using namespace gemm_detail;
  GemmProblem p = problem_of(find_instruction_model(name));
  p.a.rows = rows;
  p.b.rows = 512;
  p.promotion_interval = interval;
  return plan_method(MethodRequest(p))->form().lines;
}

}  // namespace

TEST_CASE("exact sums of few rows run along k", "[gemm][lines]") {
  CHECK(runs_along_k("exact", 1, 0));
  CHECK(runs_along_k("exact", 8, 128));
  CHECK(!runs_along_k("exact", 9, 0));
  CHECK(!runs_along_k("exact", 1, 48));  // steps of 32 terms do not fit
  CHECK(runs_along_k("exact32", 4, 0));
  CHECK(!runs_along_k("exact32", 5, 0));
  CHECK(!runs_along_k("sequential14.rne", 1, 0));
}

TEST_CASE("exact sums along k: all data, formats, C and shapes keep the reference's bits",
          "[gemm][lines]") {
  std::uint64_t seed = 41000;
  for (const std::string_view name : {"exact", "exact32"})
    for (const FormatId format : kOperandFormats)
      for (const Data data : {Data::normal, Data::wide, Data::codes, Data::finite, Data::sparse,
                              Data::specials, Data::tiny})
        for (const Start start : {Start::none, Start::normal, Start::extreme}) {
          ++seed;
          // B with rows apart, and column-major; one panel that is not full, or several.
          const auto draw = static_cast<std::int64_t>(seed);
          const Shape shape{1 + draw % 2, 128 + draw * 7 % 40, 1 + draw * 13 % 100};
          INFO(name << " on " << fp8lab::format(format).name << " seed " << seed << " data "
                    << static_cast<int>(data) << " start " << static_cast<int>(start) << " shape "
                    << shape.m << "x" << shape.n << "x" << shape.k);
          const Operands operands(with_formats(name, format, format), shape, data, start, seed);
          check_all_targets(operands.problem);
        }
}

TEST_CASE("exact sums along k: rows, slabs and promotion keep the reference's bits",
          "[gemm][lines]") {
  const SweepShare share;
  std::uint64_t seed = 43000;
  for (const std::string_view name : {"exact", "exact32"})
    for (const FormatId format : {FormatId::e4m3fn, FormatId::f16})
      for (const std::int64_t interval : {0, 128})
        for (std::int64_t rows = 1; rows <= 8; ++rows) {  // fours, twos and ones
          if (!share.takes_one_in(4, "rows of sums along k", ++seed)) continue;
          // Longer than what is read at a time, and not whole steps.
          const Shape shape{rows, rows * 64 + 5, 1100 - 7 * rows};
          INFO(name << " on " << fp8lab::format(format).name << " rows " << rows << " interval "
                    << interval << " seed " << seed);
          Operands operands(with_formats(name, format, format), shape, Data::normal,
                            seed % 2 == 0 ? Start::none : Start::normal, seed);
          operands.problem.promotion_interval = interval;
          check_all_targets(operands.problem);
        }
}
