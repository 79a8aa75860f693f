#pragma once
// The calls of cuBLASLt that are worth a row in the table: shapes of known models.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fp8lab/product/calls.hpp"

namespace fp8lab::cuda {

/// Products [m,k] x [n,k] of the blocks of `llama-7b` and `mixtral-8x7b` (`training_setups`) on one
/// GPU, each shape once: decoding with 16 and 128 tokens, then forward, gradient of inputs and
/// gradient of weights in training with one sequence. E4M3 inputs; the shape only is set.
std::vector<CallShape> lt_shapes();

/// The calls of one shape: output BF16, FP16, FP32 and E4M3, fast and slow accumulation.
std::vector<CallShape> lt_calls_of(const CallShape& shape);

/// Adds what was observed of a call to the table in `file`, which is made with this model and
/// header if it does not exist; what it said of the call is replaced.
void add_to_call_table(const std::filesystem::path& file, const std::string& model,
                       const std::map<std::string, std::string>& header, ObservedCall observed);

}  // namespace fp8lab::cuda
