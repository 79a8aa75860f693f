#include <fmt/format.h>

#include <string>
#include <tuple>
#include <utility>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "message_of.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/stored_quantization.hpp"

using namespace fp8lab;

namespace {

StoredQuantization read(const std::string& quantization) {
  const auto stored =
      read_quantization(fmt::format(R"({{"quantization_config": {}}})", quantization), "c");
  REQUIRE(stored.has_value());
  return *stored;
}

/// One group of compressed-tensors.
StoredQuantization weights(const std::string& members) {
  return read(fmt::format(
      R"({{"quant_method": "compressed-tensors", "config_groups": {{"g": {{"weights": {{{}}}}}}}}})",
      members));
}

}  // namespace

TEST_CASE("weights of compressed-tensors are read by type, bits and group", "[model_files]") {
  const auto group = [](const char* type, const char* bits, const char* size, const char* scale) {
    return weights(fmt::format(
        R"("type": {}, "num_bits": {}, "group_size": {}, "strategy": "tensor_group", "scale_dtype": {})",
        type, bits, size, scale));
  };
  const StoredQuantization nvfp4 = group(R"("float")", "4", "16", "null");
  CHECK((nvfp4.form.format == FormatId::e2m1 && nvfp4.form.scales == ScaleKind::two_level));
  CHECK((nvfp4.form.row_block == 1 && nvfp4.form.k_block == 16));
  const StoredQuantization mxfp4 = group(R"("float")", "4", "32", R"("torch.uint8")");
  CHECK((mxfp4.form.format == FormatId::e2m1 && mxfp4.form.scales == ScaleKind::e8m0));
  CHECK((mxfp4.form.row_block == 1 && mxfp4.form.k_block == 32));
  CHECK(weights(R"("type": "float", "num_bits": 8)").form.format == FormatId::e4m3fn);

  // Other types, bits and sizes are not the nearest known ones.
  for (const char* type : {R"("int")", R"("bfloat")", R"("Float")", R"("")", "8", "null"}) {
    INFO(type);
    CHECK_FALSE(group(type, "4", "16", "null").groups.at(0).fault.empty());
    CHECK_FALSE(
        weights(fmt::format(R"("type": {}, "num_bits": 8)", type)).groups.at(0).fault.empty());
  }
  for (const char* size : {"8", "15", "17", "16.5", "-16", R"("16")", "null"}) {
    INFO(size);
    CHECK_FALSE(group(R"("float")", "4", size, "null").groups.at(0).fault.empty());
  }
  for (const char* bits : {"7", "9", "8.5", "-8", R"("8")", "true"}) {
    INFO(bits);
    CHECK_FALSE(weights(fmt::format(R"("type": "float", "num_bits": {})", bits))
                    .groups.at(0)
                    .fault.empty());
  }
}

TEST_CASE("sizes of stored blocks are whole numbers above zero", "[model_files]") {
  const auto block = [](const char* sizes) {
    return read(fmt::format(R"({{"quant_method": "fp8", "weight_block_size": {}}})", sizes));
  };
  const StoredQuantization odd = block("[48, 96]");
  CHECK((odd.form.row_block == 48 && odd.form.k_block == 96));
  for (const char* sizes : {"[0, 128]", "[128, 0]", "[-128, 128]", "[128, 128.5]", "[128]",
                            "[128, 128, 128]", R"(["128", 128])", "128", "{}"}) {
    INFO(sizes);
    CHECK_THROWS_AS(block(sizes), Error);
  }
}

