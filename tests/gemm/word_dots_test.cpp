// Steps of 32-bit integers with lanes along k, which few rows take: against gemm_reference, bit for
// bit, on every target.

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// One model of every storage, length of a step, and end of a step.
constexpr std::string_view kModels[] = {
    "sm70.mma.f16",       "sm70.mma.f16.f16",      "sm80.mma.f16",          "sm80.mma.f16.f16",
    "sm90.mma.f16",       "sm90.mma.f16.f16",      "sm80.mma.bf16",         "sm100.tcgen05.bf16",
    "sm80.mma.tf32",      "sm90.mma.tf32",         "sm100.tcgen05.tf32",    "sm100.tcgen05.e4m3",
    "sm120.mma.e5m2.f16", "sm100.tcgen05.f16.f16", "gfx942.mfma.f16",       "gfx942.mfma.bf16",
    "gfx942.mfma.xf32",   "gfx942.mfma.fp8",       "gfx942.mfma.bf8.fp8",   "sm90.mma.e4m3",
    "sm90.mma.e5m2.f16",  "sm100.mma.e4m3",        "sm90.mma.e4m3.separate"};

bool runs_along_k(const GemmProblem& p) {
  using namespace gemm_detail;
  return plan_method(MethodRequest(p))->form().word_dots.used();
}

}  // namespace

TEST_CASE("word dots: few rows run along k", "[gemm][word_dots]") {
  const auto of = [](std::string_view name, std::int64_t rows) {
    GemmProblem p = problem_of(find_instruction_model(name));
    p.a.rows = rows;
    p.b.rows = 512;
    return runs_along_k(p);
  };
  for (const InstructionModel& model : instruction_models()) {
    const std::string_view method = gemm_method(problem_of(model));
    if (method != "fused words" && method != "two stages") continue;
    INFO(model.name);
    // FP16 has no room for the largest numbers of E5M2FNUZ.
    CHECK(of(model.name, 1) == (model.b_format != FormatId::e5m2fnuz));
  }
  CHECK(of("sm90.mma.f16", 8));
  CHECK(of("sm100.tcgen05.e4m3", 8));
  CHECK(of("gfx942.mfma.fp8", 8));
  CHECK(of("gfx942.mfma.bf16", 4));
  CHECK(!of("gfx942.mfma.bf16", 5));
  CHECK(of("sm80.mma.tf32", 2));
  CHECK(!of("sm80.mma.tf32", 3));
  CHECK(!of("sm90.mma.f16", 9));
}

TEST_CASE("word dots: all data, C and shapes keep the reference's bits", "[gemm][word_dots]") {
  std::uint64_t seed = 21000;
  for (const std::string_view name : kModels)
    for (const Data data : {Data::normal, Data::wide, Data::codes, Data::finite, Data::sparse,
                            Data::specials, Data::tiny})
      for (const Start start : {Start::none, Start::wide, Start::extreme, Start::tiny}) {
        ++seed;
        // B with rows apart, and column-major; one panel that is not full, or several.
        const auto draw = static_cast<std::int64_t>(seed);
        const Shape shape{1 + draw % 2, 128 + draw * 7 % 90, 1 + draw * 13 % 100};
        INFO(name << " seed " << seed << " data " << static_cast<int>(data) << " start "
                  << static_cast<int>(start) << " shape " << shape.m << "x" << shape.n << "x"
                  << shape.k);
        const Operands operands(find_instruction_model(name), shape, data, start, seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("word dots: rows, slabs and promotion keep the reference's bits", "[gemm][word_dots]") {
  const SweepShare share;
  std::uint64_t seed = 23000;
  for (const std::string_view name : kModels)
    for (const std::int64_t interval : {0, 128})
      for (const std::int64_t rows : {1, 3, 8}) {
        if (!share.takes_one_in(4, "rows of word dots", ++seed)) continue;
        // Longer than what is read at a time, and not whole steps.
        const Shape shape{rows, rows * 64 + 5, 1100 - 7 * rows};
        INFO(name << " rows " << rows << " interval " << interval << " seed " << seed);
        Operands operands(find_instruction_model(name), shape, Data::normal,
                          seed % 2 == 0 ? Start::none : Start::normal, seed);
        operands.problem.promotion_interval = interval;
        check_all_targets(operands.problem);
      }
}

TEST_CASE("word dots: steps of every length keep the reference's bits", "[gemm][word_dots]") {
  std::uint64_t seed = 24000;
  for (const std::string_view name :
       {"sm100.tcgen05.e4m3", "sm90.mma.f16", "sm90.mma.bf16.f16", "sm100.tcgen05.tf32"})
    for (int terms = 1; terms <= 32; ++terms)
      for (const int fraction : {13, 25}) {
        ++seed;
        const bool half = name == "sm90.mma.bf16.f16";
        InstructionModel model = find_instruction_model(half ? "sm90.mma.f16.f16" : name);
        model.accumulator.terms = terms;
        model.accumulator.alignment_fraction_bits = fraction;
        // All products as large as can be: sums that just fit.
        Operands operands(model, {2, 130, 2 * terms + 1}, Data::positive, Start::none, seed);
        INFO(name << " terms " << terms << " F " << fraction << " seed " << seed);
        for (unsigned char& byte : operands.b.bytes)
          if (model.b_format == FormatId::e4m3fn) byte = byte % 2 == 0 ? 0x7e : 0x6f;
        for (unsigned char& byte : operands.a.bytes)
          if (model.a_format == FormatId::e4m3fn) byte = byte % 3 == 0 ? 0x7e : 0x77;
        check_all_targets(operands.problem);
      }
}
