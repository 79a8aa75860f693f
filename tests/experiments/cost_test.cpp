#include "training/model/cost.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "catch.hpp"
#include "cost/cost_tables.hpp"
#include "cost/published.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "io/temporary.hpp"
#include "training/model/block.hpp"

using namespace fp8lab;
using fp8lab::experiments::kGib;

namespace {

TrainingCost cost_of(const char* model, const char* scheme) {
  return training_cost(find_training_setup(model), find_training_scheme(scheme));
}

const BlockOperation& row(const std::vector<BlockOperation>& rows, std::string_view name) {
  for (const BlockOperation& operation : rows)
    if (operation.name == name) return operation;
  throw Error("test: no such operation");
}

}  // namespace

TEST_CASE("bytes a parameter are those of the buffers", "[model]") {
  const ParameterBytes bf16 = parameter_bytes(find_training_scheme("bf16"));
  CHECK(bf16.optimizer() == 16.0);
  CHECK(bf16.total() == 18.0);
  const ParameterBytes fp8 = parameter_bytes(find_training_scheme("fp8-lm"));
  CHECK(fp8.optimizer() == 6.0);
  CHECK(fp8.weight == 1.0);
}

TEST_CASE("counted traffic is what FP8-LM publishes", "[model]") {
  for (const experiments::Published& published : experiments::kPublished) {
    INFO(published.model);
    const std::string model(published.model);
    const TrainingCost bf16 = cost_of(model.c_str(), "bf16");
    const TrainingCost fp8 = cost_of(model.c_str(), "fp8-lm");
    const auto both = [](const TrainingCost& c) {
      return (c.gradient_traffic + c.weight_traffic) / kGib;
    };
    // The uneven stages of 175B are counted as their mean.
    const double tolerance = published.model == "175b" ? 0.06 : 0.005;
    CHECK(std::abs(both(bf16) / published.bf16_traffic - 1.0) < tolerance);
    CHECK(std::abs(both(fp8) / published.fp8_traffic - 1.0) < tolerance);
    if (published.bf16_activation_traffic == 0.0) {
      CHECK(bf16.activation_traffic == 0.0);
    } else {
      CHECK(std::abs(bf16.activation_traffic / kGib - published.bf16_activation_traffic) < 0.05);
      CHECK(std::abs(fp8.activation_traffic / kGib - published.fp8_activation_traffic) < 0.05);
    }
    // Less than published, where allocators and workspaces count too.
    CHECK(bf16.memory() / kGib < published.bf16_memory);
    CHECK(fp8.memory() / kGib < published.fp8_memory);
  }
}

TEST_CASE("published figures stand beside counted ones", "[model]") {
  TrainingSetup setup = find_training_setup("7b");
  const auto cell = [&](auto make_table, std::size_t row, const char* column) {
    const std::vector costs{experiments::model_costs(setup, training_schemes())};
    const Table table = make_table(costs);
    for (std::size_t c = 0; c < table.columns().size(); ++c)
      if (table.columns()[c].name == column) return std::get<double>(table.rows()[row][c]);
    throw std::out_of_range(column);
  };
  const auto memory = [](const auto& costs) { return experiments::memory_table(costs); };
  const auto traffic = [](const auto& costs) { return experiments::traffic_table(costs); };
  const std::size_t bf16 = 0;
  const std::size_t te = 1;
  const std::size_t fp8_lm = 2;
  CHECK(cell(memory, bf16, "published") == 69.6);
  CHECK(cell(memory, fp8_lm, "published") == 49.4);
  CHECK(std::isnan(cell(memory, te, "published")));
  CHECK(std::abs(cell(memory, fp8_lm, "difference") -
                 100.0 * (cell(memory, fp8_lm, "total") / 49.4 - 1.0)) < 1e-9);
  CHECK(cell(traffic, fp8_lm, "published") == 13.9);
  CHECK(std::abs(cell(traffic, fp8_lm, "difference")) < 0.5);
  // The paper has no figure for another micro-batch.
  setup.parallel.micro_batch = 1;
  CHECK(std::isnan(cell(memory, bf16, "published")));
  CHECK(std::isnan(cell(traffic, fp8_lm, "difference")));
}

TEST_CASE("BF16 memory of a dense model adds up by hand", "[model]") {
  TrainingSetup setup = find_training_setup("7b");
  setup.parallel = {};
  const TrainingCost cost = training_cost(setup, find_training_scheme("bf16"));
  CHECK(cost.weights == 2.0 * cost.parameters);
  CHECK(cost.gradients == 4.0 * cost.parameters);
  CHECK(cost.optimizer == 12.0 * cost.parameters);
  // 32 bytes a token, layer and channel: 2 (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4).
  CHECK(cost.activations == 32.0 * 4096 * 2048 * 32);
  CHECK(cost.gradient_traffic == 0.0);
  CHECK(cost.fp8_flop_share == 0.0);
}

