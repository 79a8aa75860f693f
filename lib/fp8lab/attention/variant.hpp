#pragma once
// What a kernel of attention does otherwise than its options say, for checks of a kernel's output,
// and the rows of one block alone.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/cast/policy.hpp"

namespace fp8lab {

/// What happens to the maximum of a row.
enum class RowMaximum : std::uint8_t {
  running,     ///< it follows the largest element, as `rescale_threshold` says
  first_tile,  ///< that of the first tile is kept
  none,        ///< nothing is subtracted
};

/// By default nothing is otherwise.
struct AttentionVariant {
  std::vector<SeenColumns> seen{};  ///< of each row of a head; empty: those of the options
  std::vector<int> times{};         ///< how often each tile is added; empty: once
  RowMaximum maximum = RowMaximum::running;
  bool keeps_o = false;              ///< O is not multiplied by alpha
  bool keeps_sum = false;            ///< the row sum is not multiplied by alpha
  std::int64_t kept_tile = -1;       ///< the tile before which the two are kept; -1: all
  float alpha_power = 1.0F;          ///< alpha to this power stands in its place
  bool sum_after_cast = false;       ///< the row sum adds P instead of p
  bool hidden_in_sum = false;        ///< hidden columns of tiles that are read count in the row sum
  bool sum_restarts = false;         ///< the row sum is that of the last tile
  int divisions = 1;                 ///< by the row sum, at the end
  std::optional<CastPolicy> p_cast;  ///< of P; none: nearest even, saturating
  std::optional<FormatId> p_wide;    ///< 16 bits of P, times V without rounding within a tile
  std::optional<FormatId> s_format;  ///< to which S is rounded
  std::optional<FormatId> o_format;  ///< to which O is rounded after each tile
  std::int64_t averaged_splits = 1;  ///< parts of K and V whose outputs are averaged
};

/// Rows [begin, end) of a head, which lie in one block of `q_tile` rows.
struct AttentionRows {
  std::int64_t head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Computes rows [rows, d_v] into `o`, which holds zeros, and adds to the counts of `tiles`, which
/// are those of `attention_tiles`. Inputs and options must be valid.
void attention_rows(const AttentionInputs& inputs, const AttentionOptions& options,
                    const AttentionVariant& variant, const AttentionRows& rows, std::span<float> o,
                    std::span<AttentionTile> tiles);

/// Tiles without counts, by column.
std::vector<AttentionTile> attention_tiles(std::int64_t n, std::int64_t kv_tile);

/// All blocks of all heads.
std::vector<AttentionRows> attention_blocks(const AttentionShape& shape, std::int64_t q_tile);

}  // namespace fp8lab
