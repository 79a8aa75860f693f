#include "fp8lab/model/shape.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/model/block.hpp"
#include "fp8lab/model/cost.hpp"
#include "fp8lab/tensors/tensor.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

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

TEST_CASE("a training run that cannot be has no cost", "[model]") {
  for (const TrainingScheme& scheme : training_schemes()) {
    INFO(scheme.name);
    const auto cost = [&](auto change) {
      TrainingSetup setup{.shape = kTiny, .parallel = {}};
      setup.shape.layers = 4;
      change(setup.shape, setup.parallel);
      return training_cost(setup, scheme);
    };
    using Shape = ModelShape;
    CHECK(cost([](Shape&, Parallelism& p) { p.pipeline = 2; }).memory() > 0.0);
    CHECK_THROWS_WITH(cost([](Shape&, Parallelism& p) { p.pipeline = 3; }),
                      contains("pipeline: expected a divisor of layers = 4, got 3"));
    CHECK_THROWS_WITH(cost([](Shape&, Parallelism& p) { p.data = -1; }),
                      contains("data: expected 1 to 2^31, got -1"));
    CHECK_THROWS_WITH(cost([](Shape& s, Parallelism&) { s.heads = 3; }),
                      contains("heads: expected a divisor of hidden = 8, got 3"));
    CHECK_THROWS_WITH(cost([](Shape& s, Parallelism&) { s.active_experts = 3; }),
                      contains("active_experts: expected at most experts = 2, got 3"));
  }
}

TEST_CASE("training schemes store, keep and send as their table says", "[model]") {
  using enum FormatId;
  const std::vector<TrainingScheme> expected{
      {.name = "bf16", .weight = bf16, .optimizer = "fp32", .used_by = ""},
      {.name = "te-fp8",
       .weight = bf16,
       .fp8_copies = 2,
       .optimizer = "fp32",
       .gradient_traffic = f32,
       .weight_traffic = bf16,
       .gemm_input = e4m3fn,
       .gathered = bf16,
       .fp8_gemms = true,
       .whole_tensors = false,
       .used_by = ""},
      {.name = "fp8-lm",
       .weight = e4m3fn,
       .fp8_copies = 0,
       .optimizer = "ms-amp-o3",
       .gradient_traffic = e4m3fn,
       .weight_traffic = e4m3fn,
       .gemm_input = e4m3fn,
       .gathered = e4m3fn,
       .fp8_gemms = true,
       .whole_tensors = true,
       .used_by = ""}};
  const auto schemes = training_schemes();
  REQUIRE(schemes.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TrainingScheme& got = schemes[i];
    const TrainingScheme& want = expected[i];
    INFO(want.name);
    CHECK(got.name == want.name);
    CHECK(got.weight == want.weight);
    CHECK(got.fp8_copies == want.fp8_copies);
    CHECK(got.optimizer == want.optimizer);
    CHECK(got.gradient_traffic == want.gradient_traffic);
    CHECK(got.weight_traffic == want.weight_traffic);
    CHECK(got.gemm_input == want.gemm_input);
    CHECK(got.gathered == want.gathered);
    CHECK(got.fp8_gemms == want.fp8_gemms);
    CHECK(got.whole_tensors == want.whole_tensors);
  }
}

