#include "chip_products.hpp"

#include "fp8lab/gemm/c_placement.hpp"

namespace fp8lab::cuda {
namespace {

bool is_fp8(FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; }

}  // namespace

bool has_tensor_core_product(const GemmProblem& problem) {
  static const AccumulatorModel kChip = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  return problem.model == kChip && is_fp8(problem.a.format) && is_fp8(problem.b.format) &&
         gemm_detail::enters_in_passing(problem);
}

}  // namespace fp8lab::cuda
