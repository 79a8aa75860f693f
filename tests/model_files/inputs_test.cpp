// Scales of inputs: written for each weight as its layout has them, and dropped on the way back.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "model_files/models.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/quantize_model.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;

/// Modules of a small model, of sides that every recipe here divides.
void write_small_model(const fs::path& folder, float odd = 0.5F) {
  fs::create_directories(folder);
  std::vector<float> values(32 * 32, 0.5F);
  std::vector<float> second = values;
  second[40] = odd;
  const auto matrix = [](const std::vector<float>& x) {
    return view_of(ElementType::f32, {32, 32}, std::span<const float>(x));
  };
  const TensorView norm = view_of(ElementType::f32, {32}, std::span<const float>(values).first(32));
  write_safetensors(folder / "model.safetensors", {{"a.k_proj.weight", matrix(values)},
                                                   {"a.norm.weight", norm},
                                                   {"a.q_proj.bias", norm},
                                                   {"a.q_proj.weight", matrix(second)},
                                                   {"b.fc.weight", matrix(values)},
                                                   {"b.gate.weight", matrix(values)},
                                                   {"x.embed.weight", matrix(values)}});
  write_text(folder / "config.json", R"({"dtype": "float32"})");
}

}  // namespace

TEST_CASE("each weight has its own input's scale, or that of those it is joined with",
          "[model_files]") {
  const TemporaryFolder folder("input_scales");
  write_small_model(folder / "in");
  // The gate stays under the rule `linear`, and so do a head and a norm that no scale has.
  write_text(folder / "t.csv",
             "a.q_proj,2\na.k_proj.input,7\nb.fc,3\nb.fc,1\nb.gate,9\nlm_head,4\na.norm,5\n");
  using Scales = std::map<std::string, float>;
  struct Kind {
    const char* layout;
    const char* preset;
    const char* ending;
    std::vector<std::int64_t> shape;
    Scales scales;
  };
  const auto of = [](float q, float k, float fc) {
    return Scales{{"a.q_proj", q}, {"a.k_proj", k}, {"b.fc", fc}};
  };
  const float most = 6.0F * 448.0F;
  for (const Kind& kind : {Kind{"compressed-tensors",
                                "inference-static",
                                ".input_scale",
                                {1},
                                of(2.0F / 448.0F, 7.0F / 448.0F, 3.0F / 448.0F)},
                           Kind{"modelopt",
                                "modelopt",
                                ".input_scale",
                                {},
                                of(2.0F / 448.0F, 7.0F / 448.0F, 3.0F / 448.0F)},
                           Kind{"hf-fp8",
                                "modelopt",
                                ".activation_scale",
                                {},
                                of(2.0F / 448.0F, 7.0F / 448.0F, 3.0F / 448.0F)},
                           Kind{"compressed-tensors",
                                "nvfp4",
                                ".input_global_scale",
                                {1},
                                of(most / 7.0F, most / 7.0F, most / 3.0F)},
                           Kind{"modelopt",
                                "modelopt-nvfp4",
                                ".input_scale",
                                {},
                                of(7.0F / most, 7.0F / most, 3.0F / most)}}) {
    INFO(kind.layout << ", " << kind.preset);
    for (const char* one : {"out", "back"}) fs::remove_all(folder / one);
    const QuantizedModel done = quantize_model(ModelDirectory(folder / "in"),
                                               {.preset = kind.preset,
                                                .layout = kind.layout,
                                                .rule = "linear",
                                                .calibration = {folder / "t.csv"}},
                                               folder / "out");
    CHECK(done.unused_samples == std::vector<std::string>{"a.norm", "b.gate", "lm_head"});
    CHECK(done.nan_weights.empty());
    std::vector<std::string> converted;
    for (const TensorSpec& weight : done.converted) converted.push_back(weight.name);
    CHECK(converted ==
          std::vector<std::string>{"a.k_proj.weight", "a.q_proj.weight", "b.fc.weight"});
    std::vector<std::string> kept;
    for (const KeptTensor& one : done.kept) kept.push_back(one.tensor.name + ": " + one.reason);
    CHECK(kept == std::vector<std::string>{"a.norm.weight: the name contains norm",
                                           "a.q_proj.bias: not the .weight of a module",
                                           "b.gate.weight: the name ends with .gate",
                                           "x.embed.weight: the name contains embed"});
    const SafetensorsFile file(folder / "out/model.safetensors");
    Scales got;
    for (const NamedTensor& item : file.tensors()) {
      if (!item.name.ends_with(kind.ending)) continue;
      CHECK(item.tensor.type == ElementType::f32);
      CHECK(item.tensor.shape == kind.shape);
      got[item.name.substr(0, item.name.size() - std::string(kind.ending).size())] =
          to_float(item.tensor).at(0);
    }
    CHECK(got == kind.scales);
    // Matrices that stay are named, sorted, and so is the head that no file has.
    const std::string config = read_file(folder / "out/config.json");
    const auto names = nlohmann::json::parse(config)["quantization_config"];
    const char* key = names.contains("ignore") ? "ignore" : "modules_to_not_convert";
    CHECK(names[key] == nlohmann::json{"b.gate", "lm_head", "x.embed"});
    // On the way back no scale is left.
    (void)dequantize_model(ModelDirectory(folder / "out"), {}, folder / "back");
    std::set<std::string> left;
    const SafetensorsFile back(folder / "back/model.safetensors");
    for (const NamedTensor& item : back.tensors()) left.insert(item.name);
    CHECK(left == std::set<std::string>{"a.k_proj.weight", "a.norm.weight", "a.q_proj.bias",
                                        "a.q_proj.weight", "b.fc.weight", "b.gate.weight",
                                        "x.embed.weight"});
  }
}

