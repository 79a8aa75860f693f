#include "fp8lab/attention/calls.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

namespace {

/// hopper/tile_size.h, elements of one byte.
constexpr std::array<HeadTiles, 5> kFlashAttention3Tiles{
    {{64, 192, 160}, {96, 192, 128}, {128, 128, 224}, {192, 128, 160}, {256, 128, 128}}};

}  // namespace

AttentionOptions AttentionCall::options_for(std::int64_t d) const {
  AttentionOptions o = options;
  if (tiles.empty()) return o;
  const auto fits = [d](const HeadTiles& one) { return d <= one.head_size; };
  const auto found = std::ranges::find_if(tiles, fits);
  const HeadTiles& chosen = found == tiles.end() ? tiles.back() : *found;
  o.q_tile = chosen.q_tile;
  o.kv_tile = chosen.kv_tile;
  return o;
}

std::span<const AttentionCall> attention_calls() {
  static const std::array<AttentionCall, 2> kCalls{{
      {"flashattention3.fp8",
       FormatId::e4m3fn,
       {.q_tile = 128, .kv_tile = 224, .row_sum = RowSum::quads},
       Standing::from_literature,
       "hopper/ of FlashAttention-3: tiles last to first, P in E4M3 times 2^8, P V in the wgmma's "
       "accumulator (no promotion), scale_log2 times the product of Q's and K's descales, the row "
       "sum in quads, 1 / sum times V's descale; the order in which V is transposed stays within "
       "32 "
       "columns. Tiles by head size (tile_size.h), of plain and causal attention with V as [n, d]: "
       "paged keys, windows and a V stored by columns have others. Assumed: ex2.approx and the "
       "approximate 1 / sum of nvcc's use_fast_math, here rounded; O is stored as BF16, and Q has "
       "one "
       "descale a head of K",
       kFlashAttention3Tiles},
      {"triton.tutorial.fp8",
       FormatId::e5m2,
       {.qk_model = "sm90.wgmma.e5m2",
        .pv_model = "sm90.wgmma.e5m2",
        .q_tile = 128,
        .kv_tile = 64,
        .p_offset = 0.0F,
        .tile_order = TileOrder::first_to_last,
        .p_format = FormatId::e5m2},
       Standing::from_literature,
       "python/tutorials/06-fused-attention.py of Triton: tiles first to last, P in E5M2 as it is. "
       "Not known: the order of the row sum, ex2.approx; it rounds the maximum times the scale "
       "before it subtracts, divides by the row sum, and tunes kv_tile (here 64)"},
  }};
  return kCalls;
}

const AttentionCall& find_attention_call(std::string_view name) {
  std::string known;
  for (const AttentionCall& call : attention_calls()) {
    if (call.name == name) return call;
    known += (known.empty() ? "" : ", ") + std::string(call.name);
  }
  throw Error("call", "one of " + known, "'" + std::string(name) + "'");
}

}  // namespace fp8lab
