#include "fp8lab/model/shape.hpp"

#include <algorithm>
#include <set>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/model/block.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

const ModelShape kTiny{.name = "tiny",
                       .layers = 1,
                       .hidden = 8,
                       .heads = 4,
                       .kv_heads = 2,
                       .ffn = 12,
                       .gated = true,
                       .vocabulary = 10,
                       .experts = 2,
                       .active_experts = 1};

std::int64_t parameters(const ModelShape& shape) {
  std::int64_t sum = 0;
  for (const WeightTensor& weight : weights_of(shape)) sum += weight.size();
  return sum;
}

const ModelShape& shape_named(const char* name) {
  for (const TrainingSetup& setup : training_setups())
    if (setup.shape.name == name) return setup.shape;
  throw Error("test: no such model");
}

}  // namespace

TEST_CASE("known models have as many parameters as their makers say", "[model]") {
  CHECK(parameters(shape_named("llama-7b")) == 6738415616);
  CHECK(parameters(shape_named("mixtral-8x7b")) == 46702792704);
  CHECK(parameters(shape_named("175b")) > 174'000'000'000);
  CHECK(parameters(shape_named("175b")) < 176'000'000'000);
}

TEST_CASE("weights have names and shapes of their own", "[model]") {
  ModelShape tiny = kTiny;
  const std::vector<WeightTensor> weights = weights_of(tiny);
  std::set<std::string> names;
  for (const WeightTensor& weight : weights) CHECK(names.insert(weight.name).second);
  CHECK(names.count("model.layers.0.mlp.experts.1.down_proj.weight") == 1);
  CHECK(names.count("model.layers.0.mlp.gate.weight") == 1);
  // 2 * 80 embedding and head, 3 norms of 8, q and o 64, k and v 32, router 16, 6 of 96.
  CHECK(parameters(tiny) == 160 + 24 + 128 + 64 + 16 + 576);
  tiny.tied_embeddings = true;
  CHECK(weights_of(tiny).size() == weights.size() - 1);
}

TEST_CASE("a block has a router from two experts on", "[model]") {
  const auto has_router = [](std::int64_t experts) {
    ModelShape shape = kTiny;
    shape.experts = experts;
    const std::vector<BlockOperation> operations = block_operations(shape);
    CHECK(operations.size() == (experts > 1 ? 15 : 14));
    return std::ranges::any_of(operations,
                               [](const BlockOperation& one) { return one.name == "router"; });
  };
  CHECK_FALSE(has_router(1));
  CHECK(has_router(2));
  CHECK(has_router(3));
}

TEST_CASE("shapes come from TOML files", "[model]") {
  const TemporaryFolder folder("shape");
  write_text(folder / "small.toml",
             "layers = 4\nhidden = 64\nheads = 8\nvocabulary = 100\nkv_heads = 2\n"
             "[parallel]\ndata = 8\n");
  const TrainingSetup setup = find_training_setup((folder / "small.toml").string());
  CHECK(setup.shape.name == "small");
  CHECK(setup.shape.ffn == 256);
  CHECK(setup.shape.kv_size() == 16);
  CHECK(setup.parallel.data == 8);
  CHECK(setup.parallel.tensor == 1);
}

TEST_CASE("a shape that cannot be is refused with its reason", "[model]") {
  const TemporaryFolder folder("shape");
  const std::string good = "layers = 4\nhidden = 64\nheads = 8\nvocabulary = 100\n";
  const auto refused = [&](const std::string& text) {
    write_text(folder / "bad.toml", text);
    return [path = folder / "bad.toml"] { read_training_setup(path); };
  };
  CHECK_THROWS_WITH(refused(good + "layer = 1\n")(), contains("'layer'"));
  CHECK_THROWS_WITH(refused("layers = 4\n")(), contains("hidden"));
  CHECK_THROWS_WITH(refused(good + "gated = 1\n")(), contains("gated: expected true or false"));
  CHECK_THROWS_WITH(refused(good + "kv_heads = 3\n")(), contains("kv_heads"));
  CHECK_THROWS_WITH(refused(good + "active_experts = 2\n")(), contains("active_experts"));
  CHECK_THROWS_WITH(refused(good + "[parallel]\npipeline = 3\n")(), contains("pipeline"));
  CHECK_THROWS_WITH(refused(good + "[parallel]\nexpert = 3\n")(), contains("'expert'"));
  CHECK_THROWS_WITH(refused("layers = \n")(), contains("bad.toml:1"));
  CHECK_THROWS_WITH(find_training_setup("8b"), contains("'8b'") && contains("175b"));
}
