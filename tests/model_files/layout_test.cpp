#include "fp8lab/model_files/layout.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/model_files/amax_trace.hpp"
#include "fp8lab/model_files/blocked_scales.hpp"
#include "fp8lab/model_files/calibration.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/recipe_input.hpp"
#include "fp8lab/model_files/siblings.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

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
    CHECK(stored->row_block == 128);
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
    CHECK(stored->format == scheme.format);
    CHECK(stored->scales == scheme.scales);
    CHECK(stored->k_block == scheme.k_block);
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
    CHECK(modelopt_config(scheme_of("modelopt", c.preset, c.calibrated), {"lm_head", "a"}) ==
          expected);
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

TEST_CASE("scales in blocks of 128 x 4", "[model_files]") {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kColumns = 5;
  std::vector<std::uint8_t> scales(kRows * kColumns);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i % 251);
  const auto blocked = to_blocked(scales, kRows, kColumns);
  REQUIRE(blocked_shape(kRows, kColumns) == Shape{64, 32});
  REQUIRE(blocked.size() == 64 * 32);
  CHECK(blocked[16] == scales[1 * kColumns]);           // row 1
  CHECK(blocked[4] == scales[32 * kColumns]);           // row 32
  CHECK(blocked[3] == scales[3]);                       // column 3
  CHECK(blocked[512] == scales[4]);                     // the next block across
  CHECK(blocked[513] == 0);                             // past the last column
  CHECK(blocked[1024 + 16] == scales[129 * kColumns]);  // the next block down
  CHECK(from_blocked(blocked, kRows, kColumns) == scales);
  CHECK_THROWS_AS(to_blocked(scales, kRows, 6), Error);
  CHECK_THROWS_AS(from_blocked(scales, kRows, kColumns), Error);
}

TEST_CASE("weights that are one matrix when served", "[model_files]") {
  CHECK(joined_module("model.layers.0.self_attn.q_proj") == "model.layers.0.self_attn.qkv");
  CHECK(joined_module("a.k_proj") == joined_module("a.v_proj"));
  CHECK(joined_module("a.mlp.up_proj") == joined_module("a.mlp.gate_proj"));
  CHECK(joined_module("a.mlp.up_proj") != joined_module("b.mlp.gate_proj"));
  CHECK(joined_module("a.down_proj").empty());
  std::map<std::string, float> scales{{"a.q_proj", 3.0F}, {"a.k_proj", 2.0F}, {"a.o_proj", 9.0F}};
  join_input_scales(scales, true);
  CHECK(scales ==
        std::map<std::string, float>{{"a.q_proj", 2.0F}, {"a.k_proj", 2.0F}, {"a.o_proj", 9.0F}});
  scales["a.q_proj"] = 3.0F;
  join_input_scales(scales, false);
  CHECK(scales["a.k_proj"] == 3.0F);
}

TEST_CASE("amaxes of weights that are one matrix when served", "[model_files]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const TemporaryFolder folder("siblings");
  // Of each parent three weights of 32 equal numbers, in any order of sizes.
  const std::vector<std::pair<std::string, std::vector<float>>> parents{
      {"a", {1.0F, 2.0F, 3.0F}},  {"b", {3.0F, -4.0F, 1.0F}}, {"c", {5.0F, 2.0F, 1.0F}},
      {"d", {kNan, 2.0F, 3.0F}},  {"e", {1.0F, kNan, 3.0F}},  {"f", {1.0F, 2.0F, kNan}},
      {"g", {1.0F, -kInf, 2.0F}}, {"h", {0.0F, 0.0F, 0.0F}},  {"i", {7.0F}}};
  std::vector<std::vector<float>> kept;
  std::vector<NamedTensor> tensors;
  QuantizedModel model;
  for (const auto& [parent, sizes] : parents)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      kept.emplace_back(32, sizes[i]);
      const std::string name = parent + "." + std::string(1, "qkv"[i]) + "_proj.weight";
      tensors.push_back(
          {name, view_of(ElementType::f32, {2, 16}, std::span<const float>(kept.back()))});
      model.converted.push_back({name, ElementType::f32, {2, 16}});
    }
  write_safetensors(folder / "model.safetensors", tensors);
  const ModelDirectory source(folder.path());
  const Recipe& recipe = find_preset("modelopt-nvfp4").weight;
  std::map<std::string, float> expected;
  for (const auto& [parent, largest] :
       {std::pair{"a", 3.0F}, std::pair{"b", 4.0F}, std::pair{"c", 5.0F}, std::pair{"h", 0.0F}})
    for (const char letter : {'q', 'k', 'v'})
      expected[std::string(parent) + "." + std::string(1, letter) + "_proj"] = largest;
  CHECK(shared_amaxes(source, recipe, model) == expected);
}

