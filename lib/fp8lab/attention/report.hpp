#pragma once
// Attention on a user's tensors (floats, or codes with scales), and its errors against FP64, as
// `fp8lab attn` prints and `fp8lab.attention` returns them.

#include <memory>
#include <span>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/metrics/comparison.hpp"

namespace fp8lab {

/// One of Q, K and V: the codes, and the floats that were quantized or the values of the codes.
struct AttentionTensor {
  AttentionOperand operand;  ///< a view of `owned`, or of the caller's codes
  std::vector<float> values;
  std::shared_ptr<const QuantizedHeads> owned{};  ///< null if the caller owns the codes
};

/// Floats [heads, rows, columns], quantized by `quantize_heads`.
AttentionTensor attention_tensor(std::vector<float> values, std::int64_t heads, std::int64_t rows,
                                 std::int64_t columns);

/// A view of codes, without a copy. Their values are `dequantize(codes)`.
AttentionTensor attention_tensor(const AttentionOperand& codes);

/// One inverse scale per head, from no value (all 1), one for all, or one per head. Throws `Error`
/// that names `argument` for another number.
std::vector<float> inverse_scales_of_heads(std::string_view argument, std::vector<float> values,
                                           std::int64_t heads);

struct AttentionReport {
  AttentionResult result;
  AttentionTile total;        ///< over all tiles
  Comparison against_codes;   ///< error of the arithmetic: FP64 on the values of the codes
  Comparison against_inputs;  ///< total error: FP64 on the given tensors
};

/// `attention` with its errors. Throws `Error` as `attention`.
AttentionReport attention_report(const AttentionTensor& q, const AttentionTensor& k,
                                 const AttentionTensor& v, const AttentionOptions& options);

}  // namespace fp8lab
