#include "cost/cost_tables.hpp"

#include <limits>
#include <numeric>
#include <string>

#include "cost/published.hpp"
#include "fp8lab/core/error.hpp"
#include "training/model/block.hpp"

namespace fp8lab::experiments {
namespace {

/// How much less than `before`, in percent.
double saving(double now, double before) {
  return before > 0.0 ? 100.0 * (1.0 - now / before) : 0.0;
}

std::string parallelism_text(const Parallelism& p) {
  return std::to_string(p.tensor) + " x " + std::to_string(p.pipeline) + " x " +
         std::to_string(p.data);
}

/// A figure of the paper for this set-up and scheme, GiB; NaN if it has none.
double published(const ModelCosts& model, const TrainingScheme& scheme, double Published::*bf16,
                 double Published::*fp8) {
  const Published* row = find_published(model.setup);
  const bool known = row != nullptr && (scheme.name == "bf16" || scheme.name == "fp8-lm");
  const double figure = known ? row->*(scheme.name == "bf16" ? bf16 : fp8) : 0.0;
  return figure > 0.0 ? figure : std::numeric_limits<double>::quiet_NaN();
}

double difference(double counted, double published) { return 100.0 * (counted / published - 1.0); }

}  // namespace

const TrainingCost& ModelCosts::of(std::string_view name) const {
  for (std::size_t i = 0; i < schemes.size(); ++i)
    if (schemes[i].name == name) return costs[i];
  throw Error("scheme", "one that was computed", "'" + std::string(name) + "'");
}

ModelCosts model_costs(const TrainingSetup& setup, std::span<const TrainingScheme> schemes) {
  ModelCosts result{setup, {schemes.begin(), schemes.end()}, {}};
  for (const TrainingScheme& scheme : schemes) result.costs.push_back(training_cost(setup, scheme));
  return result;
}

Table parameter_table(std::span<const TrainingScheme> schemes) {
  Table table("parameters", "Bytes per parameter of a block GEMM, from buffers, not sharded",
              {{"scheme", "", "how training is stored"},
               {"weight", "B", "weights besides the master, copies for GEMMs included"},
               {"master", "B", "master weight"},
               {"gradient", "B", "stored gradient"},
               {"m", "B", "first moment"},
               {"v", "B", "second moment"},
               {"optimizer", "B", "master, gradient and moments"},
               {"total", "B", "all of them"},
               {"used_by", "", "systems"}});
  for (const TrainingScheme& scheme : schemes) {
    const ParameterBytes b = parameter_bytes(scheme);
    table.add_row({std::string(scheme.name), b.weight, b.master, b.gradient, b.m, b.v,
                   b.optimizer(), b.total(), std::string(scheme.used_by)});
  }
  return table;
}

Table memory_table(std::span<const ModelCosts> models) {
  Table table("memory", "Memory per GPU, mean over GPUs; master and moments sharded (ZeRO 1)",
              {{"model", "", "shape"},
               {"gpus", "", "tensor x pipeline x data ranks"},
               {"micro_batch", "1", "sequences"},
               {"scheme", "", "how training is stored"},
               {"parameters", "1e9", "of the model"},
               {"weights", "GiB", "all copies but the master"},
               {"gradients", "GiB", "stored gradients"},
               {"optimizer", "GiB", "master and moments"},
               {"activations", "GiB", "kept for the backward pass"},
               {"total", "GiB", "of these"},
               {"published", "GiB", "total in FP8-LM's Table 5; nan: not in it"},
               {"difference", "%", "total above the published one; memory_published explains it"},
               {"fp8_flops", "%", "FLOPs of blocks and head that run in FP8"}});
  for (const ModelCosts& model : models)
    for (std::size_t i = 0; i < model.costs.size(); ++i) {
      const TrainingCost& c = model.costs[i];
      const double total = c.memory() / kGib;
      const double paper =
          published(model, model.schemes[i], &Published::bf16_memory, &Published::fp8_memory);
      table.add_row({model.setup.shape.name, parallelism_text(model.setup.parallel),
                     model.setup.parallel.micro_batch, std::string(model.schemes[i].name),
                     c.parameters / 1e9, c.weights / kGib, c.gradients / kGib, c.optimizer / kGib,
                     c.activations / kGib, total, paper, difference(total, paper),
                     100.0 * c.fp8_flop_share});
    }
  return table;
}

Table traffic_table(std::span<const ModelCosts> models) {
  Table table("traffic",
              "Traffic per GPU: gradients and weights per step, activations per micro-batch",
              {{"model", "", "shape"},
               {"scheme", "", "how training is stored"},
               {"gradients", "GiB", "reduce-scatter over data ranks, a ring"},
               {"weights", "GiB", "all-gather over data ranks, a ring"},
               {"both", "GiB", "gradients and weights"},
               {"published", "GiB", "both in FP8-LM's Table 7; nan: not in it"},
               {"difference", "%", "both above the published volume"},
               {"gradient_saving", "%", "of gradients, against bf16"},
               {"saving", "%", "of gradients and weights, against bf16"},
               {"activations", "GiB", "over tensor ranks"},
               {"activation_saving", "%", "of activations, against bf16"}});
  const TrainingScheme& bf16 = find_training_scheme("bf16");
  for (const ModelCosts& model : models) {
    const TrainingCost base = training_cost(model.setup, bf16);
    for (std::size_t i = 0; i < model.costs.size(); ++i) {
      const TrainingCost& c = model.costs[i];
      const double both = c.gradient_traffic + c.weight_traffic;
      const double paper =
          published(model, model.schemes[i], &Published::bf16_traffic, &Published::fp8_traffic);
      table.add_row(
          {model.setup.shape.name, std::string(model.schemes[i].name), c.gradient_traffic / kGib,
           c.weight_traffic / kGib, both / kGib, paper, difference(both / kGib, paper),
           saving(c.gradient_traffic, base.gradient_traffic),
           saving(both, base.gradient_traffic + base.weight_traffic), c.activation_traffic / kGib,
           saving(c.activation_traffic, base.activation_traffic)});
    }
  }
  return table;
}

Table zero_table(std::span<const ModelCosts> models) {
  Table table("zero", "ZeRO: master and moments on the data ranks of a first pipeline stage",
              {{"model", "", "shape"},
               {"scheme", "", "how training is stored"},
               {"ranks", "1", "data ranks"},
               {"whole_tensors", "1", "kept on one rank each; the others are split"},
               {"smallest", "GiB", "of the lightest rank"},
               {"mean", "GiB", "load of each rank if tensors were split"},
               {"largest", "GiB", "of the heaviest rank"},
               {"imbalance", "%", "largest over mean, minus one"}});
  for (const ModelCosts& model : models)
    for (std::size_t i = 0; i < model.costs.size(); ++i) {
      const Partition& p = model.costs[i].zero;
      const std::int64_t total = std::accumulate(p.load.begin(), p.load.end(), std::int64_t{0});
      table.add_row({model.setup.shape.name, std::string(model.schemes[i].name),
                     static_cast<std::int64_t>(p.load.size()),
                     static_cast<std::int64_t>(p.rank_of.size()),
                     static_cast<double>(p.smallest()) / kGib,
                     static_cast<double>(total) / static_cast<double>(p.load.size()) / kGib,
                     static_cast<double>(p.largest()) / kGib, 100.0 * p.imbalance()});
    }
  return table;
}

Table activation_table(std::span<const ModelCosts> models) {
  Table table("activations", "Activations that a layer keeps for its backward pass, per token",
              {{"model", "", "shape"},
               {"scheme", "", "how training is stored"},
               {"tensor", "", "what is kept"},
               {"elements", "1", "per token"},
               {"format", "", "of the copy that is kept"},
               {"bytes", "B", "per token"}});
  for (const ModelCosts& model : models)
    for (const TrainingScheme& scheme : model.schemes)
      for (const KeptActivation& kept : kept_activations(model.setup.shape, scheme))
        table.add_row({model.setup.shape.name, std::string(scheme.name), std::string(kept.name),
                       kept.elements, std::string(format(kept.format).name), kept.bytes()});
  return table;
}

Table block_table(std::span<const ModelShape> shapes) {
  Table table("block", "Operations of one transformer block, forward, one sequence",
              {{"model", "", "shape"},
               {"operation", "", "as the FP8 guide lists it"},
               {"gemm", "GFLOP", "multiplications and additions of products"},
               {"other", "GFLOP", "element-wise work and reductions"},
               {"share", "%", "of the block's FLOPs"},
               {"listed_fp8", "", "an FP8 GEMM in the FP8 guide's list"},
               {"deployed_fp8", "", "in FP8 in TransformerEngine and DeepSeek-V3"}});
  for (const ModelShape& shape : shapes) {
    const std::vector<BlockOperation> operations = block_operations(shape);
    const double all =
        std::accumulate(operations.begin(), operations.end(), 0.0,
                        [](double sum, const BlockOperation& o) { return sum + o.flops(); });
    for (const BlockOperation& o : operations)
      table.add_row({shape.name, std::string(o.name), o.gemm_flops / 1e9, o.other_flops / 1e9,
                     100.0 * o.flops() / all, o.listed_fp8, o.deployed_fp8});
  }
  return table;
}

}  // namespace fp8lab::experiments
