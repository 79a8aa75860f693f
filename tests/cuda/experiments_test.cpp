// Experiments on a backend against the CPU: one that agrees, one that does not, one that has
// little.

#include "cuda/tool/experiments.hpp"

#include "catch.hpp"
#include "fp8lab/gemm/backend.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

bool exact_gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm(problem, d, threads);
  return true;
}
bool wrong_gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm(problem, d, threads);
  d[0] += 1.0F;
  return true;
}
bool no_gemm(const GemmProblem&, std::span<float>, int) { return false; }

Results products(const RunContext& context) {
  Table table("sums", "Sums of ones", {{"i", "1", "which"}, {"sum", "1", "of ones"}});
  for (int i = 0; i < 3; ++i) {
    const std::vector<std::uint8_t> ones(static_cast<std::size_t>(32 + i), 0x38);
    GemmProblem problem;
    problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
    problem.a = problem.b = CodeMatrix::row_major(FormatId::e4m3fn, ones, 1, 32 + i);
    std::vector<float> d(1);
    gemm_on(context.backend, problem, d, context.threads);
    table.add_row({std::int64_t{i}, static_cast<double>(d[0])});
  }
  return {.tables = {table}, .plots = {}, .heat_maps = {}, .findings = {}};
}

/// One product of ones in BF16, under the model of its parameter.
Results reference(const RunContext& context) {
  const std::vector<std::uint16_t> ones(32, 0x3f80);
  const auto& model = context.parameters.text("bf16_accumulator");
  GemmProblem problem;
  problem.model = find_instruction_model(model).accumulator;
  problem.a = problem.b = {FormatId::bf16, ones.data(), 1, 32, 32, 1};
  std::vector<float> d(1);
  gemm_on(context.backend, problem, d, context.threads);
  Table table("sum", "Sum of ones", {{"model", "", "which"}, {"sum", "1", "of ones"}});
  table.add_row({model, static_cast<double>(d[0])});
  return {.tables = {table}, .plots = {}, .heat_maps = {}, .findings = {}};
}

constexpr Experiment kReference{"reference", "question = \"?\"\nbf16_accumulator = \"fp32\"\n",
                                reference};

constexpr Experiment kExperiment{
    "three-sums", "question = \"?\"\nrepeats = 1\n\n[quick]\nrepeats = 1\n", products};

}  // namespace

TEST_CASE("an experiment's tables on a backend are compared with the CPU's", "[cuda]") {
  const CheckRow right = compare_experiment(kExperiment, {"agrees", exact_gemm, {}}, 1, true);
  CHECK(right.name == "three-sums on agrees");
  CHECK(right.cases == 4);  // the names of the columns too
  CHECK(right.mismatches == 0);
  CHECK_THAT(right.note, contains("3 of 3 products and no casts ran there"));
  CHECK(compare_experiment(kExperiment, {"differs", wrong_gemm, {}}, 1, true).mismatches == 3);
  const CheckRow none = compare_experiment(kExperiment, {"has nothing", no_gemm, {}}, 1, true);
  CHECK(none.mismatches == 0);
  CHECK_THAT(none.note, contains("0 of 3 products"));
}

TEST_CASE("BF16 references of an experiment are summed as the chip sums them", "[cuda]") {
  const CheckRow row = compare_experiment(kReference, {"agrees", exact_gemm, {}}, 1, false);
  CHECK(row.mismatches == 0);
  CHECK_THAT(row.note, contains("1 of 1 products"));
  const auto chip = [](const GemmProblem& problem, std::span<float> d, int threads) {
    if (problem.model != find_instruction_model("sm90.wgmma.bf16").accumulator) return false;
    gemm(problem, d, threads);
    return true;
  };
  CHECK(what_ran(kReference, {"chip", chip, {}}, 1, false).products == 1);
}
