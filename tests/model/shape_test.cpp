#include "training/model/shape.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/tensor.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model/tiny.hpp"
#include "training/model/block.hpp"

using namespace fp8lab;
using test::kTiny;

namespace {

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

TEST_CASE("known models have the shapes and the GPUs of their sources", "[model]") {
  const auto gpt = [](const char* name, std::int64_t hidden, std::int64_t heads,
                      std::int64_t layers) {
    ModelShape shape{.name = name, .layers = layers, .hidden = hidden, .heads = heads};
    shape.kv_heads = heads;
    shape.ffn = 4 * hidden;
    shape.vocabulary = 51200;
    return shape;
  };
  ModelShape llama = gpt("llama-7b", 4096, 32, 32);
  llama.ffn = 11008;
  llama.gated = true;
  llama.vocabulary = 32000;
  ModelShape mixtral = llama;
  mixtral.name = "mixtral-8x7b";
  mixtral.kv_heads = 8;
  mixtral.ffn = 14336;
  mixtral.experts = 8;
  mixtral.active_experts = 2;
  const std::vector<TrainingSetup> expected{
      {gpt("125m", 768, 12, 12), {}},
      {gpt("7b", 4096, 32, 32), {.tensor = 1, .pipeline = 1, .data = 32, .micro_batch = 2}},
      {gpt("13b", 5120, 40, 40), {.tensor = 2, .pipeline = 1, .data = 16, .micro_batch = 2}},
      {gpt("175b", 12288, 96, 96), {.tensor = 8, .pipeline = 4, .data = 4, .micro_batch = 1}},
      {llama, {}},
      {mixtral, {}}};
  const auto setups = training_setups();
  REQUIRE(setups.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].shape.name);
    CHECK(setups[i].shape.sequence == 2048);
    CHECK(setups[i] == expected[i]);
    CHECK(find_training_setup(expected[i].shape.name) == expected[i]);
  }
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

