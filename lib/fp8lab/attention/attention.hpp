#pragma once
// FP8 attention forward as FlashAttention's kernels compute it: Q K^T and P V on FP8 tensor cores
// under an accumulator model, an online softmax between them in FP32.
//
// For each head and each block of `q_tile` rows, over tiles of `kv_tile` columns in `tile_order`,
// by default from the last to the first, without tiles that the mask hides from the whole block:
//
//   1. S = Q K^T, the accumulator model's binary32 result; hidden elements are -Inf.
//   2. m' = max(m, max of the row of S) and t = (m - m') * scale_log2. If the threshold is not
//      0 and t >= -rescale_threshold, the maximum stays stale (m' = m).
//      Else alpha = exp2(t), row_sum *= alpha, O *= alpha.
//   3. p = exp2(fma(S, scale_log2, fma(-m, scale_log2, p_offset))).
//   4. row_sum = row_sum + p before the cast, one p after the other from the first column on, or in
//      the order of the threads of a warp (`RowSum`).
//   5. P = p cast to `p_format`, by default E4M3 (nearest even, saturating).
//   6. O = O + P V: O is the tensor core's accumulator, or (`two_level`) P V starts from
//      zero and is added to O in FP32.
//
// With `soft_cap`, S = tanh(S * c) after step 1, where c = (softmax_scale / soft_cap) *
// (inverse_scale of Q * inverse_scale of K), and scale_log2 = soft_cap * log2 e. With `sinks`,
// row_sum += exp2(fma(-m, scale_log2, fma(sink, log2 e, p_offset))) at the end; a row that sees
// nothing is 0. With `splits`, each part of the tiles that a block reads has its own m, row_sum and
// O, which is finished as below, and L = fma(m, scale_log2 ln 2, ln(row_sum 2^-p_offset)). The
// parts are merged in order: O = fma(w / sum of w, O of the part, O) with w = exp(L - largest L). A
// sink belongs to the first part.
//
// At the end O *= (1 / row_sum) * inverse_scale of V; a row_sum of 0 gives 0. scale_log2 =
// (softmax_scale * log2 e) * (inverse_scale of Q * inverse_scale of K), where the first product is
// computed in binary64 and rounded. exp2 is that of binary64, rounded. All other operations are
// binary32, to nearest even.
//
// How well this is known: steps 1 to 6, scale_log2, the offset of 8 for FP8, the direction, the
// sum of rows in quads and the epilogue are *read* in FlashAttention-3 (hopper/: softmax.h, the
// mainloop, flash_fwd_kernel_sm90.h), the offset and rescale_threshold from FlashAttention-4
// (flash_attn/cute/softmax.py) too, soft caps from FlashAttention-3's mainloop (apply_softcap),
// sinks from FlashAttention-4's correction (flash_fwd_sm100.py), the parts and their merge from
// FlashAttention-3's flash_fwd_combine_kernel.h and block.h; two-level accumulation from vLLM's
// fork (pull request 104), and not there in FlashAttention-3; tiles from the first to the last and
// P in E5M2 from Triton's fused attention tutorial (calls.hpp). *Assumed*: exp2, exp, tanh, the
// logarithm, 1 / row_sum, and one sum of w after the other. Kernels are
// built with --use_fast_math, so with ex2.approx and an approximate reciprocal, within 2 units
// in the last place. Their bits may differ for this reason, but not saturation and the size of
// errors.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab {

/// A view of FP8 codes [heads, rows, columns], row-major, with one inverse scale per
/// head (value = code * inverse_scale), or none, which means 1.
struct AttentionOperand {
  FormatId format = FormatId::e4m3fn;
  std::span<const std::uint8_t> codes;
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const float> inverse_scales{};
};

/// Q [heads, m, d], K [kv_heads, n, d], V [kv_heads, n, d_v]; head h reads the K and V head
/// h / (heads / kv_heads) (grouped queries).
struct AttentionInputs {
  AttentionOperand q;
  AttentionOperand k;
  AttentionOperand v;
};

