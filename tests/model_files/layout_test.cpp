#include "training/model_files/layout.hpp"

#include <fmt/format.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/recipe_input.hpp"
#include "training/model_files/stored_quantization.hpp"

using namespace fp8lab;

namespace {

WeightScheme scheme_of(const char* layout, const char* preset, bool calibrated = false) {
  return make_scheme(find_layout(layout), find_preset(preset), calibrated);
}

std::vector<std::int64_t> shape_of(const char* layout, const char* preset,
                                   bool calibrated = false) {
  return scale_shape(find_layout(layout), scheme_of(layout, preset, calibrated), 300, 256);
}

using Shape = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("scales have the shapes that readers make room for", "[model_files]") {
  CHECK(shape_of("compressed-tensors", "llm-compressor") == Shape{300, 1});
  CHECK(shape_of("compressed-tensors", "vllm-per-tensor") == Shape{1});
  CHECK(shape_of("compressed-tensors", "deepseek-v3") == Shape{3, 2});
  CHECK(shape_of("modelopt", "modelopt", true) == Shape{});
  CHECK(shape_of("modelopt", "vllm-per-token") == Shape{300});
  CHECK(shape_of("hf-fp8", "deepseek-v3") == Shape{3, 2});
  CHECK(shape_of("hf-fp8", "vllm-per-tensor") == Shape{});
  CHECK(shape_of("deepseek", "deepgemm-ue8m0") == Shape{3, 2});
  CHECK(shape_of("torchao", "torchao-inference-bf16") == Shape{300, 1});
  CHECK(shape_of("compressed-tensors", "mxfp4") == Shape{300, 8});
  CHECK(shape_of("modelopt", "modelopt-nvfp4", true) == Shape{300, 16});
  CHECK(shape_of("torchao", "torchao-nvfp4") == Shape{96, 64});  // blocks of 128 x 4
  CHECK(scheme_of("compressed-tensors", "llm-compressor-bf16").scale_type == ElementType::bf16);
  CHECK(scheme_of("torchao", "torchao-inference-bf16").scale_type == ElementType::f32);
}

TEST_CASE("how inputs of groups are cast is the layout's and the samples' matter",
          "[model_files]") {
  using enum InputScheme;
  CHECK(scheme_of("gpt-oss", "mxfp4").input == stays);
  CHECK(scheme_of("compressed-tensors", "mxfp4").input == group);
  CHECK(scheme_of("torchao", "torchao-nvfp4").input == two_level);
  CHECK(scheme_of("modelopt", "modelopt-nvfp4", true).input == calibrated);
  CHECK(scheme_of("modelopt", "modelopt-nvfp4").input == stays);
}

TEST_CASE("what a layout cannot say is refused", "[model_files]") {
  // Groups of another length than their scales' format has.
  for (const auto& [layout, name, size] : {std::tuple{"compressed-tensors", "mxfp4", 16},
                                           {"compressed-tensors", "mxfp4", 64},
                                           {"torchao", "torchao-nvfp4", 32},
                                           {"torchao", "torchao-nvfp4", 8}}) {
    Preset preset = find_preset(name);
    REQUIRE_NOTHROW(make_scheme(find_layout(layout), preset, false));
    preset.weight.k_block = size;
    INFO(layout << ", " << name << ", " << size);
    CHECK_THROWS_WITH(make_scheme(find_layout(layout), preset, false),
                      contains("in tiles of 1 x " + std::to_string(size)));
  }
  // Inputs whose parts are not those that a weight's block covers, shorter and longer ones.
  for (const char* layout : {"hf-fp8", "deepseek"}) {
    Preset preset = find_preset("deepseek-v3");
    REQUIRE_NOTHROW(make_scheme(find_layout(layout), preset, false));
    for (const std::int64_t size : {1, 32, 64, 127, 129, 256}) {
      preset.activation.k_block = size;
      INFO(layout << ", inputs in parts of " << size);
      CHECK_THROWS_WITH(make_scheme(find_layout(layout), preset, false),
                        contains("one scale for the part of a row that a block covers"));
    }
  }
  CHECK_THROWS_AS(scheme_of("hf-fp8", "llm-compressor"), Error);          // a scale a row
  CHECK_THROWS_AS(scheme_of("torchao", "deepseek-v3"), Error);            // blocks
  CHECK_THROWS_AS(scheme_of("hf-fp8", "ocp-mxfp8"), Error);               // E8M0
  CHECK_THROWS_AS(scheme_of("compressed-tensors", "te-nvfp4"), Error);    // 16 x 16
  CHECK_THROWS_AS(scheme_of("torchao", "torchao-nvfp4", true), Error);    // no input scale in files
  CHECK_THROWS_AS(scheme_of("compressed-tensors", "te-delayed"), Error);  // a weight's past
  CHECK_THROWS_AS(scheme_of("modelopt", "modelopt"), Error);              // no samples
  CHECK_THROWS_AS(scheme_of("compressed-tensors", "llm-compressor", true), Error);
  CHECK_THROWS_AS(scheme_of("deepseek", "modelopt", true), Error);
  // ModelOpt: one calibrated input scale beside one weight scale, or a scale a row of both.
  CHECK_NOTHROW(scheme_of("modelopt", "modelopt", true));
  CHECK_NOTHROW(scheme_of("modelopt", "vllm-per-token"));
  CHECK_THROWS_AS(scheme_of("modelopt", "inference-static", true), Error);
  CHECK_THROWS_WITH(find_layout("gguf"), contains("compressed-tensors"));
}

TEST_CASE("what is no linear layer's matrix stays", "[model_files]") {
  const Layout& layout = find_layout("hf-fp8");
  const WeightScheme scheme = scheme_of("hf-fp8", "deepseek-v3");
  const LayerRule& all = find_layer_rule("all");
  const auto converts = [&](const char* name, ElementType type, Shape shape) {
    return decide(all, layout, scheme, {name, type, std::move(shape)}).converts;
  };
  CHECK(converts("a.weight", ElementType::bf16, {256, 128}));
  CHECK(converts("a.weight", ElementType::f32, {64, 128}));  // one block, smaller than others
  CHECK_FALSE(converts("a.weight", ElementType::e4m3fn, {256, 128}));
  CHECK_FALSE(converts("a.weight", ElementType::i64, {256, 128}));
  CHECK_FALSE(converts("a.weight", ElementType::boolean, {256, 128}));
  CHECK_FALSE(converts("a.weight", ElementType::f64, {256, 128}));
  CHECK_FALSE(converts("a.bias", ElementType::bf16, {256}));
  CHECK_FALSE(converts("norm.weight", ElementType::bf16, {256}));
  CHECK_FALSE(converts("conv.weight", ElementType::bf16, {256, 128, 3, 3}));
  CHECK_FALSE(converts("model.embed_tokens.weight", ElementType::bf16, {256, 128}));
  CHECK_FALSE(converts("a.weight", ElementType::bf16, {0, 128}));
  // transformers reads ragged blocks wrongly.
  CHECK_FALSE(converts("a.weight", ElementType::bf16, {200, 128}));
  CHECK(decide(all, find_layout("deepseek"), scheme, {"a.weight", ElementType::bf16, {200, 128}})
            .converts);
}

TEST_CASE("config.json is read back as it was written", "[model_files]") {
  const std::string config =
      R"({"model_type": "llama", "zebra": 1, "alpha": 2, "dtype": "bfloat16"})";
  const std::vector<std::pair<const char*, const char*>> cases{
      {"compressed-tensors", "deepseek-v3"},
      {"hf-fp8", "deepseek-v3"},
      {"torchao", "torchao-inference"},
      {"deepseek", "deepgemm"},
      {"modelopt", "vllm-per-token"}};
  for (const auto& [layout, preset] : cases) {
    const std::string text = with_quantization(config, "config.json", find_layout(layout),
                                               scheme_of(layout, preset), {"lm_head"});
    const auto stored = read_quantization(text, "config.json");
    REQUIRE(stored.has_value());
    CHECK(stored->family == find_layout(layout).family);
    CHECK(stored->form.row_block == 128);
    CHECK(text.find("zebra") < text.find("alpha"));  // keys stay in order
    CHECK_FALSE(read_quantization(without_quantization(text, "config.json"), "config.json"));
    CHECK(without_quantization(text, "config.json").ends_with("}\n"));
    CHECK_THROWS_WITH(
        with_quantization(text, "config.json", find_layout(layout), scheme_of(layout, preset), {}),
        contains("dequantize"));
  }
  CHECK(model_type(config, "config.json") == ElementType::bf16);
  CHECK_THROWS_AS(read_quantization(R"({"quantization_config": {"quant_method": "gptq"}})", "c"),
                  Error);
  CHECK_THROWS_WITH(with_quantization(R"({"model_type": "gpt2"})", "c", find_layout("hf-fp8"),
                                      scheme_of("hf-fp8", "deepseek-v3"), {}),
                    contains("gpt2"));
}

TEST_CASE("config.json says what groups are, and is read back", "[model_files]") {
  struct Case {
    const char* layout;
    const char* preset;
    bool calibrated;
    const char* text;
  };
  for (const Case& c :
       {Case{"compressed-tensors", "mxfp4", false, "mxfp4-pack-quantized"},
        Case{"compressed-tensors", "mxfp6-e2m3", false, "mxfp6-pack-quantized"},
        Case{"compressed-tensors", "ocp-mxfp8", false, "mxfp8-quantized"},
        Case{"compressed-tensors", "nvfp4", true, "\"local\""},
        Case{"compressed-tensors", "nvfp4", false, "\"input_activations\": null"},
        Case{"modelopt", "modelopt-nvfp4", true, "\"NVFP4\""},
        Case{"modelopt", "modelopt-nvfp4", false, "\"W4A16_NVFP4\""},
        Case{"modelopt", "modelopt-mxfp8", false, "\"MXFP8\""},
        Case{"modelopt", "modelopt-mxfp4", false, "\"mxfp4\""},
        Case{"compressed-tensors", "compressed-tensors-mxfp4-bf16", false, "\"num_bits\": 4"},
        Case{"compressed-tensors", "compressed-tensors-mxfp6", false, "\"num_bits\": 8"},
        Case{"torchao", "torchao-mxfp4-even", false, "\"EVEN\""},
        Case{"torchao", "torchao-nvfp4", false, "NVFP4Dynamic"},
        Case{"gpt-oss", "mxfp4", false, "\"mxfp4\""}}) {
    INFO(c.layout << " " << c.preset);
    const Layout& layout = find_layout(c.layout);
    const WeightScheme scheme = scheme_of(c.layout, c.preset, c.calibrated);
    const std::string text = with_quantization("{}", "config.json", layout, scheme, {"lm_head"});
    CHECK(text.find(c.text) != std::string::npos);
    const auto stored = read_quantization(text, "config.json");
    REQUIRE(stored.has_value());
    CHECK(stored->family == layout.family);
    CHECK(stored->form.format == scheme.format);
    CHECK(stored->form.scales == scheme.scales);
    CHECK(stored->form.k_block == scheme.k_block);
  }
  CHECK_THROWS_WITH(
      read_quantization(
          R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}})",
          "c"),
      contains("W4A16_AWQ"));
}

