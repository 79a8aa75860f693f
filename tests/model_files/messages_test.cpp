// What is refused of a model's folder, word for word.

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model_files/models.hpp"
#include "training/model_files/calibration.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/quantize_model.hpp"
#include "training/model_files/stored_quantization.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("what is wrong with a model's index, word for word", "[model_files]") {
  const TemporaryFolder folder("index_words");
  write_shard(folder / "one.safetensors", {"a", "b"});
  write_shard(folder / "two.safetensors", {"c"});
  const auto said = [&](const std::string& index) {
    write_text(folder / std::string(kIndexFile), index);
    return message_in(folder.path(), [&] { (void)ModelDirectory(folder.path()); });
  };
  const auto mapped = [&](const std::string& map) {
    return said(fmt::format(R"({{"weight_map": {{{}}}}})", map));
  };
  const std::string ab = R"("a": "one.safetensors", "b": "one.safetensors")";
  const std::string index = "~/model.safetensors.index.json";
  CHECK(mapped(fmt::format(R"({}, "c": "two.safetensors")", ab)) == "accepted");
  for (const char* other : {"[]", "{}", "7", R"({"weight_map": []})", R"({"weight_map": "a"})"})
    CHECK(
        said(other) ==
        fmt::format("{}: expected an object with weight_map: {{tensor: file}}, got something else",
                    index));
  CHECK(mapped("") ==
        fmt::format("{}: expected a weight_map with tensors, got an empty one", index));
  const std::string name(90, 'n');
  CHECK(mapped(fmt::format(R"("{}": ["{}"])", name, name)) ==
        fmt::format("{}: weight_map['{}']: expected the name of a file, got [\"{}", index,
                    name.substr(0, 80), name.substr(0, 78)));
  CHECK(mapped(fmt::format(R"("{}": "{}")", name, name)) ==
        fmt::format("{}: weight_map['{}']: expected the name of a .safetensors file in the same "
                    "folder, got '{}'",
                    index, name.substr(0, 80), name.substr(0, 80)));
  CHECK(mapped(fmt::format(R"({}, "{}": "two.safetensors")", ab, name)) ==
        fmt::format("{}: '{}': expected a tensor of two.safetensors, got a tensor that no shard "
                    "holds",
                    index, name.substr(0, 80)));
  CHECK(mapped(fmt::format(R"({}, "c": "one.safetensors")", ab)) ==
        fmt::format("{}: 'c': expected a tensor of one.safetensors, got a tensor that no shard "
                    "holds",
                    index));
  CHECK(mapped(R"("a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors")") ==
        fmt::format("{}: 'b': expected a tensor of two.safetensors, got one of one.safetensors",
                    index));
  CHECK(mapped(R"("a": "one.safetensors", "c": "two.safetensors")") ==
        "~/one.safetensors: 'b': expected a tensor that model.safetensors.index.json names (the "
        "shard may belong to another model), got one that it does not");
  write_shard(folder / "two.safetensors", {"c", "b"});
  CHECK(mapped(fmt::format(R"({}, "c": "two.safetensors")", ab)) ==
        "~/two.safetensors: 'b': expected a tensor that no other shard holds, got one that "
        "one.safetensors holds too");
  write_shard(folder / "two.safetensors", {"c"});
  write_shard(folder / "model-00001-of-00002.safetensors", {"d"});
  CHECK(mapped(fmt::format(R"({}, "c": "two.safetensors")", ab)) ==
        "~/model-00001-of-00002.safetensors: expected a file that model.safetensors.index.json "
        "names, got one that it does not");
}

TEST_CASE("what is wrong with a model's folder without an index, word for word", "[model_files]") {
  const TemporaryFolder folder("folder_words");
  const auto said = [&](const std::string& place) {
    return message_in(folder.path(), [&] { (void)ModelDirectory(folder / place); });
  };
  std::filesystem::create_directories(folder / "m");
  const std::string wanted =
      "~/m: expected model.safetensors.index.json, model.safetensors or one .safetensors file, "
      "got ";
  CHECK(said("m") == fmt::format("{}none", wanted));
  write_shard(folder / "m/one.safetensors", {"a"});
  CHECK(said("m") == "accepted");
  write_shard(folder / "m/two.safetensors", {"b"});
  CHECK(said("m") == fmt::format("{}2 of them, and no index", wanted));
  write_shard(folder / "m/model.safetensors", {"c"});
  CHECK(said("m") == "accepted");
  write_shard(folder / "m/model-00002-of-00002.safetensors", {"d"});
  CHECK(said("m") ==
        "~/m/model-00002-of-00002.safetensors: expected an index that lists the several files of "
        "weights, got none");
  CHECK(said("m/config.json") ==
        "~/m/config.json: expected a model's folder, its index or a .safetensors file, got "
        "something else");
}