/// The order in which a block of rows reads the tiles of K and V.
enum class TileOrder : std::uint8_t {
  last_to_first,  ///< FlashAttention-3 and 4
  first_to_last,  ///< Triton's tutorial, and FlashAttention-2's algorithm as published
};
std::string_view to_string(TileOrder order);
/// The order called `name`. Throws `Error`.
TileOrder find_tile_order(std::string_view name);

/// The order in which the p of a row are added, in binary32. No p is negative.
enum class RowSum : std::uint8_t {
  columns,  ///< one p after the other, tile after tile
  /// The order of the four threads of a quad that hold a row of a wgmma's accumulator: thread t
  /// adds its columns of a tile, those with column / 2 mod 4 = t, then this sum to that of the
  /// tiles before. At the end (s0 + s2) + (s1 + s3).
  quads,
};
std::string_view to_string(RowSum order);
/// The order called `name`. Throws `Error`.
RowSum find_row_sum(std::string_view name);

/// A window without limit.
inline constexpr std::int64_t kNoWindow = -1;

struct AttentionOptions {
  std::string qk_model = "sm90.wgmma.e4m3";  ///< reads Q's and K's formats
  std::string pv_model = "sm90.wgmma.e4m3";  ///< reads `p_format` and V's format
  std::int64_t q_tile = 128;
  std::int64_t kv_tile = 128;      ///< a multiple of pv_model's terms
  float softmax_scale = 0.0F;      ///< 0: 1 / sqrt(d)
  float p_offset = 8.0F;           ///< log2 of the factor of P: [0, 1] becomes [0, 2^offset]
  float rescale_threshold = 0.0F;  ///< log2 by which the maximum may be stale; 0: never
  bool causal = false;             ///< row i attends to columns j <= i + n - m
  bool two_level = false;          ///< each tile's P V is added to O in FP32
  int threads = 0;                 ///< 0: all; the result does not depend on it
  TileOrder tile_order = TileOrder::last_to_first;
  FormatId p_format = FormatId::e4m3fn;  ///< of P: e4m3fn or e5m2
  /// Row i attends to columns from i + n - m - window_left to i + n - m + window_right
  /// (FlashAttention's window_size); kNoWindow: all on that side. `causal` is a window_right of 0.
  std::int64_t window_left = kNoWindow;
  std::int64_t window_right = kNoWindow;
  RowSum row_sum = RowSum::columns;
  float soft_cap = 0.0F;       ///< scores are soft_cap tanh(score / soft_cap); 0: as they are
  std::vector<float> sinks{};  ///< of each head of Q: a score without a value; empty: none
  std::int64_t splits = 1;     ///< parts of the tiles of a block, which are merged at the end
  Backend backend{};  ///< computes Q K^T and P V of each tile, and the cast of P, if it has them
};

/// Statistics of P in one tile of columns, over all heads and rows.
struct AttentionTile {
  std::int64_t begin = 0;  ///< first column
  std::int64_t end = 0;
  std::uint64_t elements = 0;     ///< elements of P that are not hidden
  std::uint64_t saturated = 0;    ///< p above the largest finite code after rounding: lost weight
  std::uint64_t underflowed = 0;  ///< p > 0 that became 0
  std::uint64_t rescaled = 0;     ///< rows whose maximum grew and was updated
  std::uint64_t stale = 0;        ///< rows whose maximum grew and was kept
  float p_max = 0.0F;             ///< largest p before the cast

  /// Adds the counts. The columns do not change.
  AttentionTile& operator+=(const AttentionTile& other);
};

struct AttentionResult {
  std::vector<float> o;              ///< [heads, m, d_v], row-major
  std::vector<AttentionTile> tiles;  ///< by column
};

/// Computes attention. Throws `Error` naming the argument for a bad shape or format.
AttentionResult attention(const AttentionInputs& inputs, const AttentionOptions& options);

/// softmax(softmax_scale * Q K^T) V in FP64 on the given values, row-major [heads, rows,
/// columns] in the shapes of `shapes`. A row that attends to no column is 0.
std::vector<double> attention_reference(const AttentionInputs& shapes, std::span<const float> q,
                                        std::span<const float> k, std::span<const float> v,
                                        const AttentionOptions& options);

/// Code times inverse scale of every element, rounded to binary32.
std::vector<float> dequantize(const AttentionOperand& operand);

}  // namespace fp8lab
