#include "training/model/block.hpp"

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

constexpr double kNormFlops = 7.0;
constexpr double kSoftmaxFlops = 6.0;
constexpr double kActivationFlops = 5.0;

}  // namespace

double BlockOperation::flops() const {
  const FloatEnvironment environment;
  return gemm_flops + other_flops;
}

std::vector<BlockOperation> block_operations(const ModelShape& shape, AttentionCount attention) {
  const FloatEnvironment environment;
  const auto s = static_cast<double>(shape.sequence);
  const auto h = static_cast<double>(shape.hidden);
  const auto kv = static_cast<double>(shape.kv_size());
  const auto heads = static_cast<double>(shape.heads);
  const auto f = static_cast<double>(shape.ffn * shape.active_experts);
  const double pairs = attention == AttentionCount::causal ? s * (s + 1.0) / 2.0 : s * s;
  const auto gemm = [](std::string_view name, double flops) {
    return BlockOperation{name, flops, 0.0, true, true};
  };
  const auto other = [](std::string_view name, double flops) {
    return BlockOperation{name, 0.0, flops, false, false};
  };
  std::vector<BlockOperation> rows{
      other("norm", kNormFlops * s * h),
      gemm("Q = x W_q", 2.0 * s * h * h),
      gemm("K = x W_k", 2.0 * s * h * kv),
      gemm("V = x W_v", 2.0 * s * h * kv),
      {"softmax(Q K^T)", 2.0 * pairs * h, kSoftmaxFlops * pairs * heads, false, false},
      {"attention V", 2.0 * pairs * h, 0.0, true, false},
      gemm("projection = x W_o", 2.0 * s * h * h),
      other("residual add", s * h),
      other("norm", kNormFlops * s * h)};
  if (shape.experts > 1)
    rows.push_back({"router", 2.0 * s * h * static_cast<double>(shape.experts), 0.0, false, false});
  rows.push_back(gemm("up = x W_up", 2.0 * s * h * f));
  if (shape.gated) rows.push_back(gemm("gate = x W_gate", 2.0 * s * h * f));
  rows.push_back(other(shape.gated ? "SiLU(gate) up" : "activation", kActivationFlops * s * f));
  rows.push_back(gemm("down = x W_down", 2.0 * s * h * f));
  rows.push_back(other("residual add", s * h));
  return rows;
}

double fp8_share(const std::vector<BlockOperation>& operations, Fp8Gemms which) {
  const FloatEnvironment environment;
  double fp8 = 0.0;
  double all = 0.0;
  for (const BlockOperation& operation : operations) {
    const bool counts = which == Fp8Gemms::listed ? operation.listed_fp8 : operation.deployed_fp8;
    fp8 += counts ? operation.flops() : 0.0;
    all += operation.flops();
  }
  return fp8 / all;
}

double gemm_share(const std::vector<BlockOperation>& operations) {
  const FloatEnvironment environment;
  double gemm = 0.0;
  double all = 0.0;
  for (const BlockOperation& operation : operations) {
    gemm += operation.gemm_flops;
    all += operation.flops();
  }
  return gemm / all;
}

}  // namespace fp8lab