TEST_CASE("weights with NaN codes are told with how many they have", "[model_files]") {
  const TemporaryFolder folder("nan_codes");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto told = [&](const char* layout, const char* preset, float odd) {
    for (const char* one : {"in", "out"}) fs::remove_all(folder / one);
    write_small_model(folder / "in", odd);
    const std::vector<std::string> nan =
        quantize_model(ModelDirectory(folder / "in"),
                       {.preset = preset, .layout = layout, .rule = "linear", .calibration = {}},
                       folder / "out")
            .nan_weights;
    // As many codes as the file has.
    std::int64_t codes = 0;
    const SafetensorsFile file(folder / "out/model.safetensors");
    for (const NamedTensor& item : file.tensors())
      if (item.name == "a.q_proj.weight")
        for (const std::byte code : item.tensor.bytes)
          codes += (std::to_integer<unsigned>(code) & 0x7fU) == 0x7fU ? 1 : 0;
    return std::pair{codes, nan};
  };
  using Told = std::pair<std::int64_t, std::vector<std::string>>;
  CHECK(told("compressed-tensors", "llm-compressor", 0.5F) == Told{0, {}});
  // A row of NaN, as torch.amax has it, and an element alone where NaN is no amax.
  CHECK(told("compressed-tensors", "llm-compressor", kNan) ==
        Told{32, {"a.q_proj.weight (32 codes)"}});
}

TEST_CASE("scales of inputs and of the KV cache are dropped by name, and no others",
          "[model_files]") {
  const TemporaryFolder folder("dropped");
  const float one = 1.0F;
  const TensorView number = view_of(ElementType::f32, {1}, std::span(&one, 1));
  const Bytes codes{0x38, 0x40};
  const std::vector<std::string> scales{"input_scale", "activation_scale", "input_global_scale"};
  const std::vector<std::string> outputs{"output_scale"};
  const std::vector<std::string> cached{"k_scale"};
  const std::vector<std::string> others{"input_scale_inv", "input", "input_scales"};
  fs::create_directory(folder / "in");
  std::vector<NamedTensor> tensors{{"m.weight", bytes_view(ElementType::e4m3fn, {1, 2}, codes)},
                                   {"m.weight_scale", number}};
  std::set<std::string> kept{"m.weight"};
  for (const std::string module : {"m", "n"})
    for (const auto* names : {&scales, &outputs, &cached, &others})
      for (const std::string& name : *names) {
        tensors.push_back({module + "." + name, number});
        // Of a module without codes, inputs and outputs have scales that are not this format's.
        if (names == &others || (module == "n" && names != &cached))
          kept.insert(module + "." + name);
      }
  write_safetensors(folder / "in/model.safetensors", tensors);
  write_text(folder / "in/config.json", config_of("compressed-tensors", "llm-compressor"));
  const DequantizedModel done = dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
  std::set<std::string> left;
  const SafetensorsFile file(folder / "out/model.safetensors");
  for (const NamedTensor& item : file.tensors()) left.insert(item.name);
  CHECK(left == kept);
  std::set<std::string> told;
  for (const DroppedTensor& lost : done.dropped) told.insert(lost.of + " " + lost.name);
  CHECK(told == std::set<std::string>{"KV cache m.k_scale", "KV cache n.k_scale",
                                      "input m.activation_scale", "input m.input_global_scale",
                                      "input m.input_scale", "output m.output_scale"});
  CHECK(done.kept_scales ==
        std::vector<std::string>{"n.activation_scale", "n.input_global_scale", "n.input_scale"});
}