TEST_CASE("what each scheme keeps, sends and holds of a small model, by hand", "[model]") {
  TrainingSetup setup{.shape = kTiny,
                      .parallel = {.tensor = 2, .pipeline = 2, .data = 4, .micro_batch = 3}};
  setup.shape.layers = 2;
  setup.shape.sequence = 5;
  // Of a layer: q and o 64 each, k and v 32 each, 2 experts of 3 x 96; norms 16, a router of 16.
  const double gemm = 2.0 * (128 + 64 + 576);
  const double other = 2.0 * (16 + 16) + 8.0 + 160.0;
  // Bytes a token and layer: 8 channels, 4 of k and 4 of v, 12 of one expert, gate and up.
  const double kept_bf16 = 2.0 * (8 + 8 + 16 + 8 + 8 + 8 + 24 + 12);
  const double kept_fp8 = 2.0 * (8 + 16 + 8 + 8 + 24) + (8 + 8 + 12 + 8);
  struct Row {
    const char* scheme;
    double weight, gradient, states;  // bytes a parameter of a block GEMM
    double kept;
    double sent_gradient, sent_weight;
    double sent_activation;  // bytes of both all-gathers and of a reduce-scatter
  };
  for (const Row& row :
       {Row{"bf16", 2, 4, 12, kept_bf16, 4, 2, 6}, Row{"te-fp8", 4, 4, 12, kept_fp8, 4, 2, 6},
        Row{"fp8-lm", 1, 1, 5, kept_fp8, 1, 1, 4}}) {
    const TrainingCost cost = training_cost(setup, find_training_scheme(row.scheme));
    INFO(row.scheme);
    CHECK(cost.parameters == gemm + other);
    CHECK(cost.gpu_parameters == (gemm + other) / 4.0);
    CHECK(cost.weights == (gemm * row.weight + other * 2.0) / 4.0);
    CHECK(cost.gradients == (gemm * row.gradient + other * 4.0) / 4.0);
    CHECK(cost.optimizer == (gemm * row.states + other * 12.0) / 16.0);
    // 3 of 4 halves of a micro-batch are kept in the mean of two stages.
    CHECK(cost.activations == row.kept * 0.75 * (5 * 3 * 2) / 2.0);
    CHECK(cost.gradient_traffic == 0.75 * (gemm * row.sent_gradient + other * 4.0) / 4.0);
    CHECK(cost.weight_traffic == 0.75 * (gemm * row.sent_weight + other * 2.0) / 4.0);
    CHECK(cost.activation_traffic == 2.0 * 0.5 * (5 * 3 * 8 * 1) * row.sent_activation);
    CHECK(cost.memory() == cost.weights + cost.gradients + cost.optimizer + cost.activations);
    CHECK((cost.fp8_flop_share > 0.0) == (std::string_view(row.scheme) != "bf16"));
    CHECK(cost.zero.load.size() == 4);
  }
}