TEST_CASE("what is wrong with stored weights and their samples, word for word", "[model_files]") {
  const TemporaryFolder folder("stored_words");
  const Bytes codes(4 * 16, 0x38);
  const std::array<float, 2> scales{0.5F, 2.0F};
  const auto floats = [&](std::vector<std::int64_t> shape) {
    const auto count = static_cast<std::size_t>(element_count(shape, "shape"));
    return view_of(ElementType::f32, std::move(shape), std::span(scales).first(count));
  };
  const auto said = [&](const char* layout, const char* preset,
                        const std::vector<NamedTensor>& tensors) {
    for (const char* one : {"in", "out"}) std::filesystem::remove_all(folder / one);
    std::filesystem::create_directories(folder / "in");
    write_safetensors(folder / "in/model.safetensors", tensors);
    write_text(folder / "in/config.json", config_of(layout, preset));
    return message_in(folder.path(), [&] {
      (void)dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
    });
  };
  const TensorView weight = bytes_view(ElementType::e4m3fn, {4, 16}, codes);
  CHECK(said("deepseek", "deepgemm", {{"a.weight", weight}, {"a.weight_scale_inv", floats({1})}}) ==
        "accepted");
  CHECK(
      said("deepseek", "deepgemm",
           {{"a.weight", weight}, {"a.weight_scale_inv", floats({2, 1})}}) ==
      "tensor 'a.weight_scale_inv': expected scales [1], [4], [4, 1], [1, 1] or [1, 1, 1, 1], got "
      "[2, 1]");
  CHECK(said("deepseek", "deepgemm",
             {{"a.weight", weight},
              {"a.weight_scale_inv", bytes_view(ElementType::u8, {1, 1}, {7})}}) ==
        "tensor 'a.weight_scale_inv': expected f32, bf16, f16 or e8m0fnu scales, got u8");
  CHECK(said("deepseek", "deepgemm", {{"a.weight", weight}}) ==
        "tensor 'a.weight': expected the scales of these codes (a.weight_scale, "
        "a.weight_scale_inv, a.scale, a.scale_weight, a.qscale_weight), got none");
  CHECK(said("deepseek", "deepgemm",
             {{"a.weight", weight}, {"b.weight", weight}, {"c.weight", weight}}) ==
        "tensor 'a.weight': expected the scales of these codes (a.weight_scale, "
        "a.weight_scale_inv, a.scale, a.scale_weight, a.qscale_weight), got none (and 2 more such "
        "tensors)");
  CHECK(said("deepseek", "deepgemm", {{"a.weight_scale_inv", floats({1})}}) ==
        "tensor 'a.weight_scale_inv': expected FP8 or packed codes a.weight, got none");
  CHECK(said("deepseek", "deepgemm", {{"a.bias", floats({2})}}) ==
        "~/in: expected FP8 or packed codes with scales (NAME.weight_packed with "
        "NAME.weight_scale, NAME.weight with NAME.weight_scale, NAME.weight with "
        "NAME.weight_scale_inv, NAME.weight with NAME.scale, NAME.weight with NAME.scale_weight, "
        "NAME._weight_qdata with NAME._weight_scale, NAME.weight with NAME.qscale_weight, "
        "NAME_packed with NAME_scale, NAME_blocks with NAME_scales), got "
        "none");
  CHECK(said("deepseek", "deepgemm",
             {{"a.weight", weight},
              {"a.weight_scale_inv", floats({1})},
              {"a.pre_quant_scale", floats({2})}}) ==
        "tensor 'a.pre_quant_scale': expected a weight that its codes and scales give alone, got "
        "f32 [2]");
  const Bytes nibbles(4 * 8, 0x11);
  const Bytes ones(4, 0x38);
  const std::vector<NamedTensor> two{
      {"a.weight", bytes_view(ElementType::u8, {4, 8}, nibbles)},
      {"a.weight_scale", bytes_view(ElementType::e4m3fn, {4, 1}, ones)}};
  CHECK(said("modelopt", "modelopt-nvfp4", two) ==
        "tensor 'a.weight_scale_2': expected the tensor's scale, one F32, got none");
  std::vector<NamedTensor> three = two;
  three.push_back({"a.weight_scale_2", floats({2})});
  CHECK(said("modelopt", "modelopt-nvfp4", three) ==
        "tensor 'a.weight_scale_2': expected one f32, got f32");
  three.back() = {"a.weight_scale_2", floats({})};
  CHECK(said("modelopt", "modelopt-nvfp4", three) == "accepted");
  three[1].tensor = bytes_view(ElementType::u8, {4, 1}, ones);
  CHECK(said("modelopt", "modelopt-nvfp4", three) ==
        "tensor 'a.weight_scale': expected e4m3fn scales, got u8");

  CHECK(message_in(
            folder.path(),
            [&] {
              (void)read_quantization(
                  R"({"quantization_config": {"quant_method": "torchao", "quant_type": {"default":
                 {"_type": "MXDynamicActivationMXWeightConfig", "_data": {"weight_dtype":
                 {"_data": "float6_of_a_name_that_is_longer_than_40_letters"}}}}}})",
                  "c");
            }) ==
        "c: quantization_config: quant_type: weight_dtype: expected float8_e4m3fn or "
        "float4_e2m1fn_x2, got 'float6_of_a_name_that_is_longer_than_40_'");

  const CalibrationTargets targets{.columns = {{"a", 2}}, .kept = {"head"}};
  const auto sampled = [&](const std::filesystem::path& file) {
    return message_in(folder.path(),
                      [&] { (void)calibrate_inputs(find_preset("modelopt"), {file}, targets); });
  };
  write_safetensors(folder / "s.safetensors", {{"a.input", floats({1, 2})}, {"b", floats({2})}});
  CHECK(sampled(folder / "s.safetensors") ==
        "~/s.safetensors: 'b': expected MODULE, MODULE.input or MODULE.input.NUMBER of a module "
        "of the model, got another name");
  write_text(folder / "t.csv", "a,1\n\nb.input,2\n");
  CHECK(sampled(folder / "t.csv") ==
        "~/t.csv:3: expected MODULE or MODULE.input, of a module of the model, got 'b.input'");
  write_text(folder / "t.csv", "a,1\n");
  CHECK(sampled(folder / "t.csv") == "accepted");
}
