#pragma once
// The error that a right kernel of FP8 attention should have, the gates that pass it, and the
// faults that each gate misses. Right outputs are those of `attention`, on normal numbers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/verify/expect.hpp"

namespace fp8lab {

/// A number of draws in [2, 1000], of heads, rows and columns each above 0.
struct AttentionExpectOptions {
  std::int64_t heads = 8;
  std::int64_t kv_heads = 8;
  std::int64_t m = 128;
  std::int64_t n = 4096;
  std::int64_t d = 128;
  std::int64_t d_v = 128;
  AttentionOptions attention{};
  double spread = 1.0;  ///< standard deviation of the logits
  std::string kv_cache = "e4m3.head";
  FormatId output = FormatId::bf16;
  int trials = 12;
  std::uint64_t seed = 1;
  double risk = 1e-6;  ///< the probability that a gate fails a right output
};

/// Of the errors in a few trials: 5 %, 50 % and 95 % of them are below.
struct ErrorQuantiles {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};

/// Relative L2 errors of right outputs before their cast.
struct AttentionError {
  std::string of;         ///< the spread of the logits, the rows of K and V, or the cache
  ErrorQuantiles codes;   ///< from FP64 on the values of the codes: the arithmetic alone
  ErrorQuantiles inputs;  ///< from FP64 on the floats: with quantization
};

/// A limit, and where it comes from.
struct AttentionGate {
  std::string name;
  std::string text;
  bool passes = false;  ///< right outputs, in every trial
};

struct AttentionFault {
  std::string name;
  std::string text;
  double size = 0.0;         ///< median relative L2 distance from the right output
  std::vector<char> caught;  ///< by each gate, in every trial that was made
};

struct AttentionExpectation {
  AttentionExpectOptions options;
  std::int64_t sample_heads = 0;  ///< of a trial
  std::int64_t sample_rows = 0;
  double rms = 0.0;  ///< root mean square of right outputs
  std::vector<AttentionError> by_spread;
  std::vector<AttentionError> by_length;  ///< n, and parts of it
  std::vector<AttentionError> by_cache;
  std::vector<MetricSpread> metrics;  ///< of outputs from FP64 on the codes
  /// First those of `metrics`, then those that projects ship (`attention_gate_texts`).
  std::vector<AttentionGate> gates;
  std::vector<AttentionFault> faults;  ///< smallest first
};

/// Runs the trials. The reference is attention in FP64 on the values of the codes, cast to the
/// output's format. Throws `Error` for bad sizes, counts and options.
AttentionExpectation expect_attention(const AttentionExpectOptions& options);

/// The report as text.
std::string describe(const AttentionExpectation& expectation);

}  // namespace fp8lab