TEST_CASE("costs follow the formulas for every split of a run", "[model]") {
  struct Row {
    const char* scheme;
    double weight, gradient, states;  // bytes a parameter of a block GEMM
    double kept, sent_gradient, sent_weight, sent_activation;
  };
  const double kept_bf16 = 2.0 * (8 + 8 + 16 + 8 + 8 + 8 + 24 + 12);
  const double kept_fp8 = 2.0 * (8 + 16 + 8 + 8 + 24) + (8 + 8 + 12 + 8);
  for (const Row& row :
       {Row{"bf16", 2, 4, 12, kept_bf16, 4, 2, 6}, Row{"te-fp8", 4, 4, 12, kept_fp8, 4, 2, 6},
        Row{"fp8-lm", 1, 1, 5, kept_fp8, 1, 1, 4}})
    for (const std::int64_t tensor : {1, 2, 3, 8})
      for (const std::int64_t pipeline : {1, 2, 3, 6})
        for (const std::int64_t data : {1, 2, 5})
          for (const std::int64_t micro_batch : {1, 3}) {
            TrainingSetup setup{.shape = kTiny,
                                .parallel = {.tensor = tensor,
                                             .pipeline = pipeline,
                                             .data = data,
                                             .micro_batch = micro_batch}};
            setup.shape.layers = 6;
            setup.shape.sequence = 7;
            const double gemm = 6.0 * (128 + 64 + 576);
            const double other = 6.0 * (16 + 16) + 8.0 + 160.0;
            const auto t = static_cast<double>(tensor);
            const auto p = static_cast<double>(pipeline);
            const auto d = static_cast<double>(data);
            const double tokens = 7.0 * static_cast<double>(micro_batch);
            const TrainingCost cost = training_cost(setup, find_training_scheme(row.scheme));
            const auto near = [](double got, double want) {
              CHECK(std::abs(got - want) <= 1e-12 * std::abs(want));
            };
            INFO(row.scheme << ", tensor " << tensor << ", pipeline " << pipeline << ", data "
                            << data << ", micro-batch " << micro_batch);
            near(cost.gpu_parameters, (gemm + other) / (t * p));
            near(cost.weights, (gemm * row.weight + other * 2.0) / (t * p));
            near(cost.gradients, (gemm * row.gradient + other * 4.0) / (t * p));
            near(cost.optimizer, (gemm * row.states + other * 12.0) / (t * p * d));
            // Of a stage's layers the first stage keeps as many micro-batches as there are stages.
            double micro_batches = 0.0;
            for (std::int64_t stage = 0; stage < pipeline; ++stage)
              micro_batches += (p - static_cast<double>(stage)) / p;
            near(cost.activations, row.kept * tokens * (6.0 / p) * micro_batches / t);
            const double ring = (d - 1.0) / d / (t * p);
            near(cost.gradient_traffic, ring * (gemm * row.sent_gradient + other * 4.0));
            near(cost.weight_traffic, ring * (gemm * row.sent_weight + other * 2.0));
            near(cost.activation_traffic,
                 2.0 * (t - 1.0) / t * tokens * 8.0 * (6.0 / p) * row.sent_activation);
            CHECK(cost.zero.load.size() == static_cast<std::size_t>(data));
          }
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
  CHECK(message(good + "[parallel]\ndata = 0\n") == "data: expected 1 to 2^31, got 0");
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

TEST_CASE("the operations of a block, by hand", "[model]") {
  ModelShape shape = kTiny;  // 8 channels, 4 heads, 4 channels of k and v
  shape.sequence = 5;
  shape.experts = 3;
  shape.active_experts = 2;  // 24 channels inside
  struct Row {
    const char* name;
    double gemm, other;
    bool listed, deployed;
  };
  for (const AttentionCount attention : {AttentionCount::full, AttentionCount::causal}) {
    const double pairs = attention == AttentionCount::full ? 25 : 15;
    const std::vector<Row> expected{{"norm", 0, 280, false, false},
                                    {"Q = x W_q", 640, 0, true, true},
                                    {"K = x W_k", 320, 0, true, true},
                                    {"V = x W_v", 320, 0, true, true},
                                    {"softmax(Q K^T)", 16 * pairs, 24 * pairs, false, false},
                                    {"attention V", 16 * pairs, 0, true, false},
                                    {"projection = x W_o", 640, 0, true, true},
                                    {"residual add", 0, 40, false, false},
                                    {"norm", 0, 280, false, false},
                                    {"router", 240, 0, false, false},
                                    {"up = x W_up", 1920, 0, true, true},
                                    {"gate = x W_gate", 1920, 0, true, true},
                                    {"SiLU(gate) up", 0, 600, false, false},
                                    {"down = x W_down", 1920, 0, true, true},
                                    {"residual add", 0, 40, false, false}};
    const std::vector<BlockOperation> got = block_operations(shape, attention);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO(expected[i].name << ", got " << got[i].name);
      CHECK(got[i].name == expected[i].name);
      CHECK(got[i].gemm_flops == expected[i].gemm);
      CHECK(got[i].other_flops == expected[i].other);
      CHECK(got[i].listed_fp8 == expected[i].listed);
      CHECK(got[i].deployed_fp8 == expected[i].deployed);
    }
    const double all = 9160 + 56 * pairs;
    CHECK(gemm_share(got) == (7920 + 32 * pairs) / all);
    CHECK(fp8_share(got, Fp8Gemms::listed) == (7680 + 16 * pairs) / all);
    CHECK(fp8_share(got, Fp8Gemms::deployed) == 7680 / all);
  }
  shape.gated = false;
  const std::vector<BlockOperation> plain = block_operations(shape);
  REQUIRE(plain.size() == 14);
  CHECK(plain[11].name == "activation");
  CHECK(plain[11].other_flops == 600.0);
  CHECK(plain[12].name == "down = x W_down");
}