TEST_CASE("torchao's types are known by their whole names", "[model_files]") {
  const auto of = [](const std::string& name, const std::string& element) {
    return read(fmt::format(
        R"({{"quant_method": "torchao", "quant_type": {{"default": {{"_type": "{}", "_data": {{"weight_dtype": {{"_data": "{}"}}}}}}}}}})",
        name, element));
  };
  const std::string mx = "MXDynamicActivationMXWeightConfig";
  const StoredQuantization mxfp8 = of(mx, "float8_e4m3fn");
  CHECK((mxfp8.form.format == FormatId::e4m3fn && mxfp8.form.scales == ScaleKind::e8m0));
  const StoredQuantization mxfp4 = of(mx, "float4_e2m1fn_x2");
  CHECK((mxfp4.form.format == FormatId::e2m1 && mxfp4.form.scales == ScaleKind::e8m0));
  for (const char* element : {"", "float8_e5m2", "float4_e2m1fn", "torch.float8_e4m3fn"})
    CHECK_THROWS_WITH(of(mx, element), contains("float8_e4m3fn or float4_e2m1fn_x2"));
  const StoredQuantization plain = of("Float8DynamicActivationFloat8WeightConfig", "");
  CHECK(plain.form.scales != ScaleKind::e8m0);
  for (const char* name : {"NVFP4DynamicActivationNVFP4WeightConfig", "NVFP4WeightOnlyConfig"}) {
    const StoredQuantization nvfp4 = of(name, "");
    CHECK((nvfp4.form.format == FormatId::e2m1 && nvfp4.form.scales == ScaleKind::two_level));
  }
  // Names that only look like these say nothing about groups, whatever their members.
  for (const std::string& name : {mx + "V2", "X" + mx, std::string("MXGemmConfig"),
                                  std::string("NVFP4WeightOnly"), std::string()}) {
    INFO(name);
    const StoredQuantization other = of(name, "float4_e2m1fn_x2");
    CHECK((other.form.format == plain.form.format && other.form.scales == plain.form.scales));
    CHECK(
        (other.form.row_block == plain.form.row_block && other.form.k_block == plain.form.k_block));
  }
}

TEST_CASE("what a config.json says that no layout has is refused by its key", "[model_files]") {
  const auto message = [](const std::string& quantization) {
    return test::message_of([&] {
      (void)read_quantization(fmt::format(R"({{"quantization_config": {}}})", quantization), "c");
    });
  };
  const std::string method =
      "c: quantization_config: quant_method: expected compressed-tensors, modelopt, modelopt_fp4, "
      "modelopt_mixed, fp8, mxfp8, fbgemm_fp8, torchao, mxfp4 or quark, got ";
  CHECK(message(R"({"quant_method": "gptq"})") == method + "'gptq'");
  const std::string long_name(41, 'x');
  CHECK(message(fmt::format(R"({{"quant_method": "{}"}})", long_name)) ==
        method + "'" + long_name.substr(0, 40) + "'");
  for (const char* other : {"7", "[]", R"({"quant_method":7})", R"({"quant_method":""})"})
    CHECK(
        message(other) ==
        fmt::format("c: quantization_config: expected an object with quant_method, got {}", other));
  for (const char* none : {"null", "{}"}) CHECK(message(none) == "accepted");
  CHECK_THROWS_WITH(read_quantization("[]", "c"), "c: expected a JSON object, got array");
  CHECK_THROWS_WITH(read_quantization("{", "c"), contains("c: not JSON: "));

  const auto modelopt = [&](const std::string& algorithm) {
    return message(fmt::format(R"({{"quant_method": "modelopt", "quant_algo": "{}"}})", algorithm));
  };
  for (const char* known :
       {"", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_PB_REAL", "MXFP8", "mxfp4",
        "W4A8_MXFP4_FP8", "NVFP4", "NVFP4_AWQ", "W4A8_NVFP4_FP8", "W4A16_NVFP4"})
    CHECK(modelopt(known) == "accepted");
  for (const std::string& other : {std::string("MXFP4"), std::string("NVFP4_SVD"),
                                   std::string("W4A8_MXFP4"), std::string("FP8_XY"), long_name})
    CHECK(modelopt(other) ==
          "c: quantization_config: quant_algo: expected FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, "
          "FP8_PB_REAL, MXFP8, mxfp4, W4A8_MXFP4_FP8, NVFP4, NVFP4_AWQ, W4A8_NVFP4_FP8, "
          "W4A16_NVFP4, or MIXED_PRECISION, got '" +
              other.substr(0, 40) + "'");
  for (const auto& [name, format, scales, block] :
       {std::tuple{"MXFP8", FormatId::e4m3fn, ScaleKind::e8m0, 32},
        {"mxfp4", FormatId::e2m1, ScaleKind::e8m0, 32},
        {"W4A8_MXFP4_FP8", FormatId::e2m1, ScaleKind::e8m0, 32},
        {"NVFP4", FormatId::e2m1, ScaleKind::two_level, 16},
        {"W4A16_NVFP4", FormatId::e2m1, ScaleKind::two_level, 16},
        {"FP8", FormatId::e4m3fn, ScaleKind::plain, 128}}) {
    INFO(name);
    const StoredQuantization stored =
        read(fmt::format(R"({{"quant_method": "modelopt", "quant_algo": "{}"}})", name));
    CHECK(stored.family == find_layout("modelopt").family);
    CHECK(stored.form.format == format);
    CHECK(stored.form.scales == scales);
    CHECK(stored.form.row_block == (block == 128 ? 128 : 1));
    CHECK(stored.form.k_block == block);
  }
}

