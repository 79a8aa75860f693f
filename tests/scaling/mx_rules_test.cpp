// Scales of the packages that write models in MXFP8, MXFP6 and MXFP4; codes are written down by
// hand.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "fp8lab/scaling/mx_rules.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();

TileScale scale_of(ScaleRule rule, FormatId format, float amax) {
  return tile_scale({.rule = rule, .format = format}, amax);
}

std::vector<int> codes_of(const char* preset, const std::vector<float>& row) {
  std::vector<float> values(32, 0.0F);
  std::copy(row.begin(), row.end(), values.begin());
  const QuantizedTensor q = quantize(find_preset(preset).weight, {values, 1, 32});
  return {q.codes.begin(), q.codes.begin() + static_cast<std::ptrdiff_t>(row.size())};
}

}  // namespace

TEST_CASE("MX scales of compressed-tensors go up at their own mantissa", "[scaling]") {
  struct Row {
    float amax;
    int e4m3, e2m1, e2m3;  // E8M0 codes: emax is 8, 2 and 2
  };
  const std::vector<Row> rows{
      {1.0F, 119, 125, 125},       {1.7499999F, 119, 125, 125},
      {1.75F, 120, 126, 125},      {1.9374999F, 120, 126, 125},
      {1.9375F, 120, 126, 126},    {0.0F, 0, 0, 0},
      {0x1p-149F, 0, 0, 0},        {0x1.8p-119F, 0, 6, 6},
      {0x1.cp-119F, 1, 7, 6},      {0x1.bffffep127F, 246, 252, 252},
      {0x1.cp127F, 255, 255, 252}, {kFloatMax, 255, 255, 255},
      {kInf, 255, 255, 255},       {kNan, 255, 255, 255},
      {-kNan, 255, 255, 255},
  };
  for (const Row& row : rows) {
    INFO(fmt::format("amax {:a}", row.amax));
    CHECK(scale_of(ScaleRule::compressed_mx, FormatId::e4m3fn, row.amax).e8m0 == row.e4m3);
    CHECK(scale_of(ScaleRule::compressed_mx_bf16, FormatId::e4m3fn, row.amax).e8m0 == row.e4m3);
    CHECK(scale_of(ScaleRule::compressed_mx, FormatId::e2m1, row.amax).e8m0 == row.e2m1);
    CHECK(scale_of(ScaleRule::compressed_mx6, FormatId::e2m3, row.amax).e8m0 == row.e2m3);
  }
  const TileScale smallest = scale_of(ScaleRule::compressed_mx, FormatId::e2m1, 0.0F);
  CHECK(smallest.scale == 0x1p127F);
  CHECK(smallest.inverse_scale == 0x1p-127F);
  CHECK(scale_of(ScaleRule::compressed_mx, FormatId::e2m1, kInf).scale == 0.0F);
}

TEST_CASE("MX scales of ModelOpt round a binary32 log2 up", "[scaling]") {
  struct Row {
    float amax;
    int e4m3, e2m1;  // of amax / 448 and amax / 6
  };
  // Just above 2^10 times M the binary32 log2 is 10: the exponent is not rounded up.
  const std::vector<Row> rows{
      {448.0F, 127, 134},
      {449.0F, 128, 134},
      {6.0F, 121, 127},
      {6.1F, 121, 128},
      {std::nextafter(448.0F * 1024.0F, kInf), 137, 144},
      {std::nextafter(6.0F * 1024.0F, kInf), 131, 137},
      {0.0F, 0, 0},
      {0x1p-149F, 0, 0},
      {kFloatMax, 247, 253},
      {kInf, 254, 255},
      {kNan, 0, 255},
  };
  for (const Row& row : rows) {
    INFO(fmt::format("amax {:a}", row.amax));
    CHECK(scale_of(ScaleRule::modelopt_mxfp8, FormatId::e4m3fn, row.amax).e8m0 == row.e4m3);
    CHECK(scale_of(ScaleRule::modelopt_mxfp4, FormatId::e2m1, row.amax).e8m0 == row.e2m1);
  }
  const TileScale of_nan = scale_of(ScaleRule::modelopt_mxfp8, FormatId::e4m3fn, kNan);
  CHECK(of_nan.scale == 0x1p127F);
  CHECK(of_nan.inverse_scale == 0x1p-127F);
  CHECK(scale_of(ScaleRule::modelopt_mxfp8, FormatId::e4m3fn, kInf).scale == 0x1p-127F);
}

