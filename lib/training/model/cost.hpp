#pragma once
// The cost of training a model shape under BF16, TransformerEngine FP8 and FP8-LM:
// bytes and FLOPs counted tensor by tensor, no times.
//
// Figures are per GPU, as the mean over all GPUs. Embedding, head, norms and router
// are the same as under BF16 in every scheme. Not counted: logits, buffers of
// communication and GEMMs, allocator overhead, biases, FP8 scales.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "training/model/shape.hpp"
#include "training/optim/partition.hpp"

namespace fp8lab {

/// How the block GEMMs' tensors are stored and sent.
struct TrainingScheme {
  std::string_view name;
  FormatId weight = FormatId::bf16;  ///< the copy that is not the master
  std::int64_t fp8_copies = 0;       ///< beside it: what GEMMs read, and its transpose
  std::string_view optimizer;        ///< preset of the states and of the gradient's storage
  FormatId gradient_traffic = FormatId::f32;
  FormatId weight_traffic = FormatId::bf16;
  FormatId gemm_input = FormatId::bf16;  ///< activations kept for the weight gradient
  FormatId gathered = FormatId::bf16;    ///< activations in all-gathers of tensor parallelism
  bool fp8_gemms = false;
  bool whole_tensors = false;  ///< ZeRO keeps a scaled tensor on one rank
  std::string_view used_by;
};

/// The schemes bf16, te-fp8, fp8-lm.
std::span<const TrainingScheme> training_schemes();
/// The scheme called `name`. Throws `Error` that lists the names.
const TrainingScheme& find_training_scheme(std::string_view name);

/// Bytes per parameter of a block GEMM without sharding: the weight copies and the
/// buffers of `AdamW` (measured for 2^16 elements, without scales).
struct ParameterBytes {
  double weight = 0.0;
  double master = 0.0;
  double gradient = 0.0;
  double m = 0.0;
  double v = 0.0;

  /// Master, gradient and moments, as counted in FP8-LM's equations 7 and 8.
  [[nodiscard]] double optimizer() const;
  [[nodiscard]] double total() const;
};
ParameterBytes parameter_bytes(const TrainingScheme& scheme);

/// An activation that a layer keeps for its backward pass.
struct KeptActivation {
  std::string_view name;
  std::int64_t elements = 0;  ///< per token and layer, before tensor parallelism
  FormatId format = FormatId::bf16;

  [[nodiscard]] double bytes() const;
};

/// Flash attention (no score matrix), no recomputation, no dropout.
std::vector<KeptActivation> kept_activations(const ModelShape& shape, const TrainingScheme& scheme);

struct TrainingCost {
  double parameters = 0.0;      ///< of the model
  double gpu_parameters = 0.0;  ///< of a GPU: over tensor and pipeline ranks

  // Memory in bytes per GPU. ZeRO 1: data ranks divide master and moments among them.
  double weights = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;
  double activations = 0.0;  ///< mean over pipeline stages; the first of n holds 2n / (n + 1) of it

  // Traffic in bytes per GPU. A ring sends (n - 1) / n of the tensor for each of the two.
  double gradient_traffic = 0.0;    ///< reduce-scatter over data ranks, a step
  double weight_traffic = 0.0;      ///< all-gather over data ranks, a step
  double activation_traffic = 0.0;  ///< tensor ranks, a micro-batch: two all-gathers and one
                                    ///< reduce-scatter for attention and for the MLP

  double fp8_flop_share = 0.0;  ///< of blocks and head, forward and backward alike

  /// ZeRO's bytes of master and moments on each data rank, for one tensor rank of a
  /// first pipeline stage. Tensors that need not stay whole are split evenly;
  /// `rank_of` names the others alone.
  Partition zero;

  [[nodiscard]] double memory() const;
};

/// What a GPU stores, sends and computes under `scheme`. Throws `Error` as `validate` does.
TrainingCost training_cost(const TrainingSetup& setup, const TrainingScheme& scheme);

}  // namespace fp8lab
