// Samples and amaxes that scales of inputs come from, and weights that share theirs.

#include "training/model_files/calibration.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "io/temporary.hpp"
#include "training/model_files/amax_trace.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/siblings.hpp"

using namespace fp8lab;

namespace {

using Shape = std::vector<std::int64_t>;

}  // namespace

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
  for (const char* name : {"b", "a.output", "a.input.x", "a.input.1x", "a.1x", "a.input.-",
                           "a.input.1.2", "a.inputs", "a."}) {
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
