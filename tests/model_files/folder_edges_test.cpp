// What stands beside weights in the folder of a model that is converted: files and metadata of
// other systems, and weights that are not finite.

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/scaling/two_level.hpp"
#include "io/temporary.hpp"
#include "model_files/models.hpp"
#include "training/model_files/quantize_model.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;

/// Two weights of 32 x 32 numbers, the first of which is `first`, in a folder of their own.
void write_edges(const fs::path& folder, float first,
                 const std::map<std::string, std::string>& metadata) {
  fs::remove_all(folder);
  fs::create_directory(folder);
  std::vector<float> values(32 * 32, 0.5F);
  const std::vector<float> other(32 * 32, 0.25F);
  values[0] = first;
  write_safetensors(
      folder / "model.safetensors",
      {{"a.weight", view_of(ElementType::f32, {32, 32}, std::span<const float>(values))},
       {"b.weight", view_of(ElementType::f32, {32, 32}, std::span<const float>(other))}},
      metadata);
  write_text(folder / "config.json", R"({"dtype": "float32"})");
}

}  // namespace

TEST_CASE("another system's description of a model's numbers is not taken along", "[model_files]") {
  const TemporaryFolder folder("descriptions");
  for (const auto& [layout, preset] : {std::pair{"compressed-tensors", "llm-compressor"},
                                       {"modelopt", "torchao-rowwise"},
                                       {"torchao", "torchao-inference"},
                                       {"modelopt", "modelopt-nvfp4"}}) {
    INFO(layout << ", " << preset);
    write_edges(folder / "in", 0.5F, {});
    write_text(folder / "in/hf_quant_config.json", "old");
    write_text(folder / "in/tokenizer.json", "old");
    fs::remove_all(folder / "out");
    const QuantizedModel done = quantize_model(
        ModelDirectory(folder / "in"),
        {.preset = preset, .layout = layout, .rule = "all", .calibration = {}}, folder / "out");
    CHECK(done.files.copied == std::vector<std::string>{"tokenizer.json"});
    const bool own = std::string(layout) == "modelopt";
    CHECK(fs::exists(folder / "out/hf_quant_config.json") == own);
    if (own) CHECK(read_file(folder / "out/hf_quant_config.json") != "old");
  }
}

TEST_CASE("a file's metadata stays, but what torchao's reader needs is torchao's",
          "[model_files]") {
  const TemporaryFolder folder("file_metadata");
  const std::map<std::string, std::string> before{
      {"format", "pt"}, {"a.weight", "a note"}, {"tensor_names", "[]"}, {"c", "d"}};
  const auto after = [&](const char* layout, const char* preset) {
    write_edges(folder / "in", 0.5F, before);
    fs::remove_all(folder / "out");
    quantize_model(ModelDirectory(folder / "in"),
                   {.preset = preset, .layout = layout, .rule = "all", .calibration = {}},
                   folder / "out");
    return SafetensorsFile(folder / "out/model.safetensors").metadata();
  };
  CHECK(after("compressed-tensors", "llm-compressor") == before);
  const std::map<std::string, std::string> torchao = after("torchao", "torchao-inference");
  CHECK(torchao.size() == 5);
  CHECK(torchao.at("format") == "pt");
  CHECK(torchao.at("c") == "d");
  CHECK(torchao.at("tensor_names") == R"(["a.weight","b.weight"])");
  for (const char* weight : {"a.weight", "b.weight"})
    CHECK_THAT(torchao.at(weight), contains("Float8Tensor"));
}

TEST_CASE("a weight that is not finite has the tensor scale of its rule", "[model_files]") {
  const TemporaryFolder folder("not_finite");
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  struct Kind {
    const char* layout;
    const char* preset;
    const char* scale;
  };
  for (const Kind& kind :
       {Kind{"compressed-tensors", "nvfp4", "a.weight_global_scale"},
        Kind{"compressed-tensors", "compressed-tensors-nvfp4", "a.weight_global_scale"},
        Kind{"modelopt", "modelopt-nvfp4", "a.weight_scale_2"},
        Kind{"torchao", "torchao-nvfp4", "a._weight_per_tensor_scale"}})
    for (const float first : {kInf, -kInf, kNan, 0.5F, 7.0F}) {
      const Recipe& recipe = find_preset(kind.preset).weight;
      write_edges(folder / "in", first, {});
      fs::remove_all(folder / "out");
      quantize_model(
          ModelDirectory(folder / "in"),
          {.preset = kind.preset, .layout = kind.layout, .rule = "all", .calibration = {}},
          folder / "out");
      const std::vector<float> both{first, 0.5F};
      const TensorScale expected =
          tensor_scale(recipe.rule, amax(both, amax_ignores_nan(recipe.rule)));
      const bool multiplies = std::string(kind.layout) == "compressed-tensors";
      const float want = multiplies ? expected.scale : expected.inverse_scale;
      const float got =
          to_float(SafetensorsFile(folder / "out/model.safetensors").find(kind.scale)).at(0);
      INFO(kind.layout << ", " << kind.preset << ", first " << first << ": expected " << want
                       << ", got " << got);
      CHECK((got == want || (std::isnan(got) && std::isnan(want))));
    }
}