TEST_CASE("ModelOpt's own file names the algorithm, and the size of groups but for MXFP4",
          "[model_files]") {
  struct Case {
    const char* preset;
    bool calibrated;
    const char* algorithm;
    int group;  ///< 0: none
  };
  for (const Case& c :
       {Case{"modelopt", true, "FP8", 0},
        Case{"vllm-per-token", false, "FP8_PER_CHANNEL_PER_TOKEN", 0},
        Case{"modelopt-nvfp4", true, "NVFP4", 16}, Case{"modelopt-nvfp4", false, "W4A16_NVFP4", 16},
        Case{"modelopt-mxfp8", false, "MXFP8", 32}, Case{"modelopt-mxfp4", false, "mxfp4", 0}}) {
    const std::string group = c.group == 0 ? "" : fmt::format("    \"group_size\": {},\n", c.group);
    const std::string expected = fmt::format(
        R"({{
  "producer": {{
    "name": "modelopt",
    "version": "0.47.0"
  }},
  "quantization": {{
    "quant_algo": "{}",
    "kv_cache_quant_algo": null,
{}    "exclude_modules": [
      "lm_head",
      "a"
    ]
  }}
}}
)",
        c.algorithm, group);
    INFO(c.preset);
    CHECK(own_config(find_layout("modelopt"), scheme_of("modelopt", c.preset, c.calibrated),
                     {"lm_head", "a"}) == expected);
  }
}

