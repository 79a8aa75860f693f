#pragma once

#include "training/model/shape.hpp"

namespace fp8lab::test {

/// A model small enough to be counted by hand.
inline const ModelShape kTiny{.name = "tiny",
                              .layers = 1,
                              .hidden = 8,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 12,
                              .gated = true,
                              .vocabulary = 10,
                              .experts = 2,
                              .active_experts = 1};

}  // namespace fp8lab::test
