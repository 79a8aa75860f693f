#include <fmt/format.h>

#include <string>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/layout.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/torchao_metadata.hpp"

using namespace fp8lab;

namespace {

struct Case {
  const char* layout;
  const char* preset;
  bool calibrated = false;
};
constexpr Case kCases[]{{"compressed-tensors", "llm-compressor"},
                        {"compressed-tensors", "vllm-per-tensor"},
                        {"compressed-tensors", "deepseek-v3"},
                        {"compressed-tensors", "ocp-mxfp8"},
                        {"compressed-tensors", "mxfp6-e2m3"},
                        {"compressed-tensors", "mxfp4"},
                        {"compressed-tensors", "compressed-tensors-mxfp6"},
                        {"compressed-tensors", "compressed-tensors-mxfp4-bf16"},
                        {"compressed-tensors", "nvfp4"},
                        {"compressed-tensors", "nvfp4", true},
                        {"modelopt", "modelopt", true},
                        {"modelopt", "vllm-per-token"},
                        {"modelopt", "modelopt-nvfp4"},
                        {"modelopt", "modelopt-nvfp4", true},
                        {"modelopt", "modelopt-mxfp8"},
                        {"modelopt", "modelopt-mxfp4"},
                        {"hf-fp8", "deepseek-v3"},
                        {"deepseek", "deepgemm"},
                        {"torchao", "torchao-inference"},
                        {"torchao", "torchao-inference-bf16"},
                        {"torchao", "ocp-mxfp8"},
                        {"torchao", "torchao-mxfp4-even"},
                        {"torchao", "torchao-nvfp4"},
                        {"gpt-oss", "mxfp4"}};

std::string text_of(const Case& c) {
  const Layout& layout = find_layout(c.layout);
  const WeightScheme scheme = make_scheme(layout, find_preset(c.preset), c.calibrated);
  std::string text =
      fmt::format("== {} {}{}\n", c.layout, c.preset, c.calibrated ? " calibrated" : "");
  text +=
      with_quantization(R"({"model_type": "llama"})", "config.json", layout, scheme, {"lm_head"});
  if (std::string(c.layout) != "torchao") return text + "\n";
  QuantizedModel model;
  model.scheme = scheme;
  model.converted = {{"a.weight", ElementType::bf16, {256, 512}},
                     {"b.weight", ElementType::f32, {128, 64}}};
  model.kept = {{{"norm.weight", ElementType::bf16, {512}}, "not a matrix"}};
  for (const auto& [name, value] : torchao_metadata(scheme, model))
    text += fmt::format("\n{}: {}", name, value);
  return text + "\n";
}

}  // namespace

TEST_CASE("what systems read of a model's quantization is as kept", "[model_files]") {
  std::string got;
  for (const Case& c : kCases) got += text_of(c);
  const std::string kept = read_file(FP8LAB_GOLDEN_DIR "/model_files/configs.kept");
  const bool same = got == kept;
  if (!same) write_file("configs.kept", got);
  INFO("tests/golden/model_files/configs.kept against configs.kept, which was written here");
  CHECK(same);
}
