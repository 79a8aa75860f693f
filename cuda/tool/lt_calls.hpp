#pragma once
// The calls of cuBLASLt that are worth a row in the table: shapes of known models.

#include <vector>

#include "tool/lt_table.hpp"

namespace fp8lab::cuda {

/// Products [m,k] x [n,k] of the blocks of `llama-7b` and `mixtral-8x7b` (`training_setups`) on one
/// GPU, each shape once: decoding with 16 and 128 tokens, then forward, gradient of inputs and
/// gradient of weights in training with one sequence. E4M3 inputs; the shape only is set.
std::vector<LtCall> lt_shapes();

/// The calls of one shape: output BF16, FP16, FP32 and E4M3, fast and slow accumulation.
std::vector<LtCall> lt_calls_of(const LtCall& shape);

}  // namespace fp8lab::cuda
