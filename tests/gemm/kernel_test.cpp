// Every vector kernel against gemm_reference, bit for bit, on every target.

#include <xmmintrin.h>

#include <cfenv>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

struct Shape {
  std::int64_t m, n, k;
};

/// Runs the problem on every target with one and three threads.
void check_all_targets(const GemmProblem& p) {
  const auto size = static_cast<std::size_t>(p.a.rows * p.b.rows);
  std::vector<float> expected(size);
  gemm_reference(p, expected);
  for (const Target target : available_targets()) {
    for (const int threads : {1, 3}) {
      std::vector<float> got(size, 42.0F);
      gemm_with_target(p, got, target, threads);
      INFO(to_string(target) << ", " << threads << " threads, " << gemm_method(p));
      CHECK(compare(p, expected, got) == "equal");
    }
  }
}

struct Operands {
  OwnedMatrix a;
  OwnedMatrix b;
  std::vector<float> c;
  GemmProblem problem;

  Operands(const InstructionModel& model, Shape shape, Data data, Start start, std::uint64_t seed)
      : a(model.a_format, shape.m, shape.k, data, RandomStream(seed, "a"), seed % 3 == 1),
        b(model.b_format, shape.n, shape.k, data, RandomStream(seed, "b"), seed % 3 == 2),
        c(random_c(start, shape.m * shape.n, RandomStream(seed, "c"))) {
    problem.model = model.accumulator;
    problem.a = a.view;
    problem.b = b.view;
    if (start != Start::none) problem.c = c.data();
  }
};

InstructionModel with_formats(std::string_view name, FormatId a, FormatId b) {
  InstructionModel model = find_instruction_model(name);
  model.a_format = a;
  model.b_format = b;
  return model;
}

}  // namespace

TEST_CASE("every registered model has the reference's bits on every target", "[gemm]") {
  std::uint64_t seed = 0;
  for (const InstructionModel& model : instruction_models()) {
    for (const Data data : kAllData) {
      for (const Start start : {Start::none, Start::normal, Start::wide, Start::extreme}) {
        ++seed;
        const Shape shape{static_cast<std::int64_t>(seed % 11), 1 + static_cast<std::int64_t>(seed * 7 % 70),
                          1 + static_cast<std::int64_t>(seed * 13 % 100)};
        INFO(model.name << " seed " << seed << " data " << static_cast<int>(data) << " start "
                        << static_cast<int>(start) << " shape " << shape.m << "x" << shape.n << "x"
                        << shape.k);
        const Operands operands(model, shape, data, start, seed);
        check_all_targets(operands.problem);
      }
    }
  }
}