TEST_CASE("groups of compressed-tensors have numbers of their own", "[model_files]") {
  const std::string fp8 = R"("type": "float", "num_bits": 8)";
  const std::string mxfp4 =
      R"("type": "float", "num_bits": 4, "group_size": 32, "scale_dtype": "torch.uint8")";
  const std::string blocks =
      R"("type": "float", "num_bits": 8, "strategy": "block", "block_structure": [64, 32])";
  const auto two = [](const std::string& a, const std::string& b) {
    return fmt::format(
        R"({{"quant_method": "compressed-tensors", "config_groups": {{"one": {{"targets": ["Linear"], "weights": {{{}}}}}, "two": {{"targets": ["re:.*experts.*", "a.b"], "weights": {{{}}}}}}}}})",
        a, b);
  };
  const StoredQuantization mixed = read(two(fp8, mxfp4));
  // Names and regular expressions come before classes.
  CHECK(describe(mixed.form_of("x.experts.3.w1")) == "MXFP4");
  CHECK(describe(mixed.form_of("a.b")) == "MXFP4");
  CHECK(describe(mixed.form_of("a.b.c")) == "FP8 with plain scales");
  CHECK(describe(mixed.form_of("x.q_proj")) == "FP8 with plain scales");
  // A group without weights is that of attention.
  const StoredQuantization attention = read(
      R"({"quant_method": "compressed-tensors", "config_groups": {"kv": {"targets": ["LlamaAttention"], "weights": null}}})");
  CHECK(attention.groups.empty());
  CHECK_FALSE(attention.has_forms);
  const StoredQuantization turned = read(two(mxfp4, blocks));
  CHECK(describe(turned.form_of("q")) == "MXFP4");
  CHECK(turned.form_of("a.b").row_block == 64);
  CHECK(turned.form_of("a.b").k_block == 32);
  CHECK(turned.form_of("a.b").tiles == WeightTiles::block);
  CHECK_THROWS_WITH(
      read(R"({"quant_method": "compressed-tensors", "ignore": ["re:(a"]})"),
      "c: quantization_config: ignore: expected a valid regular expression, got 're:(a'");
  // A group that cannot be read is a fault of its modules, not of all.
  const StoredQuantization other = read(two(fp8, R"("num_bits": 3)"));
  CHECK(other.group_of("a.b")->fault ==
        "c: quantization_config: two: weights: expected 8-bit floats, MXFP4, MXFP6, "
        "MXFP8 or NVFP4, got {\"num_bits\":3}");
  CHECK(other.group_of("a.c")->fault.empty());
  const auto with_block = [&](const char* sizes) {
    return read(
        two(fp8, fmt::format(R"("type": "float", "num_bits": 8, "block_structure": {})", sizes)));
  };
  for (const char* sizes : {"[0,32]", "[64,0]", "[64]", "[64,32,1]", "64", R"(["64",32])",
                            R"("64")", R"("x64")", R"("64x")", R"("64x32x1")", R"("0x32")"})
    CHECK(with_block(sizes).group_of("a.b")->fault ==
          fmt::format(
              "c: quantization_config: two: weights: block_structure: expected [rows, columns] "
              "of a block, got {}",
              std::string_view(sizes) == R"("0x32")" ? "[0,32]" : sizes));
  CHECK(with_block(R"("64x32")").form_of("a.b").row_block == 64);
  CHECK_THROWS_WITH(
      read(R"({"quant_method": "fp8", "weight_block_size": [128]})"),
      "c: quantization_config: weight_block_size: expected [rows, columns] of a block, "
      "got [128]");
  for (const char* none : {"null", "7", "[]"}) {
    const StoredQuantization plain =
        read(fmt::format(R"({{"quant_method": "compressed-tensors", "config_groups": {}}})", none));
    CHECK((plain.form.format == FormatId::e4m3fn && plain.form.scales == ScaleKind::plain));
    CHECK_FALSE(plain.has_forms);
  }
}

TEST_CASE("each system's list of modules that stay has its own patterns", "[model_files]") {
  struct Case {
    const char* config;
    const char* module;
    bool stays;
  };
  const char* compressed =
      R"({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*gate$"]})";
  const char* fp8 =
      R"({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "layers.1.mlp", "gate"]})";
  const char* modelopt =
      R"({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "*.attn*", "a.?"]})";
  for (const Case& c :
       {Case{compressed, "lm_head", true}, Case{compressed, "x.lm_head", false},
        Case{compressed, "x.gate", true}, Case{compressed, "x.gate_proj", false},
        Case{fp8, "lm_head", true}, Case{fp8, "layers.1.mlp.up_proj", true},
        Case{fp8, "layers.11.mlp", false}, Case{fp8, "x.gate", true}, Case{fp8, "x.up", false},
        Case{modelopt, "lm_head", true}, Case{modelopt, "x.lm_head", false},
        Case{modelopt, "x.attn.q", true}, Case{modelopt, "a.b", true},
        Case{modelopt, "a.b.c", true}, Case{modelopt, "a.bc", false}}) {
    INFO(c.config << " " << c.module);
    CHECK(read(c.config).ignores(c.module) == c.stays);
  }
}

