#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <string>
#include <tuple>
#include <vector>

#include "cost/cost_tables.hpp"
#include "cost/memory_gap.hpp"
#include "cost/published.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "training/model/block.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<TrainingSetup> models;
  std::vector<TrainingScheme> schemes;
  std::vector<ModelShape> blocks;
  std::vector<std::int64_t> sequences;
  std::vector<std::int64_t> ranks;

  static constexpr auto fields() {
    return std::tuple{
        field("models", &Settings::models, find_training_setup),
        field("schemes", &Settings::schemes, find_training_scheme),
        field("blocks", &Settings::blocks,
              [](const std::string& name) { return find_training_setup(name).shape; }),
        field("sequences", &Settings::sequences), field("ranks", &Settings::ranks)};
  }
};

double both(const TrainingCost& cost) { return cost.gradient_traffic + cost.weight_traffic; }

/// The paper's figures beside ours.
Table published_table() {
  Table table("published", "FP8-LM's published figures and this count",
              {{"model", "", "shape"},
               {"quantity", "", "per GPU"},
               {"scheme", "", "how training is stored"},
               {"published", "GiB", "Tables 5 and 7 of the paper"},
               {"counted", "GiB", "here"},
               {"ratio", "1", "counted over published"}});
  for (const Published& row : kPublished) {
    const ModelCosts costs =
        model_costs(find_training_setup(std::string(row.model)), training_schemes());
    const auto add = [&](const char* quantity, const char* scheme, double published,
                         double counted) {
      if (published > 0.0)
        table.add_row({std::string(row.model), std::string(quantity), std::string(scheme),
                       published, counted / kGib, counted / kGib / published});
    };
    const TrainingCost& bf16 = costs.of("bf16");
    const TrainingCost& fp8 = costs.of("fp8-lm");
    add("gradients and weights sent", "bf16", row.bf16_traffic, both(bf16));
    add("gradients and weights sent", "fp8-lm", row.fp8_traffic, both(fp8));
    add("activations sent", "bf16", row.bf16_activation_traffic, bf16.activation_traffic);
    add("activations sent", "fp8-lm", row.fp8_activation_traffic, fp8.activation_traffic);
    add("memory", "bf16", row.bf16_memory, bf16.memory());
    add("memory", "fp8-lm", row.fp8_memory, fp8.memory());
  }
  return table;
}

/// FP8 FLOPs of a block over the length of a sequence.
Plot share_plot(const Settings& p) {
  Plot plot{"fp8_share",
            "FLOPs of a block in FP8: GEMMs with a weight",
            {"sequence (tokens)", true, 2},
            {"FP8 share of FLOPs (%)"},
            {}};
  for (ModelShape shape : p.blocks) {
    Series series{shape.name, {}, {}};
    for (const std::int64_t sequence : p.sequences) {
      shape.sequence = sequence;
      series.x.push_back(static_cast<double>(sequence));
      series.y.push_back(100.0 * fp8_share(block_operations(shape), Fp8Gemms::deployed));
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot imbalance_plot(const Settings& p, const std::vector<ModelCosts>& models) {
  Plot plot{"imbalance",
            "ZeRO with whole tensors: the heaviest rank (FP8-LM states)",
            {"data ranks", true, 2},
            {"largest over mean load, minus one (%)"},
            {}};
  for (const ModelCosts& model : models) {
    Series series{model.setup.shape.name, {}, {}};
    TrainingSetup setup = model.setup;
    for (const std::int64_t ranks : p.ranks) {
      setup.parallel.data = ranks;
      series.x.push_back(static_cast<double>(ranks));
      series.y.push_back(100.0 *
                         training_cost(setup, find_training_scheme("fp8-lm")).zero.imbalance());
    }
    plot.series.push_back(series);
  }
  return plot;
}

std::vector<std::string> findings(const std::vector<ModelCosts>& models,
                                  const std::vector<ModelShape>& shapes) {
  const TrainingScheme& bf16 = find_training_scheme("bf16");
  const TrainingScheme& fp8 = find_training_scheme("fp8-lm");
  std::vector<std::string> lines{fmt::format(
      "Master, gradient and moments take {:g} bytes per parameter under BF16 and {:g} under "
      "FP8-LM, from their buffers; with the weights that GEMMs read {:g} and {:g}.",
      parameter_bytes(bf16).optimizer(), parameter_bytes(fp8).optimizer(),
      parameter_bytes(bf16).total(), parameter_bytes(fp8).total())};
  for (const ModelCosts& model : models) {
    const TrainingCost before = training_cost(model.setup, bf16);
    const TrainingCost after = training_cost(model.setup, fp8);
    lines.push_back(fmt::format(
        "{}, {} data ranks: FP8-LM sends {:.3g} instead of {:.3g} GiB of gradients and weights per "
        "step ({:.1f} % less), counts {:.1f} % less memory per GPU at the same micro-batch{}, and "
        "its heaviest ZeRO rank holds {:.2f} % more than the mean.",
        model.setup.shape.name, model.setup.parallel.data, both(after) / kGib, both(before) / kGib,
        100.0 * (1.0 - both(after) / both(before)),
        100.0 * (1.0 - after.memory() / before.memory()), published_saving_text(model.setup),
        100.0 * after.zero.imbalance()));
  }
  for (const ModelShape& shape : shapes) {
    const std::vector<BlockOperation> operations = block_operations(shape);
    lines.push_back(fmt::format(
        "{}, {} tokens: GEMMs are {:.2f} % of a block's FLOPs, those with a weight (FP8) {:.1f} %.",
        shape.name, shape.sequence, 100.0 * gemm_share(operations),
        100.0 * fp8_share(operations, Fp8Gemms::deployed)));
  }
  return lines;
}

}  // namespace

Results cost(const RunContext& context) {
  const auto p = read_parameters<Settings>(context.parameters);
  std::vector<ModelCosts> models;
  for (const TrainingSetup& setup : p.models) models.push_back(model_costs(setup, p.schemes));
  Results results;
  results.tables = {parameter_table(p.schemes), memory_table(models),     traffic_table(models),
                    zero_table(models),         activation_table(models), block_table(p.blocks),
                    published_table(),          memory_gap_table()};
  results.plots = {share_plot(p), imbalance_plot(p, models)};
  results.findings = findings(models, p.blocks);
  return results;
}

}  // namespace fp8lab::experiments
