#pragma once
// Attention kernels by name: what is known of each beside its operands.

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// The tiles of heads of at most so many elements.
struct HeadTiles {
  std::int64_t head_size = 0;
  std::int64_t q_tile = 0;
  std::int64_t kv_tile = 0;
};

struct AttentionCall {
  std::string_view name;
  FormatId operands;  ///< of Q, K and V
  AttentionOptions options;
  Standing standing;
  std::string_view source;  ///< and what differs or is not known
  /// By head size, ascending; of larger heads the last ones. Empty: those of `options` for all.
  std::span<const HeadTiles> tiles{};

  /// `options` with the tiles of heads of d elements.
  [[nodiscard]] AttentionOptions options_for(std::int64_t d) const;
};

/// All of them.
std::span<const AttentionCall> attention_calls();
/// Throws `Error` that lists them.
const AttentionCall& find_attention_call(std::string_view name);

}  // namespace fp8lab
