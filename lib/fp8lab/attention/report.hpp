#pragma once
// Attention on tensors as users have them (floats, or codes with scales), and how far it is
// from FP64: what `fp8lab attn` prints and `fp8lab.attention` returns.

#include <memory>
#include <span>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/metrics/comparison.hpp"

namespace fp8lab {

/// One of Q, K and V: the codes, and the floats that were quantized or stand for them.
struct AttentionTensor {
  AttentionOperand operand;  ///< points into `owned`, or where the caller's codes are
  std::vector<float> values;
  std::shared_ptr<const QuantizedHeads> owned{};  ///< null for codes of the caller's
};

/// Floats [heads, rows, columns], quantized by `quantize_heads`.
AttentionTensor attention_tensor(std::vector<float> values, std::int64_t heads, std::int64_t rows,
                                 std::int64_t columns);

/// Codes that stay where they are. Their values are `dequantize(codes)`.
AttentionTensor attention_tensor(const AttentionOperand& codes);

/// One inverse scale a head from none (all 1), one for all, or as many as heads; `argument` is
/// what another number is reported as. Throws `Error`.
std::vector<float> inverse_scales_of_heads(std::string_view argument, std::vector<float> values,
                                           std::int64_t heads);

struct AttentionReport {
  AttentionResult result;
  AttentionTile total;        ///< over all tiles
  Comparison against_codes;   ///< the arithmetic: FP64 on the values of the codes
  Comparison against_inputs;  ///< all of it: FP64 on the tensors as given
};

/// `attention` with its errors. Throws `Error` as that does.
AttentionReport attention_report(const AttentionTensor& q, const AttentionTensor& k,
                                 const AttentionTensor& v, const AttentionOptions& options);

}  // namespace fp8lab
