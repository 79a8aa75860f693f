#pragma once
// The operations of one transformer block and their FLOPs: the table of 14 rows
// that the FP8 guide (docs/sources.md) gives for a gated block, computed for a shape.

#include <string>
#include <string_view>
#include <vector>

#include "training/model/shape.hpp"

namespace fp8lab {

/// One row: the forward FLOPs of one sequence. A multiplication is one FLOP, an addition another.
struct BlockOperation {
  std::string_view name;
  double gemm_flops = 0.0;   ///< 2 m n k
  double other_flops = 0.0;  ///< see `block_operations`
  bool listed_fp8 = false;   ///< the FP8 guide calls it an FP8 GEMM
  /// TransformerEngine and DeepSeek-V3 run it in FP8: GEMMs with a weight, but neither
  /// the products inside attention nor the router.
  bool deployed_fp8 = false;

  [[nodiscard]] double flops() const;
};

/// Which pairs of tokens attention counts.
enum class AttentionCount {
  full,    ///< all s^2, as the FP8 guide does
  causal,  ///< s (s + 1) / 2: a token and those before it, which is what causal kernels compute
};

/// The rows in order: 14 for a gated block, one fewer without a gate, one more
/// with a router. Apart from GEMMs, each element costs 7 FLOPs in a norm (mean, centre,
/// square, sum, divide, gain, bias), 6 in a softmax (scale, max, subtract, exp, sum, divide),
/// 5 in SiLU(gate) * up or another activation (*chosen*), and 1 in an addition.
std::vector<BlockOperation> block_operations(const ModelShape& shape,
                                             AttentionCount attention = AttentionCount::full);

/// Which GEMMs count as FP8.
enum class Fp8Gemms { listed, deployed };

/// FLOPs in FP8 divided by all FLOPs of a block, 0 to 1.
double fp8_share(const std::vector<BlockOperation>& operations, Fp8Gemms which);
/// FLOPs of all GEMMs divided by all FLOPs of a block, 0 to 1.
double gemm_share(const std::vector<BlockOperation>& operations);

}  // namespace fp8lab