TEST_CASE("models whose matrices are turned are known by their type's whole name",
          "[model_files]") {
  const auto with_type = [](const std::string& type) {
    return fmt::format(R"({{"model_type": {}}})", type);
  };
  const auto ask = [](const std::string& config) { require_quantizable(config, "c"); };
  for (const char* name : {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"}) {
    const std::string type = fmt::format("\"{}\"", name);
    CHECK_THROWS_WITH(ask(with_type(type)), contains("c: model_type: expected") && contains(name));
    CHECK_THROWS_WITH(ask(fmt::format(R"({{"text_config": {}}})", with_type(type))),
                      contains("c: model_type: expected"));
  }
  for (const char* type : {"\"llama\"", "\"gpt2x\"", "\"gpt\"", "\"\"", "7", "null", "[\"gpt2\"]",
                           "{\"gpt2\": 1}", "true"}) {
    INFO(type);
    CHECK_NOTHROW(ask(with_type(type)));
  }
  CHECK_NOTHROW(ask("{}"));
  CHECK_NOTHROW(ask(R"({"text_config": 7})"));
}

TEST_CASE("a model's type is that of its language part, of the newer key first", "[model_files]") {
  const auto type = [](const char* config) { return model_type(config, "c"); };
  CHECK(type(R"({"dtype": "bfloat16", "torch_dtype": "float16"})") == ElementType::bf16);
  CHECK(type(R"({"torch_dtype": "float16"})") == ElementType::f16);
  CHECK(type(R"({"dtype": null, "text_config": {"dtype": "float32"}})") == ElementType::f32);
  CHECK(type(R"({"dtype": "float16", "text_config": {"dtype": "float32"}})") == ElementType::f16);
  for (const char* other : {R"({"dtype": 16, "torch_dtype": "float32"})",
                            R"({"dtype": "auto", "torch_dtype": "float32"})"})
    CHECK(type(other) == ElementType::f32);
  for (const char* none : {"{}", R"({"dtype": "float64"})", R"({"dtype": "bfloat"})",
                           R"({"text_config": "bfloat16"})"})
    CHECK_FALSE(type(none).has_value());
}

TEST_CASE("why a tensor stays, word for word", "[model_files]") {
  using enum ElementType;
  const auto why = [](const char* layout, const char* preset, const char* rule, TensorSpec tensor) {
    const LayerDecision decision =
        decide(find_layer_rule(rule), find_layout(layout), scheme_of(layout, preset), tensor);
    CHECK(decision.converts == decision.reason.empty());
    return decision.converts ? std::string("converts") : decision.reason;
  };
  const auto plain = [&](TensorSpec tensor) {
    return why("deepseek", "deepseek-v3", "all", std::move(tensor));
  };
  CHECK(plain({"a.weight", e4m3fn, {128, 128}}) == "e4m3fn already");
  CHECK(plain({"a.weight", e5m2fnuz, {128, 128}}) == "e5m2fnuz already");
  CHECK(plain({"a.weight", f64, {128, 128}}) == "f64 elements, not f32, f16 or bf16");
  CHECK(plain({"a.weight", i8, {128, 128}}) == "i8 elements, not f32, f16 or bf16");
  CHECK(plain({"a.weight", boolean, {128, 128}}) == "bool elements, not f32, f16 or bf16");
  for (const ElementType type : {f32, f16, bf16})
    CHECK(plain({"a.weight", type, {128, 128}}) == "converts");
  CHECK(plain({"a.bias", f32, {128, 128}}) == "not the .weight of a module");
  CHECK(plain({"a.weight", f32, {128}}) == "1 dimensions, not 2");
  CHECK(plain({"a.weight", f32, {1, 128, 128}}) == "3 dimensions, not 2");
  CHECK(plain({"a.weight", f32, {0, 128}}) == "no elements");
  CHECK(plain({"a.weight", f32, {128, 0}}) == "no elements");
  for (const char* name : {"x.embed.weight", "Embed_tokens.weight", "transformer.wte.weight",
                           "transformer.WPE.weight", "wpe.0.weight"})
    CHECK(plain({name, f32, {128, 128}}) == "an embedding, for which deepseek has no scales");
  CHECK(why("hf-fp8", "deepseek-v3", "all", {"wte.weight", f32, {128, 128}}) ==
        "an embedding, for which hf-fp8 has no scales");
  CHECK(plain({"w_te.weight", f32, {200, 130}}) == "converts");  // ragged blocks

  // Blocks of 128 x 128: transformers reads ragged ones wrongly, compressed-tensors along k.
  struct Case {
    Shape shape;
    const char* hf;
    const char* compressed;
  };
  const std::string hf = "hf-fp8";
  for (const Case& c :
       {Case{{256, 384}, "converts", "converts"}, Case{{1, 128}, "converts", "converts"},
        Case{{127, 128}, "converts", "converts"},
        Case{{129, 128}, "129 is not a multiple of the block's 128", "converts"},
        Case{{200, 130},
             "200 is not a multiple of the block's 128",
             "130 is not a multiple of the block's 128"},
        Case{{128, 129},
             "129 is not a multiple of the block's 128",
             "129 is not a multiple of the block's 128"},
        Case{{256, 200},
             "200 is not a multiple of the block's 128",
             "200 is not a multiple of the block's 128"},
        Case{{128, 127}, "converts", "127 is not a multiple of the block's 128"},
        Case{{64, 1}, "converts", "1 is not a multiple of the block's 128"}}) {
    INFO(shape_text(c.shape));
    CHECK(why("hf-fp8", "deepseek-v3", "all", {"a.weight", f32, c.shape}) == c.hf);
    CHECK(why("compressed-tensors", "deepseek-v3", "all", {"a.weight", f32, c.shape}) ==
          c.compressed);
    CHECK(plain({"a.weight", f32, c.shape}) == "converts");
    CHECK(why("hf-fp8", "vllm-per-tensor", "all", {"a.weight", f32, c.shape}) == "converts");
    CHECK(why("compressed-tensors", "llm-compressor", "all", {"a.weight", f32, c.shape}) ==
          "converts");
  }
  // Groups.
  for (const auto& [layout, preset, group] : {std::tuple{"compressed-tensors", "mxfp4", 32},
                                              {"compressed-tensors", "nvfp4", 16},
                                              {"modelopt", "modelopt-mxfp8", 32},
                                              {"modelopt", "modelopt-nvfp4", 16},
                                              {"torchao", "torchao-mxfp4-even", 32},
                                              {"torchao", "torchao-nvfp4", 16}})
    for (const std::int64_t rows : {1, 16, 24})
      for (const std::int64_t k : {16, 32, 48, 96, 40}) {
        INFO(layout << " " << preset << " [" << rows << ", " << k << "]");
        const bool torchao_rows = std::string_view(layout) == "torchao" && group == 16;
        const std::string expected =
            k % group != 0 ? fmt::format("{} is not a multiple of the group's {}", k, group)
            : torchao_rows && rows % 16 != 0 ? fmt::format("{} rows are not a multiple of 16", rows)
                                             : "converts";
        CHECK(why(layout, preset, "all", {"a.weight", bf16, {rows, k}}) == expected);
      }
  // Fused experts.
  const auto expert = [&](const char* rule, TensorSpec tensor) {
    return why("gpt-oss", "mxfp4", rule, std::move(tensor));
  };
  for (const char* name : {"l.0.experts.gate_up_proj", "l.0.experts.down_proj"})
    CHECK(expert("linear", {name, bf16, {3, 64, 40}}) == "converts");
  const char* const down = "l.0.experts.down_proj";
  for (const TensorSpec& other :
       {TensorSpec{"l.0.experts.down_proj.weight", bf16, {3, 64, 40}},
        TensorSpec{"l.0.experts.up_proj", bf16, {3, 64, 40}},
        TensorSpec{"l.0.experts.gate_up_proj_bias", bf16, {3, 64, 40}},
        TensorSpec{"experts.down_proj", bf16, {3, 64, 40}}, TensorSpec{down, bf16, {64, 40}},
        TensorSpec{down, bf16, {1, 3, 64, 40}}})
    CHECK(expert("all", other) == "not the fused experts of a layer");
  CHECK(expert("all", {down, e4m3fn, {3, 64, 40}}) == "e4m3fn already");
  CHECK(expert("all", {down, u8, {3, 64, 40}}) == "u8 elements, not f32, f16 or bf16");
  CHECK(expert("all", {down, bf16, {0, 64, 40}}) == "no elements");
  CHECK(expert("all", {down, bf16, {3, 48, 64}}) == "48 is not a multiple of the group's 32");
  CHECK(expert("all", {down, bf16, {3, 64, 33}}) == "converts");
  CHECK(expert("llama-factory", {down, bf16, {3, 64, 33}}) == "33 is not a multiple of 16");
  CHECK(expert("llama-factory", {down, bf16, {3, 40, 24}}) == "24 is not a multiple of 16");
  CHECK(expert("llama-factory", {"output.experts.down_proj", bf16, {3, 64, 32}}) ==
        "the name contains output");
}

TEST_CASE("of a file that is no model's, matrices of floats are converted", "[model_files]") {
  using enum ElementType;
  const auto why = [](TensorSpec tensor) {
    const LayerDecision decision = decide_by_shape(tensor);
    CHECK(decision.converts == decision.reason.empty());
    return decision.converts ? std::string("converts") : decision.reason;
  };
  CHECK(why({"a", f32, {2, 3}}) == "converts");
  CHECK(why({"a", f16, {2, 3, 4, 5}}) == "converts");
  CHECK(why({"a.weight", bf16, {2, 3}}) == "converts");
  CHECK(why({"a.weight", bf16, {2, 3, 4}}) == "a weight of 3 dimensions, as of a convolution");
  CHECK(why({"a.weight", bf16, {1, 2, 3, 4}}) == "a weight of 4 dimensions, as of a convolution");
  CHECK(why({".weight", bf16, {1, 2, 3, 4}}) == "converts");
  CHECK(why({"a", f32, {}}) == "0 dimensions, not a matrix");
  CHECK(why({"a.weight", f32, {5}}) == "1 dimensions, not a matrix");
  CHECK(why({"a", e5m2, {2, 3}}) == "e5m2 already");
  CHECK(why({"a", e8m0fnu, {2, 3}}) == "e8m0fnu already");
  CHECK(why({"a", u8, {2, 3}}) == "u8 elements, not f32, f16 or bf16");
  for (const char* name :
       {"a_scale", "a.weight_scale_inv", "a.scale", "a.weight.scale_inv", "a.scale_inv_e8m0"})
    CHECK(why({name, f32, {2, 3}}) == "the scales of another tensor");
  for (const char* name :
       {"a_scales", "scale", "scale_inv", "a.scale_inv_e8m", "ascale", "a_scale.weight"})
    CHECK(why({name, f32, {2, 3}}) == "converts");
}

TEST_CASE("blocks have several rows and several columns", "[model_files]") {
  for (const char* layout : {"compressed-tensors", "hf-fp8", "deepseek"})
    for (const auto& [rows, columns] : {std::pair{128, 1}, {128, 0}, {2, 1}, {0, 128}}) {
      Preset preset = find_preset("deepseek-v3");
      preset.weight.row_block = rows;
      preset.weight.k_block = columns;
      INFO(layout << " " << rows << " x " << columns);
      CHECK_THROWS_WITH(make_scheme(find_layout(layout), preset, false),
                        contains("expected weights with one scale per ") &&
                            contains(fmt::format(", got block {} x {}", rows, columns)));
    }
}

TEST_CASE("recipes of FP32 and of BF16 systems take their own elements", "[model_files]") {
  using enum ElementType;
  const auto why = [](const char* preset, ElementType type) {
    return test::message_of([&] {
      require_recipe_takes(preset, find_preset(preset).weight, {"t", type, {2, 2}});
    });
  };
  for (const ElementType type : {f32, f16, bf16}) {
    CHECK(why("deepseek-v3", type) == "accepted");
    CHECK(why("llm-compressor", type) ==
          (type == f32
               ? "accepted"
               : fmt::format("tensor 't' under recipe llm-compressor: expected f32 elements "
                             "(llm-compressor-bf16 takes bf16; f16 has none), got {}",
                             to_string(type))));
    CHECK(why("llm-compressor-bf16", type) ==
          (type == bf16 ? "accepted"
                        : fmt::format("tensor 't' under recipe llm-compressor-bf16: expected bf16 "
                                      "elements, got {}",
                                      to_string(type))));
  }
}
