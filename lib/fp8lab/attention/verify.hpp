#pragma once
// Checks an output of attention and finds the mistake that explains a wrong one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// A mistake, and how far its output is from the one that is checked.
struct AttentionCause {
  std::string name;
  std::string text;
  std::int64_t mismatches = 0;  ///< outputs whose bits it does not give
  double distance = 0.0;        ///< relative L2 distance of its output from the checked one
};

struct AttentionVerdict {
  std::int64_t outputs = 0;
  std::int64_t mismatches = 0;          ///< outputs whose bits are not the golden ones
  double distance = 0.0;                ///< relative L2 distance from the golden output
  bool pass = false;                    ///< no mismatch, or within the tolerance
  std::vector<AttentionCause> causes;   ///< best first; empty if no mistake explains it
  std::string where{};                  ///< heads, rows and columns with wrong outputs; "": all
  std::vector<std::string> measured{};  ///< of an output that no mistake explains, in FP64

  /// A report of a few lines.
  [[nodiscard]] std::string text() const;
};

/// Compares `got` [heads, m, d_v], values of `output` (f32, bf16, f16, e4m3fn or e5m2), with
/// `attention(inputs, options)` cast to that format. `tolerance` is a relative L2 distance, of
/// which a single row may be 8 times as far, or 1/16 (a P that rounds the other way); 0 requires
/// every bit. Kernels with another exp2 or order of row sums need a tolerance.
///
/// A wrong output is explained in this order. Pairs of a number and a NaN or infinity are described
/// and left out of what follows. Then outputs that need no other product are tried (not written,
/// multiples, other places, other casts), and known mistakes of kernels (`mistakes.hpp`), on a
/// sample of wrong rows first. Where none gives the bits, what the kernel did is measured
/// (`measured.hpp`) and tried too. A mistake is a cause if it gives every bit; or 9 of 10 wrong
/// ones, while few right ones contradict it; or if its output is within the tolerance (without one,
/// 10^-3) and a half (a quarter) of the golden distance. One that explains fewer outputs than
/// another is left out. Causes of a part of O hold in the heads, rows and columns that they say.
/// Throws `Error` as `attention`, and for another number of outputs.
AttentionVerdict verify_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  std::span<const float> got, FormatId output,
                                  double tolerance = 0.0);

}  // namespace fp8lab