TEST_CASE("a quantization is found inside a multimodal model's configuration", "[model_files]") {
  const std::string fp8 = R"("quantization_config": {"quant_method": "fp8"})";
  const std::string other = R"("quantization_config": {"quant_method": "mxfp4"})";
  const auto stored = read_quantization(fmt::format(R"({{"text_config": {{{}}}}})", fp8), "c");
  REQUIRE(stored.has_value());
  CHECK(stored->where == "c: text_config: quantization_config");
  CHECK_NOTHROW(read_quantization(fmt::format(R"({{"a": {{{}}}, "b": {{{}}}}})", fp8, fp8), "c"));
  CHECK_THROWS_WITH(
      read_quantization(fmt::format(R"({{"a": {{{}}}, "b": {{{}}}}})", fp8, other), "c"),
      R"(c: b: quantization_config: expected what c: a: quantization_config says, got {"quant_method":"mxfp4"})");
  CHECK(without_quantization(fmt::format(R"({{"a": {{"b": 1, {}}}}})", fp8), "c") ==
        "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n");
}

TEST_CASE("layers of MIXED_PRECISION and Quark have forms of their own", "[model_files]") {
  const StoredQuantization mixed = read(
      R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a.q": {"quant_algo": "FP8"}, "a.up": {"quant_algo": "NVFP4", "group_size": 16}}})");
  CHECK(describe(mixed.form_of("a.q")) == "FP8 with plain scales");
  CHECK(describe(mixed.form_of("a.up")) == "NVFP4");
  CHECK_THROWS_WITH(
      read(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})"),
      "c: quantization_config: quantized_layers: expected an algorithm for each layer, which "
      "MIXED_PRECISION needs, got none");
  CHECK_THROWS_WITH(
      read(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})"),
      "c: quantization_config: group_size: expected 16 in NVFP4, got 32");
  const StoredQuantization quark = read(
      R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}, "layer_quant_config": {"*q_proj": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}}, "exclude": ["lm_head"]})");
  CHECK(describe(quark.form_of("x.up_proj")) == "MXFP4");
  CHECK(describe(quark.form_of("x.q_proj")) == "FP8 with plain scales");
  CHECK(quark.ignores("lm_head"));
  CHECK_THROWS_WITH(
      read(R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4"}}})"),
      contains("global_quant_config: weight: expected fp8_e4m3 per tensor"));
}

TEST_CASE("a model may say that it is not quantized", "[model_files]") {
  CHECK_NOTHROW(require_quantizable(R"({"quantization_config": null})", "c"));
  CHECK_FALSE(read_quantization(R"({"quantization_config": null})", "c").has_value());
  for (const char* other : {"{}", "false", "7", "\"\""})
    CHECK_THROWS_WITH(
        require_quantizable(fmt::format(R"({{"quantization_config": {}}})", other), "c"),
        "c: expected a model that is not quantized (`fp8lab dequantize` converts it back), got "
        "quantization_config");
  CHECK_THROWS_WITH(require_quantizable("7", "c"), "c: expected a JSON object, got number");
  CHECK_THROWS_WITH(
      require_quantizable(R"({"model_type": "gpt2"})", "c"),
      "c: model_type: expected a model whose matrices are stored as [out, in], got 'gpt2' "
      "(transformers' Conv1D)");
}
