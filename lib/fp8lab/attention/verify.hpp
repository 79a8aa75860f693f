#pragma once
// Is an output of attention right, and if not, which known mistake made it?

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// A known mistake, and how far its output is from the one that came.
struct AttentionCause {
  std::string name;
  std::string text;
  std::int64_t mismatches = 0;  ///< outputs whose bits it does not give
  double distance = 0.0;        ///< relative L2 distance of its output from the one that came
};

struct AttentionVerdict {
  std::int64_t outputs = 0;
  std::int64_t mismatches = 0;         ///< outputs whose bits are not the golden ones
  double distance = 0.0;               ///< relative L2 distance from the golden output
  bool pass = false;                   ///< no mismatch, or the distance within the tolerance
  std::vector<AttentionCause> causes;  ///< what explains it, best first; empty: nothing known

  /// A report of a few lines.
  [[nodiscard]] std::string text() const;
};

/// Compares `got` [heads, m, d_v], values of `output` (f32, bf16, f16, e4m3fn or e5m2), with
/// `attention(inputs, options)` cast to that format. A `tolerance` of 0 asks for every bit; kernels
/// whose exp2 and order of row sums differ need one, a relative L2 distance. Mistakes tried: the
/// other order of tiles, other tiles, promotion (`two_level`) on or off, the other format of P, its
/// offset left out, the scale of Q, K or V left out or taken from the first head, the scale of the
/// softmax left out, halved in its exponent (1/d) or applied without log2 e, the mask left out or
/// off by one, heads mapped to KV heads in turn, and none of P's rounding. One is named if it gives
/// every bit, or is at most a quarter as far away as the golden output. Throws `Error` as
/// `attention` does, and for another number of outputs.
AttentionVerdict verify_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  std::span<const float> got, FormatId output,
                                  double tolerance = 0.0);

}  // namespace fp8lab
