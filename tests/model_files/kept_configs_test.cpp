#include <fmt/format.h>

#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/quantize_model.hpp"
#include "training/model_files/stored_quantization.hpp"

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
                        {"torchao", "torchao-tensorwise"},
                        {"compressed-tensors", "modelopt", true},
                        {"compressed-tensors", "inference-static", true},
                        {"hf-fp8", "modelopt", true},
                        {"hf-fp8", "vllm-per-tensor"},
                        {"hf-fp8", "deepgemm-ue8m0"},
                        {"deepseek", "deepgemm-ue8m0"},
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
                     {"b.weight", ElementType::f32, {128, 64}},
                     {"c.weight", ElementType::f16, {32, 96}}};
  model.kept = {{{"norm.weight", ElementType::bf16, {512}}, "not a matrix"}};
  for (const auto& [name, value] : layout.family->metadata(model))
    text += fmt::format("\n{}: {}", name, value);
  return text + "\n";
}

std::string kind(ScaleKind scales) {
  if (scales == ScaleKind::plain) return "plain";
  return scales == ScaleKind::e8m0 ? "e8m0" : "two_level";
}

/// A line: what the layout says of the preset, and seals of the files that say it; or why it
/// cannot.
std::string scheme_text(const Layout& layout, const Preset& preset, bool calibrated) {
  std::string text =
      fmt::format("{} {}{}: ", layout.name, preset.name, calibrated ? " calibrated" : "");
  try {
    const WeightScheme s = make_scheme(layout, preset, calibrated);
    text += fmt::format("{} {} {} {}x{}, scales {}, input {} {} {} {}{} {}", format(s.format).name,
                        kind(s.scales), to_string(s.tiles), s.row_block, s.k_block,
                        to_string(s.scale_type), to_string(s.input), s.input_group,
                        format(s.input_format).name, to_string(s.input_scale_type),
                        s.power_of_two ? ", powers of two" : "", s.torchao_scaling);
    for (const std::vector<std::string>& kept :
         {std::vector<std::string>{}, std::vector<std::string>{"lm_head", "a"}}) {
      const std::string config = with_quantization("{}", "c", layout, s, kept);
      text += fmt::format(" {}", crc32_text(config));
      if (!layout.family->own_file().empty())
        text += fmt::format(" {}", crc32_text(own_config(layout, s, kept)));
      const auto stored = read_quantization(config, "c");
      if (!kept.empty() && stored)
        text +=
            fmt::format(", back {} {} {}x{}", format(stored->form.format).name,
                        kind(stored->form.scales), stored->form.row_block, stored->form.k_block);
    }
  } catch (const Error& error) {
    text += error.what();
  }
  return text + "\n";
}

}  // namespace

TEST_CASE("what each layout makes of each recipe is as kept", "[model_files]") {
  std::string got;
  for (const Layout& layout : layouts())
    for (const Preset& preset : presets())
      for (const bool calibrated : {false, true}) got += scheme_text(layout, preset, calibrated);
  const std::string kept = read_file(FP8LAB_GOLDEN_DIR "/model_files/schemes.kept");
  const bool same = got == kept;
  if (!same) write_file("schemes.kept", got);
  INFO("tests/golden/model_files/schemes.kept against schemes.kept, which was written here");
  CHECK(same);
}

TEST_CASE("what systems read of a model's quantization is as kept", "[model_files]") {
  std::string got;
  for (const Case& c : kCases) got += text_of(c);
  const std::string kept = read_file(FP8LAB_GOLDEN_DIR "/model_files/configs.kept");
  const bool same = got == kept;
  if (!same) write_file("configs.kept", got);
  INFO("tests/golden/model_files/configs.kept against configs.kept, which was written here");
  CHECK(same);
}