TEST_CASE("every size and flag of a shape is read from its own key", "[model]") {
  const TemporaryFolder folder("shape");
  write_text(folder / "a.toml",
             "name = \"b\"\nlayers = 6\nhidden = 48\nheads = 12\nvocabulary = 101\nkv_heads = 3\n"
             "ffn = 77\ngated = true\nexperts = 5\nactive_experts = 2\ntied_embeddings = true\n"
             "sequence = 99\n[parallel]\ntensor = 7\npipeline = 2\ndata = 11\nmicro_batch = 13\n");
  const TrainingSetup expected{
      .shape = {.name = "b",
                .layers = 6,
                .hidden = 48,
                .heads = 12,
                .kv_heads = 3,
                .ffn = 77,
                .gated = true,
                .vocabulary = 101,
                .experts = 5,
                .active_experts = 2,
                .tied_embeddings = true,
                .sequence = 99},
      .parallel = {.tensor = 7, .pipeline = 2, .data = 11, .micro_batch = 13}};
  CHECK(read_training_setup(folder / "a.toml") == expected);
  write_text(folder / "least.toml", "layers = 6\nhidden = 48\nheads = 12\nvocabulary = 101\n");
  const TrainingSetup least{.shape = {.name = "least",
                                      .layers = 6,
                                      .hidden = 48,
                                      .heads = 12,
                                      .kv_heads = 12,
                                      .ffn = 192,
                                      .vocabulary = 101},
                            .parallel = {}};
  CHECK(read_training_setup(folder / "least.toml") == least);
  // What a file leaves out is the least, whatever else it says.
  ModelShape experts = least.shape;
  experts.experts = 5;
  write_text(folder / "least.toml",
             "layers = 6\nhidden = 48\nheads = 12\nvocabulary = 101\nexperts = 5\n");
  CHECK(read_training_setup(folder / "least.toml").shape == experts);
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

TEST_CASE("every size of a run is 1 to 2^31", "[model]") {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  struct Field {
    const char* name;
    std::int64_t& (*of)(TrainingSetup&);
  };
  const std::vector<Field> fields{
      {"layers", [](TrainingSetup& s) -> std::int64_t& { return s.shape.layers; }},
      {"hidden", [](TrainingSetup& s) -> std::int64_t& { return s.shape.hidden; }},
      {"heads", [](TrainingSetup& s) -> std::int64_t& { return s.shape.heads; }},
      {"kv_heads", [](TrainingSetup& s) -> std::int64_t& { return s.shape.kv_heads; }},
      {"ffn", [](TrainingSetup& s) -> std::int64_t& { return s.shape.ffn; }},
      {"vocabulary", [](TrainingSetup& s) -> std::int64_t& { return s.shape.vocabulary; }},
      {"experts", [](TrainingSetup& s) -> std::int64_t& { return s.shape.experts; }},
      {"active_experts", [](TrainingSetup& s) -> std::int64_t& { return s.shape.active_experts; }},
      {"sequence", [](TrainingSetup& s) -> std::int64_t& { return s.shape.sequence; }},
      {"tensor", [](TrainingSetup& s) -> std::int64_t& { return s.parallel.tensor; }},
      {"pipeline", [](TrainingSetup& s) -> std::int64_t& { return s.parallel.pipeline; }},
      {"data", [](TrainingSetup& s) -> std::int64_t& { return s.parallel.data; }},
      {"micro_batch", [](TrainingSetup& s) -> std::int64_t& { return s.parallel.micro_batch; }}};
  for (const std::int64_t all : {std::int64_t{1}, kMost}) {
    TrainingSetup setup;
    for (const Field& field : fields) field.of(setup) = all;
    CHECK_NOTHROW(validate(setup));
    for (const Field& field : fields)
      for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, kMost + 1}) {
        TrainingSetup wrong = setup;
        field.of(wrong) = value;
        CHECK_THROWS_WITH(validate(wrong), std::string(field.name) + ": expected 1 to 2^31, got " +
                                               std::to_string(value));
      }
  }
}

TEST_CASE("of two sizes one divides the other, or is not the larger", "[model]") {
  const TrainingSetup good{.shape = {.name = "a",
                                     .layers = 6,
                                     .hidden = 48,
                                     .heads = 12,
                                     .kv_heads = 4,
                                     .ffn = 5,
                                     .vocabulary = 7,
                                     .experts = 3,
                                     .active_experts = 3},
                           .parallel = {.pipeline = 3}};
  CHECK_NOTHROW(validate(good));
  const auto message = [&](auto change) {
    TrainingSetup setup = good;
    change(setup);
    return test::message_of([&] { validate(setup); });
  };
  using Setup = TrainingSetup;
  CHECK(message([](Setup& s) { s.shape.heads = 18; }) ==
        "heads: expected a divisor of hidden = 48, got 18");
  CHECK(message([](Setup& s) { s.shape.kv_heads = 8; }) ==
        "kv_heads: expected a divisor of heads = 12, got 8");
  CHECK(message([](Setup& s) { s.shape.kv_heads = 24; }) ==
        "kv_heads: expected a divisor of heads = 12, got 24");
  CHECK(message([](Setup& s) { s.shape.active_experts = 4; }) ==
        "active_experts: expected at most experts = 3, got 4");
  CHECK(message([](Setup& s) { s.parallel.pipeline = 4; }) ==
        "pipeline: expected a divisor of layers = 6, got 4");
  CHECK(message([](Setup& s) { s.parallel.tensor = 5; }) == "accepted");
  CHECK(message([](Setup& s) { s.parallel.pipeline = 6; }) == "accepted");
  CHECK(message([](Setup& s) { s.shape.kv_heads = 12; }) == "accepted");
}

