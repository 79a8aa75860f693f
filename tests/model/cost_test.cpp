#include "training/model/cost.hpp"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "model/tiny.hpp"
#include "training/model/block.hpp"

using namespace fp8lab;
using test::kTiny;

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