TEST_CASE("the module of a trace's line is the field before its amax", "[model_files]") {
  const TemporaryFolder folder("trace");
  const std::filesystem::path path = folder / "t.csv";
  const auto read = [&](const std::string& text) {
    write_text(path, text);
    return read_amax_trace(path);
  };
  const auto trace =
      read("step,module,amax\n7,a.input,1.5\n\na,0\n 8 , 3,\tb , 0x1.8p1 \r\n \t\r\n,c,2e-3");
  struct Line {
    const char* module;
    float amax;
    int number;
  };
  const std::vector<Line> expected{
      {"a.input", 1.5F, 2}, {"a", 0.0F, 4}, {"b", 3.0F, 5}, {"c", 2e-3F, 7}};
  REQUIRE(trace.size() == expected.size());
  for (std::size_t i = 0; i < trace.size(); ++i) {
    INFO(i);
    CHECK(trace[i].module == expected[i].module);
    CHECK(trace[i].amax == expected[i].amax);
    CHECK(trace[i].line == expected[i].number);
  }
  CHECK(read("a,1\n").at(0).line == 1);  // no heading
  const std::string where = path.string();
  for (const char* text : {"", "\n", "module,amax\n", "amax\n\n"})
    CHECK_THROWS_WITH((read(text)), contains(where + ": expected lines of MODULE,AMAX, got none"));
  for (const char* text : {"1.5\n", ",1.5\n"})
    CHECK_THROWS_WITH(read(text), contains(where + ":1: expected MODULE,AMAX"));
  CHECK_THROWS_WITH(read("a,1\n\n5\n"), contains(where + ":3: expected MODULE,AMAX"));
  for (const char* amax : {"-1", "-0x1p-149", "inf", "nan", "1e39", "x", "", "1.5x", "1 5"}) {
    INFO(amax);
    CHECK_THROWS_WITH(read(fmt::format("a,1\na,{}\n", amax)),
                      contains(fmt::format("{}:2: expected a finite amax >= 0", where)));
  }
}

TEST_CASE("an input's scale is that of the largest of its samples", "[model_files]") {
  const TemporaryFolder folder("calibration");
  const std::vector<float> first{1.0F, -2.0F, 0.5F, 0.0F};
  const std::vector<float> second{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 0.0F, -7.0F};
  const std::vector<float> column{1.0F, 2.0F, -3.5F};
  const auto sample = [](std::vector<std::int64_t> shape, const std::vector<float>& values) {
    return view_of(ElementType::f32, std::move(shape), std::span<const float>(values));
  };
  write_safetensors(folder / "one.safetensors", {{"a.input.0", sample({4}, first)},
                                                 {"b", sample({3, 1}, column)},
                                                 {"head.input", sample({4}, first)}});
  write_safetensors(folder / "two.safetensors", {{"a.input.3", sample({2, 1, 4}, second)}});
  write_text(folder / "trace.csv", "step,module,amax\n0,a,2\n0,b.input,3.5\n1,head,9\n1,a,7\n");
  CalibrationTargets targets{.columns = {{"a", 4}, {"b", 1}}, .kept = {"head", "norm"}};
  using Scales = std::map<std::string, float>;
  const std::vector<std::vector<std::filesystem::path>> sources{
      {folder / "one.safetensors", folder / "two.safetensors"}, {folder / "trace.csv"}};
  const auto scales = [&](const char* preset, std::size_t source) {
    const InputScales result = calibrate_inputs(find_preset(preset), sources[source], targets);
    CHECK(result.unused == std::set<std::string>{"head"});
    return result.scales;
  };
  for (const std::size_t source : {0U, 1U}) {
    INFO("source " << source);
    for (const char* preset : {"modelopt", "inference-static"})
      CHECK(scales(preset, source) == Scales{{"a", 7.0F / 448.0F}, {"b", 3.5F / 448.0F}});
    targets.as_multipliers = false;
    CHECK(scales("nvfp4", source) == Scales{{"a", 1.0F / 384.0F}, {"b", 1.0F / 768.0F}});
    targets.as_multipliers = true;
    CHECK(scales("nvfp4", source) == Scales{{"a", 384.0F}, {"b", 768.0F}});
  }
}

