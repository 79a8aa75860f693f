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
#include "fp8lab/model_files/siblings.hpp"
#include "io/temporary.hpp"

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
