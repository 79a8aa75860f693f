#include "fp8lab/gemm/gemm.hpp"

#include <algorithm>
#include <array>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "fp8lab/gemm/driver.hpp"
#include "fp8lab/gemm/halves.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/run.hpp"
#include "fp8lab/gemm/transposed.hpp"

namespace fp8lab {
namespace gemm_detail {
namespace {

/// A product that is computed by way of others, which methods are planned for.
struct Transform {
  bool (*applies)(const GemmProblem&);
  std::string_view (*run)(const GemmProblem&, std::span<float>, Target, int);
};

/// The first one that applies is used.
constexpr std::array<Transform, 3> kTransforms{
    Transform{[](const GemmProblem& p) { return !enters_in_passing(p); }, gemm_with_c},
    Transform{runs_turned, gemm_turned}, Transform{runs_by_halves, gemm_by_halves}};

}  // namespace
}  // namespace gemm_detail

std::string_view run_gemm(const GemmProblem& problem, std::span<float> d, Target target,
                          int threads) {
  using namespace gemm_detail;
  const BlockScaleRows scales = validated_scales(problem, d.size());
  require_available(target);
  threads = team_size(threads);
  const bool has_kernels = kernel_table(target) != nullptr && !d.empty() && problem.a.k != 0;
  if (has_kernels) {
    for (const Transform& transform : kTransforms)
      if (transform.applies(problem)) return transform.run(problem, d, target, threads);
    if (const MethodPtr method = plan_for_data(MethodRequest(problem), scales, target, threads)) {
      const GemmProblem rest = without_unit_scales(problem);
      const bool by_unit = traits_of(problem.model).takes_scales;
      run_planned({.problem = rest,
                   .specified = rest,
                   .method = *method,
                   .unit_scales = by_unit ? &scales : nullptr},
                  d, target, threads);
      return method->name();
    }
  }
  gemm_reference(problem, d, threads);
  return kMethodOfReference;
}

void gemm_with_target(const GemmProblem& problem, std::span<float> d, Target target, int threads) {
  run_gemm(problem, d, target, threads);
}

void gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  run_gemm(problem, d, current_target(), threads);
}

std::string_view gemm_method(const GemmProblem& problem) {
  using namespace gemm_detail;
  if (runs_by_halves(problem)) return kMethodOfHalves;
  const MethodPtr method = plan_method(MethodRequest(problem));
  return method ? method->name() : kMethodOfReference;
}

}  // namespace fp8lab