TEST_CASE("samples are taken in the order of files and numbers", "[model_files]") {
  const TemporaryFolder folder("calibration_order");
  const std::array<float, 3> amaxes{2 * 448.0F, 4 * 448.0F, 8 * 448.0F};
  const auto sample = [&](std::size_t i) {
    return view_of(ElementType::f32, {1}, std::span(amaxes).subspan(i, 1));
  };
  write_safetensors(folder / "b.safetensors",
                    {{"m.0.input.10", sample(1)}, {"m.0.input.2", sample(0)}});
  write_safetensors(folder / "a.safetensors", {{"m.0.1", sample(2)}});
  write_text(folder / "trace.csv", "m.0,896\nm.0.input,1792\nm.0,3584\n");
  CalibrationTargets targets{.columns = {{"m.0", 1}}, .kept = {}};
  const auto scale = [&](const std::vector<std::filesystem::path>& files) {
    return static_cast<double>(
        calibrate_inputs(find_preset("quanto"), files, targets).scales.at("m.0"));
  };
  // 0.9 of the mean so far and 0.1 of the new scale.
  const double expected = 0.9 * (0.9 * 2.0 + 0.1 * 4.0) + 0.1 * 8.0;
  CHECK(std::abs(scale({folder / "b.safetensors", folder / "a.safetensors"}) - expected) < 1e-5);
  CHECK(std::abs(scale({folder / "trace.csv"}) - expected) < 1e-5);
  const double other = 0.9 * (0.9 * 8.0 + 0.1 * 2.0) + 0.1 * 4.0;
  CHECK(std::abs(scale({folder / "a.safetensors", folder / "b.safetensors"}) - other) < 1e-5);
}

TEST_CASE("samples that give no scale are refused by name", "[model_files]") {
  const TemporaryFolder folder("calibration_bad");
  const std::vector<float> values{1.0F, 0.0F, 2.0F, 0.0F};
  const std::vector<float> zeros(4);
  const std::vector<float> nan{1.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F, 0.0F};
  const CalibrationTargets targets{.columns = {{"a", 4}}, .kept = {"head"}};
  const auto ask = [&](const std::string& name, const TensorView& tensor,
                       const char* preset = "modelopt") {
    write_safetensors(folder / "s.safetensors", {{name, tensor}});
    return [&folder, &targets, preset] {
      (void)calibrate_inputs(find_preset(preset), {folder / "s.safetensors"}, targets);
    };
  };
  const auto view = [](std::vector<std::int64_t> shape, const std::vector<float>& x) {
    return view_of(ElementType::f32, std::move(shape), std::span<const float>(x));
  };
  CHECK_NOTHROW(ask("a", view({1, 4}, values))());
  for (const char* name : {"b", "a.output", "a.input.x", "a.input.1.2", "a.inputs", "a."}) {
    INFO(name);
    CHECK_THROWS_WITH(ask(name, view({1, 4}, values))(),
                      contains(fmt::format("'{}': expected MODULE, MODULE.input", name)));
  }
  for (const Shape& shape : {Shape{4, 1}, Shape{2, 2}, Shape{0, 4}}) {
    const std::vector<float> part(values.begin(), values.begin() + (shape[0] == 0 ? 0 : 4));
    CHECK_THROWS_WITH(ask("a", view(shape, part))(),
                      contains("'a': expected inputs [..., 4], got " + shape_text(shape)));
  }
  CHECK_THROWS_WITH(ask("head", view({1, 4}, values))(),
                    contains("`calibration`: expected a sample of a.input, got none"));
  CHECK_THROWS_WITH(ask("a", view({4}, zeros))(),
                    contains("samples of a: expected inputs that give a scale above 0, got 0"));
  CHECK_THROWS_WITH(ask("a", view({4}, nan))(), contains("'a': ") && contains("NaN"));
  const std::vector<std::int32_t> whole(4, 1);
  CHECK_THROWS_WITH(ask("a", view_of(ElementType::i32, {4}, std::span(whole)))(),
                    contains("'a': expected f32, f16 or bf16 elements, got i32"));

  const auto trace = [&](const char* text, const char* preset) {
    write_text(folder / "t.csv", text);
    (void)calibrate_inputs(find_preset(preset), {folder / "t.csv"}, targets);
  };
  CHECK_NOTHROW(trace("a,1.5\n", "quanto-bf16"));
  CHECK_NOTHROW(trace("a,1.501\n", "quanto"));
  CHECK_THROWS_WITH(trace("a,1.5\na,1.501\n", "quanto-bf16"),
                    contains("t.csv:2: expected a BF16 number under recipe quanto-bf16"));
  CHECK_THROWS_WITH(trace("a,1\na.output,1\n", "quanto"),
                    contains("t.csv:2: expected MODULE or MODULE.input"));
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

TEST_CASE("scales in blocks of 128 x 4 of any size, each by its own place", "[model_files]") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {127, 3}, {128, 4}, {129, 5}, {31, 9}, {257, 13}, {300, 8}}) {
    INFO(rows << " x " << columns);
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<std::uint8_t>(1 + i % 253);
    const std::int64_t down = (rows + 127) / 128;
    const std::int64_t across = (columns + 3) / 4;
    CHECK(blocked_shape(rows, columns) == Shape{32 * down, 16 * across});
    // Blocks in row-major order; in a block 32 rows of four times four scales.
    std::vector<std::uint8_t> expected;
    for (std::int64_t block = 0; block < down * across; ++block)
      for (std::int64_t inner = 0; inner < 32; ++inner)
        for (std::int64_t quarter = 0; quarter < 4; ++quarter)
          for (std::int64_t c = 0; c < 4; ++c) {
            const std::int64_t row = block / across * 128 + 32 * quarter + inner;
            const std::int64_t column = block % across * 4 + c;
            const bool inside = row < rows && column < columns;
            expected.push_back(inside ? scales[static_cast<std::size_t>(row * columns + column)]
                                      : std::uint8_t{0});
          }
    CHECK((to_blocked(scales, rows, columns) == expected));
    CHECK((from_blocked(expected, rows, columns) == scales));
    CHECK_THROWS_WITH(
        to_blocked(scales, rows, columns + 1),
        fmt::format("scales: expected {}, got {}", rows * (columns + 1), rows * columns));
    CHECK_THROWS_WITH(
        from_blocked(std::span(expected).subspan(1), rows, columns),
        fmt::format("scales: expected {}, got {}", expected.size(), expected.size() - 1));
    std::vector<std::uint8_t> longer = expected;
    longer.push_back(0);
    CHECK_THROWS_WITH(
        from_blocked(longer, rows, columns),
        fmt::format("scales: expected {}, got {}", expected.size(), expected.size() + 1));
  }
}

