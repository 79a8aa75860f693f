#include "training/model/cost.hpp"

#include <array>
#include <string>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "training/model/block.hpp"
#include "training/optim/presets.hpp"

namespace fp8lab {
namespace {

constexpr std::array<TrainingScheme, 3> kSchemes{{
    {.name = "bf16", .optimizer = "fp32", .used_by = "Megatron-LM"},
    {.name = "te-fp8",
     .fp8_copies = 2,
     .optimizer = "fp32",
     .gemm_input = FormatId::e4m3fn,
     .fp8_gemms = true,
     .used_by = "TransformerEngine on Hopper: BF16 weights, FP8 copy and transpose (*assumed*)"},
    {.name = "fp8-lm",
     .weight = FormatId::e4m3fn,
     .fp8_copies = 0,
     .optimizer = "ms-amp-o3",
     .gradient_traffic = FormatId::e4m3fn,
     .weight_traffic = FormatId::e4m3fn,
     .gemm_input = FormatId::e4m3fn,
     .gathered = FormatId::e4m3fn,
     .fp8_gemms = true,
     .whole_tensors = true,
     .used_by = "FP8-LM, MS-AMP O3"},
}};

double bytes_of(FormatId id) { return format(id).bytes(); }

/// What an optimizer of the preset holds, a parameter.
ParameterBytes measured_bytes(std::string_view preset) {
  constexpr std::size_t kSample = std::size_t{1} << 16;
  const std::vector<float> values(kSample, 1.0F);
  const std::vector<Parameter> parameters{{"sample", {kSample}, values}};
  AdamWOptions options = find_optimizer_preset(preset).options;
  options.threads = 1;
  AdamW optimizer(options, parameters);
  const std::vector<std::span<const float>> gradients{values};
  optimizer.step(gradients, 0.0);
  const OptimizerMemory memory = optimizer.memory();
  const auto each = [](std::size_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(kSample);
  };
  return {0.0, each(memory.master), each(memory.gradient), each(memory.m), each(memory.v)};
}

/// Elements of all weights: of block GEMMs, and others.
struct Elements {
  double gemm = 0.0;
  double other = 0.0;
};

Elements count_elements(const ModelShape& shape) {
  Elements count;
  for (const WeightTensor& weight : weights_of(shape))
    (weight.is_block_gemm() ? count.gemm : count.other) += static_cast<double>(weight.size());
  return count;
}

/// Whole tensors by Algorithm 1, everything else in equal shares.
Partition zero_partition(const TrainingSetup& setup, const TrainingScheme& scheme,
                         double gemm_bytes, double other_bytes) {
  ModelShape stage = setup.shape;
  stage.layers /= setup.parallel.pipeline;
  stage.tied_embeddings = stage.tied_embeddings || setup.parallel.pipeline > 1;
  std::vector<std::int64_t> whole;
  double split = 0.0;
  for (const WeightTensor& weight : weights_of(stage)) {
    const double bytes = static_cast<double>(weight.size()) *
                         (weight.is_block_gemm() ? gemm_bytes : other_bytes) /
                         static_cast<double>(setup.parallel.tensor);
    if (scheme.whole_tensors && weight.is_block_gemm())
      whole.push_back(static_cast<std::int64_t>(bytes));
    else
      split += bytes;
  }
  Partition partition = partition_whole_tensors(whole, setup.parallel.data);
  for (std::int64_t& load : partition.load)
    load += static_cast<std::int64_t>(split / static_cast<double>(setup.parallel.data));
  return partition;
}

double activation_bytes(const TrainingSetup& setup, const TrainingScheme& scheme) {
  double bytes = 0.0;
  for (const KeptActivation& kept : kept_activations(setup.shape, scheme)) bytes += kept.bytes();
  const Parallelism& p = setup.parallel;
  // One forward, one backward: stage i of n keeps layers / n layers of n - i micro-batches, n + 1
  // halves of one in the mean.
  const auto stages = static_cast<double>(p.pipeline);
  const double mean_share = (stages + 1.0) / (2.0 * stages);
  return bytes * mean_share *
         static_cast<double>(setup.shape.sequence * p.micro_batch * setup.shape.layers) /
         static_cast<double>(p.tensor);
}

double activation_traffic(const TrainingSetup& setup, const TrainingScheme& scheme) {
  const Parallelism& p = setup.parallel;
  const ModelShape& s = setup.shape;
  const std::int64_t stage_layers = s.layers / p.pipeline;
  const auto elements = static_cast<double>(s.sequence * p.micro_batch * s.hidden * stage_layers);
  const double share = static_cast<double>(p.tensor - 1) / static_cast<double>(p.tensor);
  return 2.0 * share * elements * (2.0 * bytes_of(scheme.gathered) + bytes_of(FormatId::bf16));
}

double flop_share(const ModelShape& s, const TrainingScheme& scheme) {
  if (!scheme.fp8_gemms) return 0.0;
  double fp8 = 0.0;
  double all = 2.0 * static_cast<double>(s.sequence * s.hidden) * static_cast<double>(s.vocabulary);
  for (const BlockOperation& operation : block_operations(s)) {
    const double flops = operation.flops() * static_cast<double>(s.layers);
    fp8 += operation.deployed_fp8 ? flops : 0.0;
    all += flops;
  }
  return fp8 / all;
}

}  // namespace

std::span<const TrainingScheme> training_schemes() { return kSchemes; }

const TrainingScheme& find_training_scheme(std::string_view name) {
  return find_named(kSchemes, "scheme", name);
}

double ParameterBytes::optimizer() const {
  const FloatEnvironment environment;
  return master + gradient + m + v;
}

double ParameterBytes::total() const {
  const FloatEnvironment environment;
  return weight + optimizer();
}

ParameterBytes parameter_bytes(const TrainingScheme& scheme) {
  const FloatEnvironment environment;
  ParameterBytes bytes = measured_bytes(scheme.optimizer);
  bytes.weight = bytes_of(scheme.weight) + static_cast<double>(scheme.fp8_copies);
  return bytes;
}

double KeptActivation::bytes() const { return static_cast<double>(elements) * bytes_of(format); }

std::vector<KeptActivation> kept_activations(const ModelShape& s, const TrainingScheme& scheme) {
  const std::int64_t f = s.ffn * s.active_experts;
  std::vector<KeptActivation> kept{{"input of the first norm", s.hidden},
                                   {"input of Q, K, V", s.hidden, scheme.gemm_input},
                                   {"Q, K, V", s.hidden + 2 * s.kv_size()},
                                   {"output of attention", s.hidden},
                                   {"input of the second norm", s.hidden},
                                   {"input of the MLP", s.hidden, scheme.gemm_input},
                                   {"input of the activation", s.gated ? 2 * f : f},
                                   {"input of down", f, scheme.gemm_input}};
  // In BF16 the projection reads the output of attention itself.
  if (scheme.gemm_input != FormatId::bf16)
    kept.push_back({"input of the projection", s.hidden, scheme.gemm_input});
  return kept;
}

double TrainingCost::memory() const {
  const FloatEnvironment environment;
  return weights + gradients + optimizer + activations;
}

TrainingCost training_cost(const TrainingSetup& setup, const TrainingScheme& scheme) {
  const FloatEnvironment environment;
  validate(setup);
  const Parallelism& p = setup.parallel;
  const ParameterBytes gemm = parameter_bytes(scheme);
  const ParameterBytes other = parameter_bytes(find_training_scheme("bf16"));
  Elements elements = count_elements(setup.shape);
  TrainingCost cost;
  cost.parameters = elements.gemm + elements.other;
  const auto split = static_cast<double>(p.tensor * p.pipeline);
  elements = {elements.gemm / split, elements.other / split};
  cost.gpu_parameters = elements.gemm + elements.other;
  const auto sum = [&](double of_gemm, double of_other) {
    return elements.gemm * of_gemm + elements.other * of_other;
  };
  const auto data = static_cast<double>(p.data);
  const double gemm_states = gemm.master + gemm.m + gemm.v;
  const double other_states = other.master + other.m + other.v;
  cost.weights = sum(gemm.weight, other.weight);
  cost.gradients = sum(gemm.gradient, other.gradient);
  cost.optimizer = sum(gemm_states, other_states) / data;
  cost.activations = activation_bytes(setup, scheme);
  const double ring = (data - 1.0) / data;
  cost.gradient_traffic = ring * sum(bytes_of(scheme.gradient_traffic), bytes_of(FormatId::f32));
  cost.weight_traffic = ring * sum(bytes_of(scheme.weight_traffic), bytes_of(FormatId::bf16));
  cost.activation_traffic = activation_traffic(setup, scheme);
  cost.fp8_flop_share = flop_share(setup.shape, scheme);
  cost.zero = zero_partition(setup, scheme, gemm_states, other_states);
  return cost;
}

}  // namespace fp8lab