TEST_CASE("what is wrong in a shape's file is said with its key", "[model]") {
  const TemporaryFolder folder("shape");
  const std::string path = (folder / "bad.toml").string();
  const auto message = [&](const std::string& text) {
    write_text(path, text);
    return test::message_of([&] { (void)read_training_setup(path); });
  };
  const std::vector<std::string> lines{"layers = 4\n", "hidden = 64\n", "heads = 8\n",
                                       "vocabulary = 100\n"};
  std::string good;
  for (const std::string& line : lines) good += line;
  CHECK(message(good) == "accepted");
  for (const std::string& line : lines) {
    std::string without;
    for (const std::string& other : lines) without += other == line ? "" : other;
    const std::string key = line.substr(0, line.find(' '));
    CHECK(message(without) == path + ": " + key + ": expected an integer, got nothing");
    CHECK(message(without + key + " = 8.0\n") ==
          path + ": " + key + ": expected an integer, got another type");
  }
  for (const char* key : {"kv_heads", "ffn", "experts", "active_experts", "sequence"})
    CHECK(message(good + key + " = \"8\"\n") ==
          path + ": " + key + ": expected an integer, got another type");
  for (const char* key : {"gated", "tied_embeddings"})
    CHECK(message(good + key + " = 1\n") ==
          path + ": " + key + ": expected true or false, got another type");
  CHECK(message("name = 7\n" + good) == path + ": name: expected text, got another type");
  CHECK(message("parallel = 4\n" + good) ==
        path + ": parallel: expected a table, got another type");
  for (const char* key : {"tensor", "pipeline", "data", "micro_batch"})
    CHECK(message(good + "[parallel]\n" + key + " = true\n") ==
          path + ": [parallel]: " + key + ": expected an integer, got another type");
  CHECK(message(good + "width = 4\n") ==
        path +
            ": expected keys of name, layers, hidden, heads, vocabulary, kv_heads, ffn, gated, "
            "experts, active_experts, tied_embeddings, sequence, parallel, got 'width'");
  CHECK(message(good + "[parallel]\nlayers = 4\n") ==
        path + ": [parallel]: expected keys of tensor, pipeline, data, micro_batch, got 'layers'");
  CHECK_THAT(message(good + "ffn = = 4\n"), contains(path + ":5:7: "));
  CHECK(message(good + "[parallel]\ndata = 0\n") == path + ": data: expected 1 to 2^31, got 0");
  CHECK_THROWS_WITH(find_training_setup("8b"),
                    "model: expected 125m, 7b, 13b, 175b, llama-7b, mixtral-8x7b, or a TOML file, "
                    "got '8b'");
}

TEST_CASE("weights stand in the order of their layers, each with its shape", "[model]") {
  using Weights = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
  const auto listed = [](const ModelShape& shape) {
    Weights weights;
    for (const WeightTensor& weight : weights_of(shape))
      weights.emplace_back(weight.name, weight.shape);
    return weights;
  };
  ModelShape shape = kTiny;
  Weights expected{{"model.embed_tokens.weight", {10, 8}}};
  const auto layer = [&](const std::string& name, std::vector<std::int64_t> size) {
    expected.emplace_back("model.layers.0." + name + ".weight", std::move(size));
  };
  layer("input_layernorm", {8});
  layer("self_attn.q_proj", {8, 8});
  layer("self_attn.k_proj", {4, 8});
  layer("self_attn.v_proj", {4, 8});
  layer("self_attn.o_proj", {8, 8});
  layer("post_attention_layernorm", {8});
  layer("mlp.gate", {2, 8});
  for (const std::string expert : {"mlp.experts.0.", "mlp.experts.1."}) {
    layer(expert + "gate_proj", {12, 8});
    layer(expert + "up_proj", {12, 8});
    layer(expert + "down_proj", {8, 12});
  }
  expected.push_back({"model.norm.weight", {8}});
  expected.push_back({"lm_head.weight", {10, 8}});
  CHECK(listed(shape) == expected);
  shape.layers = 2;
  shape.experts = 1;
  shape.gated = false;
  shape.tied_embeddings = true;
  std::vector<std::string> names;
  for (const auto& [name, size] : listed(shape)) names.push_back(name);
  const auto layers = [](const std::string& at) {
    std::vector<std::string> all;
    for (const char* name :
         {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
          "self_attn.o_proj", "post_attention_layernorm", "mlp.up_proj", "mlp.down_proj"})
      all.push_back("model.layers." + at + "." + name + ".weight");
    return all;
  };
  std::vector<std::string> want{"model.embed_tokens.weight"};
  for (const char* at : {"0", "1"})
    for (const std::string& name : layers(at)) want.push_back(name);
  want.emplace_back("model.norm.weight");
  CHECK(names == want);
  std::vector<std::string_view> kinds;
  for (const WeightTensor& weight : weights_of(kTiny)) kinds.push_back(to_string(weight.kind));
  CHECK(kinds == std::vector<std::string_view>{"embedding", "norm", "attention", "attention",
                                               "attention", "attention", "norm", "router", "mlp",
                                               "mlp", "mlp", "mlp", "mlp", "mlp", "norm", "head"});
}