TEST_CASE("every part of a joined matrix, and no other name", "[model_files]") {
  for (const auto& [part, whole] : {std::pair{"q_proj", "qkv"},
                                    {"k_proj", "qkv"},
                                    {"v_proj", "qkv"},
                                    {"gate_proj", "gate_up"},
                                    {"up_proj", "gate_up"},
                                    {"w1", "w13"},
                                    {"w3", "w13"}}) {
    CHECK(joined_module(fmt::format("a.0.{}", part)) == fmt::format("a.0.{}", whole));
    CHECK(joined_module(part).empty());
    CHECK(joined_module(fmt::format("a.{}.x", part)).empty());
    CHECK(joined_module(fmt::format("a.x{}", part)).empty());
  }
  for (const char* other : {"a.w2", "a.o_proj", "a.down_proj", "a.", "a.qkv", "a.w13", ""})
    CHECK(joined_module(other).empty());
  const std::map<std::string, float> scales{
      {"a.gate_proj", 3.0F}, {"a.up_proj", 2.0F}, {"b.up_proj", 7.0F},
      {"b.w1", 1.0F},        {"b.w3", 4.0F},      {"c.q_proj", 5.0F},
      {"c.k_proj", 6.0F},    {"c.v_proj", 4.5F},  {"c.o_proj", 8.0F}};
  std::map<std::string, float> largest = scales;
  join_input_scales(largest, false);
  CHECK(largest == std::map<std::string, float>{{"a.gate_proj", 3.0F},
                                                {"a.up_proj", 3.0F},
                                                {"b.up_proj", 7.0F},
                                                {"b.w1", 4.0F},
                                                {"b.w3", 4.0F},
                                                {"c.q_proj", 6.0F},
                                                {"c.k_proj", 6.0F},
                                                {"c.v_proj", 6.0F},
                                                {"c.o_proj", 8.0F}});
  std::map<std::string, float> smallest = scales;
  join_input_scales(smallest, true);
  CHECK(smallest == std::map<std::string, float>{{"a.gate_proj", 2.0F},
                                                 {"a.up_proj", 2.0F},
                                                 {"b.up_proj", 7.0F},
                                                 {"b.w1", 1.0F},
                                                 {"b.w3", 1.0F},
                                                 {"c.q_proj", 4.5F},
                                                 {"c.k_proj", 4.5F},
                                                 {"c.v_proj", 4.5F},
                                                 {"c.o_proj", 8.0F}});
}

