#pragma once
// Shared parts of attention: shapes, views of one head, the scale of S.

#include <cstdint>
#include <optional>
#include <string>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t group = 1;  ///< heads of Q per head of K and V
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t d = 0;
  std::int64_t d_v = 0;
};

/// The columns to which a row attends.
struct SeenColumns {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
SeenColumns seen_columns(const AttentionShape& shape, const AttentionOptions& options,
                         std::int64_t row);

AttentionShape attention_shape(const AttentionInputs& inputs);

/// Throws `Error` naming the first argument that does not fit.
void validate(const AttentionInputs& inputs, const AttentionOptions& options);

/// The dimension of an operand that gives the rows of a product.
enum class Major : std::uint8_t { rows, columns };

/// Rows [begin, end) of one head, unchanged or transposed (V is summed over its rows).
CodeMatrix matrix_of(const AttentionOperand& operand, std::int64_t head, std::int64_t begin,
                     std::int64_t end, Major major);

/// The inverse scale of a head.
float scale_of(const AttentionOperand& operand, std::int64_t head);

/// The factor of S before tanh, where there is a soft cap.
float soft_cap_scale(const AttentionInputs& inputs, const AttentionOptions& options,
                     std::int64_t head);

/// The factor of S before exp2: of tanh, where there is a soft cap.
float scale_log2(const AttentionInputs& inputs, const AttentionOptions& options, std::int64_t head);

/// `AttentionOptions::softmax_scale`, or 1 / sqrt(d) if that is 0.
float softmax_scale(const AttentionInputs& inputs, const AttentionOptions& options);
/// `given` if it is above 0, else 1 / sqrt(d), rounded once.
float softmax_scale(float given, std::int64_t d);

/// The instruction `model`, or one of the same unit, that reads `a` and `b`. None: there is none.
std::optional<std::string> instruction_for(const std::string& model, FormatId a, FormatId b);

int threads_of(const AttentionOptions& options);

}  // namespace fp8lab
