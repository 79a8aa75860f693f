#pragma once
// Kernels of attention with one mistake each: what a wrong output is compared with.

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/variant.hpp"

namespace fp8lab {

/// A kernel with one mistake.
struct AttentionMistake {
  std::string name;
  std::string text;
  AttentionInputs inputs;
  AttentionOptions options;
  AttentionVariant variant{};
};

/// Operands whose memory differs from a given one's. They last as long as this object.
class ChangedOperands {
 public:
  /// The scale of each head.
  AttentionOperand with_scales(const AttentionOperand& x,
                               const std::function<float(std::int64_t)>& scale_of_head);
  /// `heads` heads, each a copy of head `from(head)`, with its scale or that of head `scale(head)`.
  AttentionOperand with_heads(const AttentionOperand& x, std::int64_t heads,
                              const std::function<std::int64_t(std::int64_t)>& from,
                              const std::function<std::int64_t(std::int64_t)>& scale);
  /// Each row a copy of row `from(row)` of its head, or zeros where that is below 0. More rows than
  /// `x` has are possible.
  AttentionOperand with_rows(const AttentionOperand& x, std::int64_t rows,
                             const std::function<std::int64_t(std::int64_t)>& from);
  /// The code at each place is that at place `from(place)` of the whole memory.
  AttentionOperand with_memory(const AttentionOperand& x,
                               const std::function<std::int64_t(std::int64_t)>& from);
  /// The code of a row and column is that of column `from(row, column)`.
  AttentionOperand with_columns(
      const AttentionOperand& x,
      const std::function<std::int64_t(std::int64_t, std::int64_t)>& from);
  /// Zeros in columns [begin, end).
  AttentionOperand without_columns(const AttentionOperand& x, std::int64_t begin, std::int64_t end);

 private:
  std::deque<std::vector<float>> scales_;
  std::deque<std::vector<std::uint8_t>> codes_;
};

/// The mistakes of a list. The operands of all of them last as long as this object.
class AttentionMistakes {
 public:
  AttentionMistakes(const AttentionInputs& inputs, const AttentionOptions& options);

  using Change = std::function<void(AttentionMistake&)>;
  /// A kernel like the right one, but for `change`.
  void add(std::string name, std::string text, const Change& change);

  /// Adds what kernels are known to do wrong.
  void add_known();
  /// Adds tile `t` left out, added twice, not rescaled, or read from another tile.
  void add_tile(std::int64_t t);

  /// Those that were added and can run.
  [[nodiscard]] const std::vector<AttentionMistake>& all() const { return found_; }
  [[nodiscard]] ChangedOperands& operands() { return operands_; }

 private:
  void orders();
  void softmax_scales();
  void softmax();
  void p_of_softmax();
  void exponentials();
  void threads();
  void stale_maxima();
  void units();
  void scales();
  void scales_of(std::span<AttentionOperand AttentionInputs::*const> members,
                 const std::string& names);
  void scales_of_other_heads();
  void rounded_scales();
  void formats();
  void masks();
  void masks_of_rows();
  void hidden_columns();
  void heads();
  void rows_of_v();
  void zero_rows();
  void tails();
  void memory();
  void terms_of_qk();
  void splits();

  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  AttentionShape shape_;
  ChangedOperands operands_;
  std::vector<AttentionMistake> found_;
};

}  // namespace fp8lab
