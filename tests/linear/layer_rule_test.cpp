#include "fp8lab/linear/layer_rule.hpp"

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "training/model/shape.hpp"

using namespace fp8lab;

namespace {

std::string reason(const char* rule, std::string_view name, std::vector<std::int64_t> shape) {
  const LayerDecision decision = decide(find_layer_rule(rule), name, shape);
  CHECK(decision.converts == decision.reason.empty());
  return decision.converts ? "converts" : decision.reason;
}

}  // namespace

TEST_CASE("LLaMA-Factory's module filter, clause by clause", "[model]") {
  const char* rule = "llama-factory";
  CHECK(reason(rule, "model.layers.0.mlp.up_proj.weight", {64, 32}) == "converts");
  CHECK(reason(rule, "model.embed_tokens.weight", {64, 32}) == "the name contains embed");
  CHECK(reason(rule, "LM_Head.weight", {64, 32}) == "the name contains lm_head");
  CHECK(reason(rule, "encoder.layer.0.attention.output.dense.weight", {64, 32}) ==
        "the name contains output");
  CHECK(reason(rule, "classifier.weight", {64, 32}) == "the name contains classifier");
  CHECK(reason(rule, "model.norm.weight", {64}) == "1 dimensions, not 2");
  CHECK(reason(rule, "conv.weight", {64, 32, 3, 3}) == "4 dimensions, not 2");
  CHECK(reason(rule, "fc.weight", {64, 40}) == "40 is not a multiple of 16");
  CHECK(reason(rule, "fc.weight", {50257, 64}) == "50257 is not a multiple of 16");
  CHECK(reason(rule, "fc.bias", {64}) == "not the .weight of a module");
}

TEST_CASE("DeepSeek keeps embedding, head, norms and the router", "[model]") {
  const char* rule = "deepseek-v3";
  CHECK(reason(rule, "model.layers.3.mlp.gate.weight", {256, 7168}) == "the name ends with .gate");
  CHECK(reason(rule, "model.layers.3.mlp.gate_proj.weight", {2048, 7168}) == "converts");
  CHECK(reason(rule, "model.layers.3.self_attn.q_a_layernorm.weight", {1536}) ==
        "the name contains norm");
  CHECK(reason(rule, "lm_head.weight", {129280, 7168}) == "the name contains head");
  CHECK(reason("all", "lm_head.weight", {129280, 7168}) == "converts");
}

TEST_CASE("every linear layer but the head and routers is one of the rule linear", "[model]") {
  const char* rule = "linear";
  CHECK(reason(rule, "model.layers.3.mlp.gate_proj.weight", {33, 7}) == "converts");
  CHECK(reason(rule, "classifier.output.weight", {33, 7}) == "converts");
  CHECK(reason(rule, "attention_head.weight", {33, 7}) == "converts");
  CHECK(reason(rule, "model.Embed_tokens.weight", {33, 7}) == "the name contains embed");
  CHECK(reason(rule, "lm_head.weight", {33, 7}) == "the name contains lm_head");
  CHECK(reason(rule, "a.norm.weight", {33, 7}) == "the name contains norm");
  CHECK(reason(rule, "a.mlp.gate.weight", {33, 7}) == "the name ends with .gate");
  CHECK(reason(rule, "a.mlp.router.weight", {33, 7}) == "the name ends with .router");
  CHECK(reason(rule, "a.shared_expert_gate.weight", {33, 7}) == "the name ends with _gate");
  CHECK(reason(rule, "a.router.x.weight", {33, 7}) == "the name contains .router.");
  CHECK(reason(rule, "a.routers.x.weight", {33, 7}) == "converts");
  CHECK(reason(rule, "vision_tower.fc1.weight", {33, 7}) == "converts");
  CHECK(reason("language", "vision_tower.fc1.weight", {33, 7}) == "the name contains vision");
  CHECK(reason("language", "model.mtp.0.up_proj.weight", {33, 7}) == "the name contains mtp");
  CHECK(reason("language", "model.layers.0.mlp.up_proj.weight", {33, 7}) == "converts");
  CHECK(reason(rule, "a.weight", {33}) == "1 dimensions, not 2");
  CHECK(reason("all", "a.gate.weight", {33, 7}) == "converts");
  CHECK(reason("all", "a.weights", {33, 7}) == "not the .weight of a module");
  std::vector<std::string_view> names;
  for (const LayerRule& one : layer_rules()) names.push_back(one.name);
  CHECK(names ==
        std::vector<std::string_view>{"llama-factory", "deepseek-v3", "linear", "language", "all"});
}

TEST_CASE("a rule on a model's own weights picks its block GEMMs", "[model]") {
  for (const char* model : {"llama-7b", "mixtral-8x7b"}) {
    INFO(model);
    for (const WeightTensor& weight : weights_of(find_training_setup(model).shape)) {
      INFO(weight.name);
      const LayerDecision decision =
          decide(find_layer_rule("deepseek-v3"), weight.name, weight.shape);
      CHECK(decision.converts == weight.is_block_gemm());
    }
  }
}

TEST_CASE("a weight of a module has a dot before weight, in small letters", "[model]") {
  for (const LayerRule& rule : layer_rules()) {
    INFO(rule.name);
    const auto said = [&](std::string_view name) {
      return reason(std::string(rule.name).c_str(), name, {64, 32});
    };
    for (const char* name : {"weight", "qweight", "fc.qweight", "fc_weight", "fc.Weight",
                             "fc.WEIGHT", "fc.weight_scale", "fc.weight.", "fc.weight ",
                             "fc.weight_v", "weight.fc", "fc", "", "."}) {
      INFO(name);
      CHECK(said(name) == "not the .weight of a module");
    }
    for (const char* name : {"fc.weight", ".weight", "fc.weight.weight", "weight.weight"}) {
      INFO(name);
      CHECK(said(name) == "converts");
    }
  }
}

TEST_CASE("both dimensions are looked at, the first one first", "[model]") {
  const char* rule = "llama-factory";
  for (const std::int64_t rows : {0, 1, 15, 16, 17, 32, 48})
    for (const std::int64_t k : {0, 1, 8, 16, 24, 31, 160}) {
      const std::int64_t bad = rows % 16 != 0 ? rows : k;
      CHECK(reason(rule, "fc.weight", {rows, k}) ==
            (bad % 16 == 0 ? "converts" : std::to_string(bad) + " is not a multiple of 16"));
      CHECK(reason("linear", "fc.weight", {rows, k}) == "converts");
    }
  CHECK(reason(rule, "fc.weight", {}) == "0 dimensions, not 2");
  CHECK(reason(rule, "fc.weight", {16, 16, 1}) == "3 dimensions, not 2");
}

TEST_CASE("unknown rules are named with the known ones", "[model]") {
  CHECK_THROWS_WITH(find_layer_rule("te"), contains("'te'") && contains("llama-factory"));
}