TEST_CASE("MX scales of DeepGEMM's FP4 and of vLLM's activations", "[scaling]") {
  struct Row {
    float amax;
    int deepgemm, vllm;  // E8M0 codes
  };
  const std::vector<Row> rows{
      {6.0F, 127, 127},    {std::nextafter(6.0F, 7.0F), 128, 127},
      {7.0F, 128, 128},    {6.9999995F, 128, 127},
      {2.7F, 126, 126},    {5.5F, 127, 127},
      {1.2F, 125, 125},    {0.0F, 112, 0},
      {0x1p-125F, 112, 0}, {0x1p-124F, 112, 1},
      {kInf, 254, 253},    {kNan, 254, -1},
  };
  for (const Row& row : rows) {
    INFO(fmt::format("amax {}", row.amax));
    const auto code = [&](ScaleRule rule) {
      return static_cast<int>(scale_of(rule, FormatId::e2m1, row.amax).e8m0);
    };
    CHECK(code(ScaleRule::deepgemm_fp4) == row.deepgemm);
    if (row.vllm >= 0) CHECK(code(ScaleRule::vllm_mxfp4) == row.vllm);
  }
  // vLLM's code 0 is a scale of 0 to its cast.
  CHECK(scale_of(ScaleRule::vllm_mxfp4, FormatId::e2m1, 0x1p-126F).scale == 0.0F);
  CHECK(codes_of("vllm-mxfp4", {0x1p-126F, -0x1p-126F}) == std::vector<int>{0, 8});
  CHECK(codes_of("vllm-mxfp4", {7.0F, -0.5F, 0.75F}) == std::vector<int>{6, 8, 1});
}

TEST_CASE("elements under the packages' MX scales", "[scaling]") {
  // amax 6: the scale of both is 1. Ties, zeros of both signs, and what becomes zero.
  const std::vector<float> row{6.0F, 0.25F, 0.75F, -1.75F, 3.5F, 5.0F, 0.0F, -0.0F, 0.1F, -0.1F};
  CHECK(codes_of("compressed-tensors-mxfp4", row) ==
        std::vector<int>{7, 0, 2, 8 + 4, 6, 6, 0, 0, 0, 8});
  // ModelOpt's ties go toward zero, and its zeros are negative.
  CHECK(codes_of("modelopt-mxfp4", row) == std::vector<int>{7, 0, 1, 8 + 3, 5, 6, 8, 8, 0, 8});
  // DeepGEMM's go there too, and its zeros are positive.
  CHECK(codes_of("deepgemm-fp4", row) == std::vector<int>{7, 0, 1, 8 + 3, 5, 6, 0, 0, 0, 0});
  CHECK(codes_of("deepgemm-fp4", {6.0F, -0.25F, -0.26F, kNan}) ==
        std::vector<int>{0, 0, 0, 0});  // the NaN's scale is 2^127
  // Below BF16's smallest number a quotient is a zero, which has no sign in compressed-tensors.
  const std::vector<float> far{0x1p127F, -0x1p-20F, 0x1p-20F};
  CHECK(codes_of("compressed-tensors-mxfp4", far) == std::vector<int>{6, 8, 0});
  CHECK(codes_of("compressed-tensors-mxfp4-bf16", far) == std::vector<int>{6, 0, 0});
  CHECK(codes_of("compressed-tensors-mxfp8", {-0.0F, 448.0F}) == std::vector<int>{0, 0x76});
  CHECK(codes_of("compressed-tensors-mxfp6", {-0.0F, 7.5F}) == std::vector<int>{0x20, 0x1f});
  // A NaN's neighbours saturate in ModelOpt's MXFP8, under the scale of code 0.
  CHECK(codes_of("modelopt-mxfp8", {kNan, -3.0F, 0.0F}) == std::vector<int>{0x7f, 0xfe, 0});
  // An infinite scale makes zeros.
  CHECK(codes_of("compressed-tensors-mxfp8", {kInf, -3.0F}) == std::vector<int>{0x7f, 0});
}

