#include <fmt/format.h>

#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/model_files/quantization_config.hpp"

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
  CHECK((nvfp4.format == FormatId::e2m1 && nvfp4.scales == ScaleKind::two_level));
  CHECK((nvfp4.row_block == 1 && nvfp4.k_block == 16));
  const StoredQuantization mxfp4 = group(R"("float")", "4", "32", R"("torch.uint8")");
  CHECK((mxfp4.format == FormatId::e2m1 && mxfp4.scales == ScaleKind::e8m0));
  CHECK((mxfp4.row_block == 1 && mxfp4.k_block == 32));
  CHECK(weights(R"("type": "float", "num_bits": 8)").format == FormatId::e4m3fn);

  // Other types, bits and sizes are not the nearest known ones.
  for (const char* type : {R"("int")", R"("bfloat")", R"("Float")", R"("")", "8", "null"}) {
    INFO(type);
    CHECK_THROWS_AS(group(type, "4", "16", "null"), Error);
    CHECK_THROWS_AS(weights(fmt::format(R"("type": {}, "num_bits": 8)", type)), Error);
  }
  for (const char* size : {"8", "15", "17", "16.5", "-16", R"("16")", "null"}) {
    INFO(size);
    CHECK_THROWS_AS(group(R"("float")", "4", size, "null"), Error);
  }
  for (const char* bits : {"7", "9", "8.5", "-8", R"("8")", "true"}) {
    INFO(bits);
    CHECK_THROWS_AS(weights(fmt::format(R"("type": "float", "num_bits": {})", bits)), Error);
  }
}

TEST_CASE("sizes of stored blocks are whole numbers above zero", "[model_files]") {
  const auto block = [](const char* sizes) {
    return read(fmt::format(R"({{"quant_method": "fp8", "weight_block_size": {}}})", sizes));
  };
  const StoredQuantization odd = block("[48, 96]");
  CHECK((odd.row_block == 48 && odd.k_block == 96));
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
  CHECK((mxfp8.format == FormatId::e4m3fn && mxfp8.scales == ScaleKind::e8m0));
  const StoredQuantization mxfp4 = of(mx, "float4_e2m1fn_x2");
  CHECK((mxfp4.format == FormatId::e2m1 && mxfp4.scales == ScaleKind::e8m0));
  for (const char* element : {"", "float8_e5m2", "float4_e2m1fn", "torch.float8_e4m3fn"})
    CHECK_THROWS_WITH(of(mx, element), contains("float8_e4m3fn or float4_e2m1fn_x2"));
  const StoredQuantization plain = of("Float8DynamicActivationFloat8WeightConfig", "");
  CHECK(plain.scales != ScaleKind::e8m0);
  for (const char* name : {"NVFP4DynamicActivationNVFP4WeightConfig", "NVFP4WeightOnlyConfig"}) {
    const StoredQuantization nvfp4 = of(name, "");
    CHECK((nvfp4.format == FormatId::e2m1 && nvfp4.scales == ScaleKind::two_level));
  }
  // Names that only look like these say nothing about groups, whatever their members.
  for (const std::string& name : {mx + "V2", "X" + mx, std::string("MXGemmConfig"),
                                  std::string("NVFP4WeightOnly"), std::string()}) {
    INFO(name);
    const StoredQuantization other = of(name, "float4_e2m1fn_x2");
    CHECK((other.format == plain.format && other.scales == plain.scales));
    CHECK((other.row_block == plain.row_block && other.k_block == plain.k_block));
  }
}
