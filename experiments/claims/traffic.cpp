// F5, S16 and P7 - P9: what FP8 does to traffic between GPUs, to their memory and to utilization.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "accumulator-drift/drift.hpp"
#include "claims/groups.hpp"
#include "cost/cost_tables.hpp"
#include "cost/published.hpp"
#include "fp8-allreduce/reduce.hpp"
#include "training/model/block.hpp"
#include "training/model/cost.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<int, 3> kReducedOver{8, 256, 1024};

/// What stays inside a GPU: a product of N(0, 1) operands in E4M3 on Hopper, promoted.
double error_inside(const ClaimContext& context) {
  const Pipeline pipeline{"product", "sm90.wgmma.e4m3", 128};
  return pipeline_error(make_operands({Distribution::normal, 16, 16, 4096}, context.seed), pipeline,
                        {}, context.threads, context.backend);
}

Measurement measure_f5(const ClaimContext& context) {
  const WireFormat& wire = find_wire_format("e4m3fn");
  const double inside = error_inside(context);
  Measurement m;
  m.figure = fmt::format("an FP8 product is {:.3g} % off (K = 4096, promoted); the mean gradient",
                         100.0 * inside);
  m.values.push_back({"product_error", "1", inside});
  for (const int ranks : kReducedOver) {
    const ReduceInput input({context.seed, "claims/all-reduce"}, {}, ranks);
    for (const Topology topology : {Topology::ring, Topology::tree, Topology::direct}) {
      const double error = reduce_mean(in_process_fabric(), input, wire, topology,
                                       ReduceScaling::unified_over_n, context.backend)
                               .loss.relative_l2;
      const std::string name(to_string(topology));
      m.figure += fmt::format("{} {} over {} ranks {:.3g} %", m.values.size() == 1 ? "" : ",", name,
                              ranks, 100.0 * error);
      m.values.push_back({fmt::format("{}_{}", name, ranks), "1", error});
    }
  }
  return m;
}

