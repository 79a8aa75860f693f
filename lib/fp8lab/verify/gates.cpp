#include "fp8lab/verify/gates.hpp"

#include <array>
#include <cmath>
#include <string>

#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

// Each rule as the file of its source has it, at these commits:
//   deepseek-ai/DeepGEMM        1169f83c test_core.py: calc_diff(out, ref) < 0.001; since moved:
//                               0274ad7b generators.py, QuantConfig.max_diff of FP8 with FP8
//   vllm-project/vllm           01065c02 assert_close(out, baseline, rtol=5e-1, atol=1.5e-1);
//                               mean |out - ref| / mean |ref| < 0.001 in every W8A8 block test
//   NVIDIA/TransformerEngine    009e6518 quantization_tols of every FP8 scheme: those of E4M3
//   pytorch/ao                  b5b95252 atol = rtol = 7e-2 for FP16 and BF16, else 2e-3
//   flashinfer-ai/flashinfer    20cd88e5 cosine_similarity > 0.99; 0f3a5b88 atol = rtol = 1e-2
//                               (its DeepGEMM wrappers: 3e-2)
//   ScalingIntelligence/KernelBench 423217d src/kernelbench/eval.py,
//                               get_tolerance_for_precision: torch.allclose
// `assert_close` passes where |out - ref| <= atol + rtol |ref|.
constexpr std::array kGates{
    Gate{"deepgemm",
         GateRule::calc_diff,
         1e-3,
         {},
         {},
         "calc_diff < 1e-3",
         "deepseek-ai/DeepGEMM tests/generators.py (max_diff), once tests/test_core.py"},
    Gate{"vllm.scaled_mm",
         GateRule::close,
         0.0,
         {0.5, 0.15},
         {0.5, 0.15},
         "rtol 0.5, atol 0.15",
         "vllm-project/vllm tests/kernels/quantization/test_cutlass_scaled_mm.py"},
    Gate{"vllm.block_fp8",
         GateRule::mean_relative,
         1e-3,
         {},
         {},
         "mean |y - x| / mean |x| < 1e-3",
         "vllm-project/vllm tests/kernels/quantization/test_block_fp8.py"},
    Gate{"transformer_engine",
         GateRule::close,
         0.0,
         {0.125, 0.0675},
         {0.125, 0.0675},
         "rtol 0.125, atol 0.0675",
         "NVIDIA/TransformerEngine tests/pytorch/utils.py (quantization_tols)"},
    Gate{"torchao",
         GateRule::close,
         0.0,
         {7e-2, 7e-2},
         {2e-3, 2e-3},
         "rtol = atol = 0.07, FP32 0.002",
         "pytorch/ao test/float8/test_base.py (test_scaled_mm_vs_emulated)"},
    Gate{"flashinfer.bmm",
         GateRule::cosine,
         0.99,
         {},
         {},
         "cosine > 0.99",
         "flashinfer-ai/flashinfer tests/gemm/test_bmm_fp8.py"},
    Gate{"flashinfer.groupwise",
         GateRule::close,
         0.0,
         {1e-2, 1e-2},
         {1e-2, 1e-2},
         "rtol = atol = 0.01",
         "flashinfer-ai/flashinfer tests/gemm/test_groupwise_scaled_gemm_fp8.py"},
    Gate{"kernelbench",
         GateRule::close,
         0.0,
         {1e-2, 1e-2},
         {1e-4, 1e-4},
         "rtol = atol = 0.01, FP32 1e-4",
         "ScalingIntelligence/KernelBench src/kernelbench/eval.py (get_tolerance_for_precision)"},
};

}  // namespace

std::span<const Gate> gates() { return kGates; }

const Gate& find_gate(std::string_view name) { return find_named(kGates, "gate", name); }

std::vector<Tolerance> gate_tolerances(FormatId output) {
  std::vector<Tolerance> tolerances;
  for (const Gate& gate : kGates)
    tolerances.push_back(output == FormatId::f32 ? gate.wide : gate.tolerance);
  return tolerances;
}

bool gate_passes(std::size_t index, const CodeComparison& c) {
  const Gate& gate = kGates.at(index);
  if (c.values.non_finite_mismatches > 0) return false;
  // Equal outputs without a finite pair have no figures.
  if (c.bitwise() && std::isnan(c.values.calc_diff)) return true;
  switch (gate.rule) {
    case GateRule::calc_diff:
      return c.values.calc_diff < gate.limit;
    case GateRule::mean_relative:
      return c.mean_absolute_relative < gate.limit;
    case GateRule::cosine:
      return c.values.cosine > gate.limit;
    case GateRule::close:
      return c.far.at(index) == 0;
  }
  return false;
}

}  // namespace fp8lab
