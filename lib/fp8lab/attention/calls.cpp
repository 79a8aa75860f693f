#include "fp8lab/attention/calls.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <string>

#include "fp8lab/core/names.hpp"

namespace fp8lab {

namespace {

/// hopper/tile_size.h, elements of one byte.
constexpr std::array<HeadTiles, 5> kFlashAttention3Tiles{
    {{64, 192, 160}, {96, 192, 128}, {128, 128, 224}, {192, 128, 160}, {256, 128, 128}}};

/// flashinfer's CTA_KV for FP8, ragged K and V.
constexpr std::array<HeadTiles, 3> kFlashInferTiles{
    {{64, 128, 128}, {128, 128, 192}, {256, 128, 128}}};

/// FlashAttention-4's settings that its versions share.
AttentionOptions flash_attention_4(float p_offset, float rescale_threshold) {
  return {.qk_model = "sm100.tcgen05.e4m3",
          .pv_model = "sm100.tcgen05.e4m3",
          .q_tile = 128,
          .kv_tile = 128,
          .p_offset = p_offset,
          .rescale_threshold = rescale_threshold};
}

constexpr std::string_view kFlashAttention4 =
    "flash_attn/cute/flash_fwd_sm100.py and softmax.py: tiles last to first, P in E4M3, P V in the "
    "accumulator of tcgen05, scale_log2 times the product of Q's and K's descales, the row sum of "
    "p "
    "before the cast, 1 / sum times V's descale, O as BF16. Not modelled: the row sum in eight "
    "parts "
    "a tile, exp2 in part as a polynomial, the maximum times the scale rounded before it is "
    "subtracted. ";

/// With what differs in one version.
std::string_view source_of_version(std::string_view version) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::string(kFlashAttention4) + std::string(version));
}

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
  static const std::array<AttentionCall, 7> kCalls{{
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
      {"flashattention4.fp8", FormatId::e4m3fn, flash_attention_4(8.0F, 0.0F),
       Standing::from_literature,
       source_of_version(
           "Since commit 849f660f (28 July 2026, pull request 2731), read at 0251105a: "
           "offset 8, the maximum never stale")},
      {"flashattention4.fp8.2717", FormatId::e4m3fn, flash_attention_4(4.0F, 4.0F),
       Standing::from_literature,
       source_of_version("Commits 2409214a to 849f660f (19 to 28 July 2026, pull request 2717): "
                         "offset 4 for E4M3, the maximum stale by up to 2^4")},
      {"flashattention4.fp8.before_2717", FormatId::e4m3fn, flash_attention_4(8.0F, 4.0F),
       Standing::from_literature,
       source_of_version("Commits b65ae6b1 to 2409214a (17 April to 19 July 2026): offset 8, the "
                         "maximum stale by up to 2^4, so P saturates (issue 2577)")},
      {"vllm.flashattention4.fp8", FormatId::e4m3fn, flash_attention_4(8.0F, 0.75F),
       Standing::from_literature,
       source_of_version("vLLM's fork since its pull request 166 (July 2026), read at 617264c1: "
                         "offset 8, the maximum stale by up to 2^0.75, which stays below 448")},
      {"flashinfer.hopper.fp8",
       FormatId::e4m3fn,
       {.q_tile = 128, .kv_tile = 192, .p_offset = 8.807354922F, .row_sum = RowSum::quads},
       Standing::from_literature,
       "include/flashinfer/attention/hopper of flashinfer, read at fb28d724 (variants.cuh, "
       "quantization/mainloop_mma.cuh): tiles last to first, P in E4M3 times 448, P V in the "
       "accumulator of wgmma, the row sum in quads, V's scale over 448 at the end. Tiles by head "
       "size, of ragged K and V. Not modelled: p is summed before it is multiplied by 448, here "
       "the factor is in exp2's argument, so bits differ. Two-level accumulation of its fmha_v2 is "
       "an open pull request (3234)",
       kFlashInferTiles},
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
  return find_named(attention_calls(), "call", name);
}

}  // namespace fp8lab
