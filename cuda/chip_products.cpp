#include "chip_products.hpp"

#include "fp8lab/gemm/c_placement.hpp"

namespace fp8lab::cuda {
namespace {

bool is_fp8(FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; }

}  // namespace

bool has_tensor_core_product(const GemmProblem& problem) {
  static const AccumulatorModel kFp8 = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  static const AccumulatorModel kBf16 = find_instruction_model("sm90.wgmma.bf16").accumulator;
  const bool fp8 = is_fp8(problem.a.format) && is_fp8(problem.b.format);
  const bool bf16 = problem.a.format == FormatId::bf16 && problem.b.format == FormatId::bf16;
  return ((fp8 && problem.model == kFp8) || (bf16 && problem.model == kBf16)) &&
         gemm_detail::enters_in_passing(problem);
}

}  // namespace fp8lab::cuda
