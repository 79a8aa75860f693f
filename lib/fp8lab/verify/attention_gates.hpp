#pragma once
// The acceptance rules that public projects ship with their kernels of attention, and what they say
// of an output.

#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/metrics/code_comparison.hpp"

namespace fp8lab {

/// A rule; x is the reference, y the output.
struct AttentionGateText {
  std::string_view name;  ///< `flashattention.fp8`, or one of `gates()`
  std::string_view text;
  std::string_view source;  ///< repository and file
};

/// All rules: first `gates()`, then those of attention kernels: Composable Kernel's, aiter's and
/// FlashAttention's.
std::span<const AttentionGateText> attention_gate_texts();

/// The rules on outputs of one problem. Their reference is attention in FP64 on the values of the
/// codes, cast to the output's format; the projects compute it in FP32 and round to the format.
///
/// FlashAttention's rule compares with PyTorch: max |y - x| <= 2 max |t - x| + 2 max |(x + 0.3 -
/// 0.3) - x| (3 times with a soft cap), where t is attention in BF16 with P rounded to E4M3 without
/// a scale, and all differences are rounded to BF16. t is computed here as that test does: values
/// times descales, K times the softmax's scale, scores and O are rounded to BF16; sums are
/// *assumed* to be exact before that.
class AttentionGates {
 public:
  /// Inputs and options as for `attention`; `output`: f32, bf16, f16, e4m3fn or e5m2. Throws
  /// `Error` for what does not fit.
  AttentionGates(const AttentionInputs& inputs, const AttentionOptions& options, FormatId output);

  /// The errors of an output [heads, m, d_v], which is cast to the output's format first.
  [[nodiscard]] CodeComparison compare(std::span<const float> o) const;

  /// Whether an output with these errors passes each of `attention_gate_texts()`. A NaN or an
  /// infinity that the reference has not fails all.
  [[nodiscard]] std::vector<bool> pass(const CodeComparison& comparison) const;

  /// The right side of FlashAttention's rule.
  [[nodiscard]] double flash_attention_limit() const { return flash_attention_limit_; }

 private:
  FormatId output_;
  int threads_;
  std::vector<std::byte> reference_;
  double flash_attention_limit_ = 0.0;
};

}  // namespace fp8lab