TEST_CASE("what a layer keeps of each token, by hand", "[model]") {
  struct Row {
    const char* name;
    std::int64_t elements;
    bool is_input;  // of a GEMM that may be in FP8
  };
  ModelShape shape = kTiny;
  shape.experts = 3;
  shape.active_experts = 2;
  for (const bool gated : {true, false})
    for (const char* scheme : {"bf16", "te-fp8", "fp8-lm"}) {
      INFO(scheme << ", gated " << gated);
      shape.gated = gated;
      const bool fp8 = std::string_view(scheme) != "bf16";
      std::vector<Row> expected{{"input of the first norm", 8, false},
                                {"input of Q, K, V", 8, true},
                                {"Q, K, V", 16, false},
                                {"output of attention", 8, false},
                                {"input of the second norm", 8, false},
                                {"input of the MLP", 8, true},
                                {"input of the activation", gated ? 48 : 24, false},
                                {"input of down", 24, true}};
      if (fp8) expected.push_back({"input of the projection", 8, true});
      const auto got = kept_activations(shape, find_training_scheme(scheme));
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(expected[i].name << ", got " << got[i].name);
        CHECK(got[i].name == expected[i].name);
        CHECK(got[i].elements == expected[i].elements);
        CHECK(got[i].format == (fp8 && expected[i].is_input ? FormatId::e4m3fn : FormatId::bf16));
        CHECK(got[i].bytes() ==
              static_cast<double>(expected[i].elements) * (fp8 && expected[i].is_input ? 1 : 2));
      }
    }
}

TEST_CASE("ZeRO's shares and the share of FP8 of a small model, by hand", "[model]") {
  TrainingSetup setup{.shape = kTiny, .parallel = {.tensor = 2, .pipeline = 2, .data = 4}};
  setup.shape.layers = 2;
  setup.shape.sequence = 5;
  const auto loads = [&](const char* scheme) {
    return training_cost(setup, find_training_scheme(scheme)).zero.load;
  };
  using Loads = std::vector<std::int64_t>;
  // The first of two stages has one layer of 768 elements in GEMMs, and 120 others; no head.
  for (const bool tied : {false, true}) {
    setup.shape.tied_embeddings = tied;
    CHECK(loads("bf16") == Loads(4, (768 + 120) * 12 / 2 / 4));
    CHECK(loads("te-fp8") == Loads(4, (768 + 120) * 12 / 2 / 4));
    // Whole: six of 240 bytes, two of 160, two of 80; others in quarters.
    CHECK(loads("fp8-lm") == Loads(4, 480 + 120 * 12 / 2 / 4));
    CHECK(training_cost(setup, find_training_scheme("fp8-lm")).zero.rank_of.size() == 10);
    CHECK(training_cost(setup, find_training_scheme("bf16")).zero.rank_of.empty());
  }
  setup.parallel.pipeline = 1;
  CHECK(loads("bf16") == Loads(4, (1536 + 152) * 12 / 2 / 4));  // tied
  setup.shape.tied_embeddings = false;
  CHECK(loads("bf16") == Loads(4, (1536 + 232) * 12 / 2 / 4));
  setup.parallel.data = 3;
  CHECK(loads("bf16") == Loads(3, (1536 + 232) * 12 / 2 / 3));
  setup.parallel.data = 7;  // 10608 bytes: rounded down
  CHECK(loads("bf16") == Loads(7, 1515));
  for (const char* scheme : {"te-fp8", "fp8-lm"})
    CHECK(training_cost(setup, find_training_scheme(scheme)).fp8_flop_share == 9600.0 / 15400.0);
  CHECK(training_cost(setup, find_training_scheme("bf16")).fp8_flop_share == 0.0);
}
