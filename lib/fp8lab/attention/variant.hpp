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
  own_tile,    ///< that of each tile, smaller or larger
  none,        ///< nothing is subtracted
};

/// What stands for exp2 of a score.
enum class Exponential : std::uint8_t {
  rounded,   ///< exp2
  straight,  ///< 2^floor(x) (1 + x - floor(x)): the bits of x added to the exponent
};

/// How the parts of `AttentionOptions::splits` are merged.
enum class SplitMerge : std::uint8_t {
  right,           ///< weighted by exp of their logarithms
  average,         ///< without weights
  powers_of_two,   ///< by exp2 of natural logarithms
  e_of_log2,       ///< by exp of logarithms to base 2
  not_normalized,  ///< the weights are not divided by their sum
};

/// By default nothing is otherwise.
struct AttentionVariant {
  std::vector<SeenColumns> seen{};  ///< of each row of a head, or of all heads; empty: the options'
  std::vector<char> unread{};       ///< whether each column is left out; empty: none
  std::optional<float> hidden{};    ///< what stands for S in hidden columns; none: -Inf
  bool maximum_of_hidden = false;   ///< the maximum is taken before the mask
  std::vector<float> slopes{};      ///< of each head: times (j - i - n + m), added to the scores
  Exponential exponential = Exponential::rounded;
  std::optional<FormatId> p_format{};  ///< to which p is rounded before its sum and its cast
  bool sum_of_thread = false;          ///< columns are divided by the row sum of their own thread
  std::int64_t sum_row_xor = 0;        ///< row r has the row sum of row r xor this
  std::int64_t alpha_row_xor = 0;      ///< row r is rescaled as row r xor this
  std::vector<int> times{};            ///< how often each tile is added; empty: once
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
  SplitMerge merge = SplitMerge::right;
  bool splits_columns = false;  ///< parts are equal numbers of columns, whatever the tiles are
  std::int64_t lost_part = -1;  ///< a part that is not merged
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

/// `attention` with what is otherwise. Inputs and options must be valid.
AttentionResult attention_with(const AttentionInputs& inputs, const AttentionOptions& options,
                               const AttentionVariant& variant);

/// Tiles without counts, by column.
std::vector<AttentionTile> attention_tiles(std::int64_t n, std::int64_t kv_tile);

/// All blocks of all heads.
std::vector<AttentionRows> attention_blocks(const AttentionShape& shape, std::int64_t q_tile);

}  // namespace fp8lab