Verdict judge_f5(Values values) {
  constexpr double kMuchWorse = 3.0;
  const double limit = kMuchWorse * value_of(values, "product_error");
  const auto worse = [&](const std::string& name) {
    return value_of(values, name + "_256") > limit && value_of(values, name + "_1024") > limit;
  };
  if (worse("ring") && worse("tree") && worse("direct")) return Verdict::holds;
  return worse("ring") || worse("tree") ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// Bytes that a step of fully sharded training sends per parameter: two gathers of the weights, one
/// scatter of the gradients.
double step_bytes(double weight, double gradient) { return 2.0 * weight + gradient; }

Measurement measure_s16(const ClaimContext&) {
  double gemm = 0.0;
  double all = 0.0;
  for (const WeightTensor& weight : weights_of(find_training_setup("llama-7b").shape)) {
    const auto size = static_cast<double>(weight.size());
    all += size;
    gemm += weight.is_block_gemm() ? size : 0.0;
  }
  const double converted = gemm / all;
  const double gathered = converted * 1.0 + (1.0 - converted) * 2.0;
  Measurement m;
  m.values = {{"gathers_of_layers", "1", 2.0 / 1.0},
              {"gathers_of_model", "1", 2.0 / gathered},
              {"step_bf16_gradients", "1", step_bytes(2.0, 2.0) / step_bytes(gathered, 2.0)},
              {"step_fp32_gradients", "1", step_bytes(2.0, 4.0) / step_bytes(gathered, 4.0)}};
  m.figure = fmt::format(
      "gathers of converted weights shrink by {:.3g}, those of a whole Llama 7B, {:.1f} % of which "
      "converts, by {:.3g}; all traffic of a step, with the scatter of gradients in BF16, by "
      "{:.3g}, in FP32 by {:.3g}",
      m.values[0].value, 100.0 * converted, m.values[1].value, m.values[2].value,
      m.values[3].value);
  return m;
}

Verdict judge_s16(Values values) {
  constexpr double kTwice = 1.9;
  if (value_of(values, "step_bf16_gradients") >= kTwice) return Verdict::holds;
  return value_of(values, "gathers_of_model") >= kTwice ? Verdict::holds_with_correction
                                                        : Verdict::does_not_hold;
}

/// An H100 SXM without sparsity (NVIDIA's data sheet), FLOP/s in FP8.
constexpr double kH100Peak = 1979e12;

/// FLOPs of a step for one sequence: forward, and twice that backward.
double training_flops(const ModelShape& shape, AttentionCount attention) {
  double block = 0.0;
  for (const BlockOperation& operation : block_operations(shape, attention))
    block += operation.gemm_flops;
  const double head = 2.0 * static_cast<double>(shape.sequence * shape.hidden) *
                      static_cast<double>(shape.vocabulary);
  return 3.0 * (static_cast<double>(shape.layers) * block + head);
}

Measurement measure_p7(const ClaimContext&) {
  constexpr double kFp8Lm = 34.2;
  constexpr double kTransformerEngine = 24.9;
  const TrainingSetup setup = find_training_setup("175b");
  const auto gpus =
      static_cast<double>(setup.parallel.tensor * setup.parallel.pipeline * setup.parallel.data);
  const auto utilization = [&](AttentionCount attention) {
    return 100.0 * kFp8RunLarger.throughput * training_flops(setup.shape, attention) /
           (gpus * kH100Peak);
  };
  const double full = utilization(AttentionCount::full);
  const double causal = utilization(AttentionCount::causal);
  const double gain = 100.0 * (kFp8Lm / kTransformerEngine - 1.0);
  Measurement m;
  m.figure = fmt::format(
      "{:g} samples/s (published) of {} on {:g} GPUs are {:.1f} % of their FP8 peak ({:.1f} % with "
      "the causal half of attention alone); 34.2 over 24.9 is {:.1f} % more; no throughput is "
      "measured here",
      kFp8RunLarger.throughput, setup.shape.name, gpus, full, causal, gain);
  m.values = {{"utilization", "%", full}, {"utilization_causal", "%", causal}, {"gain", "%", gain}};
  return m;
}

Verdict judge_p7(Values values) {
  const auto near = [&](const char* name) {
    return std::abs(value_of(values, name) - 34.2) <= 1.0;
  };
  if (std::abs(value_of(values, "gain") - 37.4) > 0.2) return Verdict::does_not_hold;
  if (near("utilization")) return Verdict::holds;
  return near("utilization_causal") ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

Measurement measure_p8(const ClaimContext&) {
  Measurement m;
  for (const Published& row : kPublished) {
    if (row.bf16_activation_traffic == 0.0) continue;
    const TrainingSetup setup = find_training_setup(std::string(row.model));
    const double before = training_cost(setup, find_training_scheme("bf16")).activation_traffic;
    const double after = training_cost(setup, find_training_scheme("fp8-lm")).activation_traffic;
    const double counted_saving = 100.0 * (1.0 - after / before);
    const double published =
        100.0 * (1.0 - row.fp8_activation_traffic / row.bf16_activation_traffic);
    m.figure += fmt::format("{}{}: {:.1f} % counted, {:.1f} % by the published volumes",
                            m.values.empty() ? "" : "; ", row.model, counted_saving, published);
    m.values.push_back({fmt::format("saved_{}", row.model), "%", counted_saving});
    m.values.push_back({fmt::format("published_{}", row.model), "%", published});
  }
  m.values.push_back({"all_gather_saved", "%", 100.0 * (1.0 - 8.0 / 16.0)});
  m.figure =
      "an all-gather alone saves 50 %; two of them and a reduce-scatter that stays in BF16, " +
      m.figure;
  return m;
}

Verdict judge_p8(Values values) {
  constexpr double kClaimed = 34.0;
  if (std::abs(value_of(values, "all_gather_saved") - kClaimed) <= 1.0) return Verdict::holds;
  for (const std::string model : {"13b", "175b"})
    if (std::abs(value_of(values, "saved_" + model) - kClaimed) > 1.0 ||
        std::abs(value_of(values, "published_" + model) - kClaimed) > 1.0)
      return Verdict::does_not_hold;
  return Verdict::holds_with_correction;
}

constexpr double kGpuMemory = 80e9 / kGib;

Measurement measure_p9(const ClaimContext&) {
  TrainingSetup setup = find_training_setup("175b");
  setup.parallel.data = 1;  // 8 tensor times 4 pipeline ranks
  setup.shape.sequence = 4096;
  Measurement m;
  m.figure = fmt::format("counted per GPU of {}, which has {:.1f} GiB:",
                         setup.parallel.tensor * setup.parallel.pipeline, kGpuMemory);
  for (const TrainingScheme& scheme : training_schemes()) {
    const double memory = training_cost(setup, scheme).memory() / kGib;
    m.figure += fmt::format("{} {} {:.1f} GiB", m.values.empty() ? "" : ",", scheme.name, memory);
    m.values.push_back({fmt::format("memory_{}", scheme.name), "GiB", memory});
  }
  m.values.push_back({"memory_of_gpu", "GiB", kGpuMemory});
  m.figure += "; without logits, workspaces and allocators";
  return m;
}

Verdict judge_p9(Values values) {
  const double gpu = value_of(values, "memory_of_gpu");
  if (value_of(values, "memory_fp8-lm") > gpu) return Verdict::does_not_hold;
  const bool impossible =
      value_of(values, "memory_bf16") > gpu && value_of(values, "memory_te-fp8") > gpu;
  return impossible ? Verdict::holds : Verdict::holds_with_correction;
}

}  // namespace

std::vector<Claim> traffic_claims() {
  return {
      {"F5", kTutorial,
       "An FP8 all-reduce over 256 and more ranks is much worse than errors inside a GPU.",
       "mean of 2048 gradients of 3 decades in E4M3, agreed scale over N, by ring, tree and direct "
       "exchange, over 8, 256 and 1024 ranks; beside it a product in E4M3 on Hopper with "
       "promotion, "
       "K = 4096",
       "holds if the error over 256 and over 1024 ranks is over 3 times the product's by every "
       "topology; with a correction if by ring or tree, which round at every hop",
       measure_f5, judge_f5},
      {"S16", kFactoryPage, "an FP8 all-gather halves FSDP's communication",
       "bytes per parameter of a Llama 7B: two gathers of weights and one scatter of gradients a "
       "step; embedding and head stay in BF16",
       "holds if all traffic of a step shrinks by 1.9 with gradients in BF16; with a correction if "
       "the gathers of the model do",
       measure_s16, judge_s16, Basis::arithmetic},
      {"P7", kSummary, "FP8-LM reaches 34.2 % of peak, TransformerEngine 24.9 %: 37.4 % more",
       "arithmetic: FLOPs of GPT-175B's products and head, counted here, at the published samples "
       "per second, over the FP8 peak of the GPUs of the published run",
       "holds if that is 34.2 % within 1 point and the quotient 37.4 % within 0.2; with a "
       "correction if only with the causal half of attention; no throughput is measured",
       measure_p7, judge_p7, Basis::by_reading},
      {"P8", kSummary, "an 8-bit all-gather of activations saves 34 %",
       "bytes of an all-gather in 8 bits instead of 16, and of all activation traffic of tensor "
       "ranks, counted and from the published volumes",
       "holds if the all-gather alone saves 34 % within 1 point; with a correction if the counted "
       "and the published traffic with its reduce-scatters do, for both models",
       measure_p8, judge_p8, Basis::arithmetic},
      {"P9", kSummary,
       "GPT-175B trains on 32 H100s of 80 GB at 4096 tokens under FP8-LM, not under BF16 or "
       "TransformerEngine",
       "memory per GPU as `fp8lab cost` counts it: 8 tensor and 4 pipeline ranks, no data ranks",
       "holds if FP8-LM's fits 80 GB and the two others' do not; with a correction if only the "
       "first is so",
       measure_p9, judge_p9, Basis::arithmetic},
  };
}

}  // namespace fp8lab::experiments
