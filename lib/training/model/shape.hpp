#pragma once
// The shape of a transformer, and how it is distributed over GPUs: its cost
// depends on nothing else.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// A decoder-only transformer without biases. Norms have one gain per channel.
struct ModelShape {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values, at most `heads`
  std::int64_t ffn = 0;       ///< inner size of the MLP, of one expert
  bool gated = false;         ///< SwiGLU: a gate beside up and down
  std::int64_t vocabulary = 0;
  std::int64_t experts = 1;         ///< MLPs a layer; 1 has no router
  std::int64_t active_experts = 1;  ///< MLPs a token
  bool tied_embeddings = false;     ///< the head is the embedding
  std::int64_t sequence = 2048;     ///< tokens

  [[nodiscard]] std::int64_t kv_size() const { return hidden / heads * kv_heads; }
  bool operator==(const ModelShape&) const = default;
};

/// The GPUs of one replica of the model (tensor times pipeline), and the number of replicas.
struct Parallelism {
  std::int64_t tensor = 1;  ///< with sequence parallelism
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t micro_batch = 1;  ///< sequences that a GPU processes at once

  bool operator==(const Parallelism&) const = default;
};

struct TrainingSetup {
  ModelShape shape;
  Parallelism parallel;

  bool operator==(const TrainingSetup&) const = default;
};

/// 125m, 7b, 13b, 175b: FP8-LM's Table 1 with the parallelism of its Table 5; the
/// head is a matrix of its own and the vocabulary 51200, GPT-2's as Megatron-LM
/// pads it (*assumed*: the paper names neither; its volumes fit these). llama-7b,
/// mixtral-8x7b: the shapes of those models, on one GPU.
std::span<const TrainingSetup> training_setups();

/// The setup of that name, or of a TOML file (`read_training_setup`). Throws `Error` as that does.
TrainingSetup find_training_setup(const std::string& name_or_file);

/// Reads layers, hidden, heads, vocabulary and, where they differ from these
/// defaults, kv_heads = heads, ffn = 4 hidden, gated = false, experts = 1,
/// active_experts = 1, tied_embeddings = false, sequence = 2048, name = the
/// file's; and a table [parallel] of tensor, pipeline, data, micro_batch, each 1.
/// Throws `Error` with file and reason for a missing, unknown or impossible value.
TrainingSetup read_training_setup(const std::filesystem::path& file);

/// Throws `Error` for sizes below 1, heads that do not divide the hidden size,
/// kv_heads that do not divide the heads, more active experts than experts, or
/// layers that the pipeline does not divide.
void validate(const TrainingSetup& setup);

enum class WeightKind : std::uint8_t { embedding, norm, attention, router, mlp, head };
std::string_view to_string(WeightKind kind);

struct WeightTensor {
  std::string name;                 ///< as Hugging Face's Llama and Mixtral call it
  std::vector<std::int64_t> shape;  ///< [outputs, inputs], or [channels]
  WeightKind kind = WeightKind::norm;

  [[nodiscard]] std::int64_t size() const;
  /// True for the GEMMs of the blocks, which are what FP8 systems convert.
  [[nodiscard]] bool is_block_gemm() const {
    return kind == WeightKind::attention || kind == WeightKind::mlp;
  }
};

/// All weights, layer by layer: embedding first, head last.
std::vector<WeightTensor> weights_of(const ModelShape& shape);

}  // namespace fp8lab