TEST_CASE("ZeRO keeps scaled tensors whole and splits the others", "[model]") {
  const TrainingCost fp8 = cost_of("7b", "fp8-lm");
  CHECK(fp8.zero.load.size() == 32);
  CHECK(fp8.zero.rank_of.size() == 32 * 6);
  CHECK(cost_of("7b", "bf16").zero.rank_of.empty());
  CHECK(cost_of("7b", "bf16").zero.imbalance() < 1e-6);
  // All that the ranks hold is what a GPU's mean says, over the ranks.
  const std::int64_t total =
      std::accumulate(fp8.zero.load.begin(), fp8.zero.load.end(), std::int64_t{0});
  CHECK(std::abs(static_cast<double>(total) / (32.0 * fp8.optimizer) - 1.0) < 1e-6);
  // More ranks than whole tensors' shares: some ranks hold one, others none.
  TrainingSetup setup = find_training_setup("125m");
  setup.parallel.data = 128;
  CHECK(training_cost(setup, find_training_scheme("fp8-lm")).zero.imbalance() > 0.5);
}

TEST_CASE("the cost experiment says of a shape from a file what its two systems cost", "[model]") {
  // Few tensors over five ranks: those that FP8-LM keeps whole weigh unlike.
  const TemporaryFolder folder("cost");
  write_text(folder / "small.toml",
             "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\n[parallel]\ndata = 5\n");
  const std::string file = (folder / "small.toml").string();
  const TrainingCost bf16 = cost_of(file.c_str(), "bf16");
  const TrainingCost fp8 = cost_of(file.c_str(), "fp8-lm");
  REQUIRE(fp8.zero.imbalance() > bf16.zero.imbalance() + 0.01);
  const auto sent = [](const TrainingCost& c) { return c.gradient_traffic + c.weight_traffic; };
  const Results results = run_quick("cost", 1, {"models=" + file});
  const std::string& said = results.findings.at(1);
  CHECK_THAT(said, contains("small, 5 data ranks: "));
  CHECK_THAT(said, contains(fmt::format("sends {:.3g} instead of {:.3g} GiB", sent(fp8) / kGib,
                                        sent(bf16) / kGib)));
  CHECK_THAT(said,
             contains(fmt::format("({:.1f} % less)", 100.0 * (1.0 - sent(fp8) / sent(bf16)))));
  CHECK_THAT(said, contains(fmt::format("counts {:.1f} % less memory",
                                        100.0 * (1.0 - fp8.memory() / bf16.memory()))));
  CHECK_THAT(said, contains(fmt::format("holds {:.2f} % more than the mean",
                                        100.0 * fp8.zero.imbalance())));
}

TEST_CASE("a gated block has the 14 operations of the FP8 guide", "[model]") {
  ModelShape shape = find_training_setup("llama-7b").shape;
  const std::vector<BlockOperation> rows = block_operations(shape);
  CHECK(rows.size() == 14);
  int listed = 0;
  int deployed = 0;
  for (const BlockOperation& operation : rows) {
    listed += operation.listed_fp8 ? 1 : 0;
    deployed += operation.deployed_fp8 ? 1 : 0;
  }
  CHECK(listed == 8);
  CHECK(deployed == 7);
  CHECK(row(rows, "Q = x W_q").gemm_flops == 2.0 * 2048 * 4096 * 4096);
  CHECK(row(rows, "attention V").gemm_flops == 2.0 * 2048 * 2048 * 4096);
  CHECK(row(rows, "down = x W_down").gemm_flops == 2.0 * 2048 * 4096 * 11008);
  CHECK(row(rows, "softmax(Q K^T)").other_flops == 6.0 * 2048 * 2048 * 32);
  CHECK(gemm_share(rows) > 0.998);
  // A causal kernel computes the pairs on and below the diagonal, and nothing else changes.
  const std::vector<BlockOperation> causal = block_operations(shape, AttentionCount::causal);
  CHECK(row(causal, "attention V").gemm_flops == 2.0 * 2048 * 2049 / 2 * 4096);
  CHECK(row(causal, "softmax(Q K^T)").other_flops == 6.0 * 2048 * 2049 / 2 * 32);
  CHECK(row(causal, "down = x W_down").gemm_flops == row(rows, "down = x W_down").gemm_flops);
  shape.gated = false;
  CHECK(block_operations(shape).size() == 13);
  const ModelShape mixtral = find_training_setup("mixtral-8x7b").shape;
  CHECK(block_operations(mixtral).size() == 15);
  CHECK(row(block_operations(mixtral), "up = x W_up").gemm_flops == 2.0 * 2048 * 4096 * 14336 * 2);
}

TEST_CASE("a layer keeps what its backward pass reads, by hand", "[model]") {
  const auto elements = [](const char* model, const char* scheme) {
    std::vector<std::int64_t> counts;
    for (const KeptActivation& kept :
         kept_activations(find_training_setup(model).shape, find_training_scheme(scheme)))
      counts.push_back(kept.elements);
    return counts;
  };
  const std::int64_t h = 4096;
  const std::int64_t f = 11008;
  // Gated: the activation reads two products.
  CHECK(elements("llama-7b", "bf16") == std::vector<std::int64_t>{h, h, 3 * h, h, h, h, 2 * f, f});
  // FP8 keeps the projection's input beside the output of attention.
  CHECK(elements("llama-7b", "fp8-lm") ==
        std::vector<std::int64_t>{h, h, 3 * h, h, h, h, 2 * f, f, h});
  CHECK(elements("7b", "bf16")[6] == 4 * h);
}

TEST_CASE("unknown schemes are named with the known ones", "[model]") {
  CHECK_THROWS_WITH(find_training_scheme("fp4"), contains("'fp4'") && contains("fp8-lm"));
}