TEST_CASE("weights of every kind of model, one after the other", "[model]") {
  for (const bool gated : {false, true})
    for (const bool tied : {false, true})
      for (const std::int64_t experts : {1, 2, 3, 5})
        for (const std::int64_t kv_heads : {1, 2, 4})
          for (const std::int64_t layers : {1, 3}) {
            const ModelShape shape{.name = "x",
                                   .layers = layers,
                                   .hidden = 24,
                                   .heads = 4,
                                   .kv_heads = kv_heads,
                                   .ffn = 10,
                                   .gated = gated,
                                   .vocabulary = 7,
                                   .experts = experts,
                                   .active_experts = 1,
                                   .tied_embeddings = tied};
            std::vector<std::string> expected;
            const auto add = [&](const std::string& name, const std::string& size,
                                 const char* kind) {
              expected.push_back(name + ".weight " + size + " " + kind);
            };
            const std::string kv = "[" + std::to_string(kv_heads * 6) + ", 24]";
            add("model.embed_tokens", "[7, 24]", "embedding");
            for (std::int64_t layer = 0; layer < layers; ++layer) {
              const std::string at = "model.layers." + std::to_string(layer) + ".";
              add(at + "input_layernorm", "[24]", "norm");
              add(at + "self_attn.q_proj", "[24, 24]", "attention");
              add(at + "self_attn.k_proj", kv, "attention");
              add(at + "self_attn.v_proj", kv, "attention");
              add(at + "self_attn.o_proj", "[24, 24]", "attention");
              add(at + "post_attention_layernorm", "[24]", "norm");
              if (experts > 1)
                add(at + "mlp.gate", "[" + std::to_string(experts) + ", 24]", "router");
              for (std::int64_t e = 0; e < experts; ++e) {
                const std::string mlp =
                    at + "mlp." + (experts > 1 ? "experts." + std::to_string(e) + "." : "");
                if (gated) add(mlp + "gate_proj", "[10, 24]", "mlp");
                add(mlp + "up_proj", "[10, 24]", "mlp");
                add(mlp + "down_proj", "[24, 10]", "mlp");
              }
            }
            add("model.norm", "[24]", "norm");
            if (!tied) add("lm_head", "[7, 24]", "head");
            std::vector<std::string> got;
            for (const WeightTensor& weight : weights_of(shape)) {
              got.push_back(weight.name + " " + shape_text(weight.shape) + " " +
                            std::string(to_string(weight.kind)));
              const bool gemm =
                  weight.kind == WeightKind::attention || weight.kind == WeightKind::mlp;
              CHECK(weight.is_block_gemm() == gemm);
            }
            INFO("gated " << gated << ", tied " << tied << ", " << experts << " experts");
            CHECK(got == expected);
          }
}
