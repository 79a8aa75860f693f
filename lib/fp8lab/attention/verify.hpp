#pragma once
// Checks an output of attention and finds the known mistake that explains a wrong one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// A known mistake, and the distance of its output from the output that is checked.
struct AttentionCause {
  std::string name;
  std::string text;
  std::int64_t mismatches = 0;  ///< outputs whose bits it does not give
  double distance = 0.0;        ///< relative L2 distance of its output from the checked one
};

struct AttentionVerdict {
  std::int64_t outputs = 0;
  std::int64_t mismatches = 0;         ///< outputs whose bits are not the golden ones
  double distance = 0.0;               ///< relative L2 distance from the golden output
  bool pass = false;                   ///< no mismatch, or the distance within the tolerance
  std::vector<AttentionCause> causes;  ///< best first; empty if no known mistake explains it

  /// A report of a few lines.
  [[nodiscard]] std::string text() const;
};

/// Compares `got` [heads, m, d_v], values of `output` (f32, bf16, f16, e4m3fn or e5m2), with
/// `attention(inputs, options)` cast to that format. `tolerance` is a relative L2 distance; 0
/// requires every bit. Kernels with another exp2 or order of row sums need a tolerance. Mistakes
/// tried: the other order of tiles, other tiles, promotion (`two_level`) on or off, the other
/// format of P, no offset of P, no scale of Q, K or V or that of the first head, no scale of the
/// softmax, 1/d in its place, no log2 e, no mask or one that is off by one, and heads mapped to KV
/// heads in turn. A mistake is named if it gives every bit, or if its distance is at most a quarter
/// of that of the golden output. Throws `Error` as `attention`, and for another number of outputs.
AttentionVerdict verify_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  std::span<const float> got, FormatId output,
                                  double tolerance = 0.0);

}  // namespace fp8lab
