#include "fp8lab/attention/calls.hpp"

#include <array>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

std::span<const AttentionCall> attention_calls() {
  static const std::array<AttentionCall, 2> kCalls{{
      {"flashattention3.fp8",
       FormatId::e4m3fn,
       {},
       Standing::from_literature,
       "hopper/softmax.h and the mainloop of FlashAttention-3: tiles last to first, P in E4M3 "
       "times "
       "2^8. Not known: the order of the row sum, ex2.approx, kv_tile by head size (here 128)"},
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
