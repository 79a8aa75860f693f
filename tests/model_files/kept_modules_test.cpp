// What config.json tells a reader to leave, and what is told of a conversion.

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model_files/models.hpp"
#include "training/model_files/amax_trace.hpp"
#include "training/model_files/quantize_model.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Names = std::vector<std::string>;

/// The modules to leave of a model whose tensors are squares of 32, but for names with `.norm`.
Names left_in_config(const TemporaryFolder& folder, const Names& tensors, const char* rule) {
  for (const char* one : {"in", "out"}) std::filesystem::remove_all(folder / one);
  std::filesystem::create_directories(folder / "in");
  const std::vector<float> values(32 * 32, 0.5F);
  const std::span<const float> all(values);
  std::vector<NamedTensor> named;
  for (const std::string& name : tensors)
    named.push_back({name, name.find(".norm") == std::string::npos
                               ? view_of(ElementType::f32, {32, 32}, all)
                               : view_of(ElementType::f32, {32}, all.first(32))});
  write_safetensors(folder / "in/model.safetensors", named);
  write_text(folder / "in/config.json", R"({"dtype": "float32"})");
  quantize_model(
      ModelDirectory(folder / "in"),
      {.preset = "llm-compressor", .layout = "compressed-tensors", .rule = rule, .calibration = {}},
      folder / "out");
  const auto config = nlohmann::json::parse(read_text(folder / "out/config.json"));
  return config["quantization_config"]["ignore"].get<Names>();
}

}  // namespace

TEST_CASE("a reader is told of every matrix that stays, and of a head unless it is converted",
          "[model_files]") {
  const TemporaryFolder folder("kept_modules");
  const auto left = [&](const Names& tensors, const char* rule) {
    return left_in_config(folder, tensors, rule);
  };
  const Names usual{"z.fc.weight", "b.norm.weight", "b.norm_bias", "a.embed.weight",
                    "lm_head.weight"};
  CHECK(left(usual, "linear") == Names{"a.embed", "lm_head"});
  CHECK(left(usual, "all") == Names{"a.embed"});
  CHECK(left({"z.fc.weight"}, "linear") == Names{"lm_head"});
  CHECK(left({"z.fc.weight", "m.lm_head.weight"}, "all") == Names{});
  CHECK(left({"z.fc.weight", "m.lm_head.weight"}, "linear") == Names{"m.lm_head"});
  CHECK(left({"z.fc.weight", "z.wte.weight", "c.wpe.weight", "z.fc.bias"}, "all") ==
        Names{"c.wpe", "lm_head", "z.wte"});
}

TEST_CASE("one NaN among experts is told", "[model_files]") {
  const TemporaryFolder folder("one_nan");
  std::filesystem::create_directories(folder / "in");
  std::vector<float> values(2 * 32 * 3, 0.5F);
  for (const bool odd : {false, true}) {
    std::filesystem::remove_all(folder / "out");
    if (odd) values[150] = std::numeric_limits<float>::quiet_NaN();
    write_safetensors(folder / "in/model.safetensors",
                      {{"l.0.experts.down_proj",
                        view_of(ElementType::f32, {2, 32, 3}, std::span<const float>(values))}});
    write_text(folder / "in/config.json", R"({"dtype": "float32"})");
    const QuantizedModel model = quantize_model(
        ModelDirectory(folder / "in"),
        {.preset = "mxfp4", .layout = "gpt-oss", .rule = "linear", .calibration = {}},
        folder / "out");
    CHECK(model.nan_weights == (odd ? Names{"l.0.experts.down_proj (1 code)"} : Names{}));
  }
}

TEST_CASE("a trace has one heading, in its first line", "[model_files]") {
  const TemporaryFolder folder("headings");
  const auto said = [&](const std::string& text) {
    write_text(folder / "t.csv", text);
    return message_of([&] { (void)read_amax_trace(folder / "t.csv"); });
  };
  const std::string second =
      fmt::format("{}:2: expected a finite amax >= 0, got 'amax'", (folder / "t.csv").string());
  CHECK(said("module,amax\na,1\n") == "accepted");
  CHECK(said("module,amax\nmodule,amax\na,1\n") == second);
  CHECK(said("\nmodule,amax\na,1\n") == second);
  CHECK(said("a,1\nmodule,amax\n") == second);
}