TEST_CASE("amaxes of two joined weights, in one shard or in two", "[model_files]") {
  for (const bool apart : {false, true}) {
    const TemporaryFolder folder("siblings_apart");
    const std::vector<std::vector<float>> values{
        std::vector<float>(32, 2.0F), std::vector<float>(32, -5.0F), std::vector<float>(32, 9.0F)};
    const auto tensor = [&](const char* name, std::size_t i) {
      return NamedTensor{name, view_of(ElementType::f32, {2, 16}, std::span(values[i]))};
    };
    const NamedTensor gate = tensor("a.gate_proj.weight", 0);
    const NamedTensor up = tensor("a.up_proj.weight", 1);
    const NamedTensor down = tensor("a.down_proj.weight", 2);
    const std::string second = apart ? "two.safetensors" : "one.safetensors";
    if (apart) {
      write_safetensors(folder / "one.safetensors", {gate, down});
      write_safetensors(folder / "two.safetensors", {up});
    } else {
      write_safetensors(folder / "one.safetensors", {gate, up, down});
    }
    write_text(folder / std::string(kIndexFile),
               fmt::format(R"({{"weight_map": {{"a.gate_proj.weight": "one.safetensors",
                               "a.down_proj.weight": "one.safetensors",
                               "a.up_proj.weight": "{}"}}}})",
                           second));
    QuantizedModel model;
    for (const NamedTensor& item : {gate, up, down})
      model.converted.push_back({item.name, item.tensor.type, item.tensor.shape});
    const auto amaxes = [&] {
      return shared_amaxes(ModelDirectory(folder.path()), find_preset("nvfp4").weight, model);
    };
    CHECK(amaxes() == std::map<std::string, float>{{"a.gate_proj", 5.0F}, {"a.up_proj", 5.0F}});
    model.converted.erase(model.converted.begin());  // one alone shares nothing
    CHECK(amaxes().empty());
  }
}

TEST_CASE("samples of sixteen bits, and names that say themselves", "[model_files]") {
  const TemporaryFolder folder("calibration_types");
  const std::vector<std::uint16_t> half{0x3c00, 0xc700};   // 1, -7 in FP16
  const std::vector<std::uint16_t> brain{0x3f80, 0xc0e0};  // the same in BF16
  const std::vector<float> single{1.0F, -7.0F};
  const CalibrationTargets targets{.columns = {{"a", 2}}, .kept = {}};
  for (const TensorView& view : {view_of(ElementType::f16, {1, 2}, std::span(half)),
                                 view_of(ElementType::bf16, {2}, std::span(brain)),
                                 view_of(ElementType::f32, {1, 1, 2}, std::span(single))}) {
    INFO(to_string(view.type));
    write_safetensors(folder / "s.safetensors", {{"a.input", view}});
    CHECK(calibrate_inputs(find_preset("inference-static"), {folder / "s.safetensors"}, targets)
              .scales.at("a") == 7.0F / 448.0F);
  }
  // A module whose own name ends with `.input` goes before one without.
  const CalibrationTargets both{.columns = {{"a", 1}, {"a.input", 1}, {"a.0", 1}}, .kept = {}};
  write_text(folder / "t.csv", "a,1\na.input,2\na.0,4\na.input.input,8\na.0.input,16\n");
  const auto scales = calibrate_inputs(find_preset("modelopt"), {folder / "t.csv"}, both).scales;
  CHECK(scales == std::map<std::string, float>{
                      {"a", 1.0F / 448.0F}, {"a.input", 8.0F / 448.0F}, {"a.0", 16.0F / 448.0F}});
}

TEST_CASE("long lines of a trace are cut in messages", "[model_files]") {
  const TemporaryFolder folder("trace_long");
  const std::string path = (folder / "t.csv").string();
  for (const std::size_t letters : {59U, 60U, 61U}) {
    const std::string line(letters, 'x');
    write_text(path, "a,1\n" + line + "\n");
    CHECK_THROWS_WITH(read_amax_trace(path),
                      fmt::format("{}:2: expected MODULE,AMAX, got {}", path, line.substr(0, 60)));
  }
  for (const std::size_t letters : {39U, 40U, 41U}) {
    const std::string amax(letters, 'x');
    write_text(path, "a,1\nb," + amax + "\n");
    CHECK_THROWS_WITH(
        read_amax_trace(path),
        fmt::format("{}:2: expected a finite amax >= 0, got '{}'", path, amax.substr(0, 40)));
  }
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
