#pragma once
// Attention kernels by name: what is known of each beside its operands.

#include <span>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

struct AttentionCall {
  std::string_view name;
  FormatId operands;  ///< of Q, K and V
  AttentionOptions options;
  Standing standing;
  std::string_view source;  ///< and what differs or is not known
};

/// All of them.
std::span<const AttentionCall> attention_calls();
/// Throws `Error` that lists them.
const AttentionCall& find_attention_call(std::string_view name);

}  // namespace fp8lab