TEST_CASE("FP8 of ModelOpt's exporter", "[scaling]") {
  const auto inverse = [](ScaleRule rule, float amax) {
    return tile_scale({.rule = rule}, amax).inverse_scale;
  };
  CHECK(inverse(ScaleRule::fp32_scale_bf16, 3.0F) == 3.0F / 448.0F);
  CHECK(inverse(ScaleRule::fp32_scale_bf16, 0.0F) == 0.0F);
  CHECK(inverse(ScaleRule::quotient_or_one, 3.0F) == 3.0F / 448.0F);
  CHECK(inverse(ScaleRule::quotient_or_one, 0.0F) == 1.0F);
  CHECK(inverse(ScaleRule::quotient_or_one, kNan) == 1.0F);
  CHECK(inverse(ScaleRule::quotient_or_one, 0x1p-149F) == 0x1p-126F / 448.0F);
  CHECK(inverse(ScaleRule::quotient_or_one, kInf) == kFloatMax / 448.0F);
  // 1 / 3 in BF16 is 0x1.56p-2; an element that is no BF16 number is rounded first.
  const TileScale s{1.0F / 3.0F, 3.0F, 0};
  CHECK(scaled_element(ScaleRule::fp32_scale_bf16, 0x1.01p0F, s) == 0x1.56p-2F);
  CHECK(scaled_element(ScaleRule::quotient_or_one, 1.0F, s) == 1.0F / 3.0F);
  CHECK(std::signbit(scaled_element(ScaleRule::fp32_scale_bf16, -0.0F, s)));
  // Scales that are FP32 are stored so, and BF16 tensors alone are taken.
  CHECK_FALSE(has_bf16_scale(ScaleRule::fp32_scale_bf16));
  CHECK(takes_bf16(ScaleRule::fp32_scale_bf16));
  CHECK_FALSE(computes_in_fp32_input(ScaleRule::quotient_or_one));
}

TEST_CASE("ceil(log2) codes of numbers at the ends of binades, and of others, are those of log2",
          "[scaling]") {
  const scaling_detail::CeilLog2Codes& codes = scaling_detail::ceil_log2_codes();
  const auto wrong = [&](std::uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    return codes(x) != scaling_detail::ceil_log2_code(x);
  };
  std::size_t up =
      0;  // numbers beside a power of two whose binary32 logarithm is that of the power
  for (std::uint32_t e = 0; e < 255; ++e)
    for (std::uint32_t i = 0; i < 0x00800000; i += i < 300 || i > 0x007ffed0 ? 1 : 9973) {
      const std::uint32_t bits = (e << 23) + i;
      if (wrong(bits))
        FAIL(fmt::format("{:08x} has code {}", bits, codes(std::bit_cast<float>(bits))));
      up += i > 0 && e > 0 && codes(std::bit_cast<float>(bits)) == e ? 1 : 0;
    }
  CHECK(up > 1000);
  CHECK_FALSE(wrong(0x7f800000));
  CHECK(codes(0.0F) == 0);
  CHECK(codes(0x1p-127F) == 0);
  CHECK(codes(0x1.8p-127F) == 1);
  CHECK(codes(1.0F) == 127);
  CHECK(codes(kInf) == 254);
}
