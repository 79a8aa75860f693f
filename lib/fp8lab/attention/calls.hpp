#pragma once
// Attention kernels by name, with their settings.

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// The tiles for heads of at most `head_size` elements.
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
  std::string_view source;  ///< with the differences and what is not known
  /// Tiles by ascending head size; larger heads have the last. Empty: those of `options` for all.
  std::span<const HeadTiles> tiles{};

  /// `options` with the tiles for heads of d elements.
  [[nodiscard]] AttentionOptions options_for(std::int64_t d) const;
};

/// All calls.
std::span<const AttentionCall> attention_calls();
/// The call named `name`. Throws `Error` that lists the names.
const AttentionCall& find_attention_call(std::string_view name);

}  // namespace fp8lab
