#include "fp8lab/model_files/weight_cast.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/model_files/expert_cast.hpp"
#include "fp8lab/model_files/layout.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

/// Sixteen orders of magnitude, zeros and rows of zeros.
std::vector<std::uint16_t> bf16_weight(std::int64_t rows, std::int64_t k, std::uint64_t seed) {
  const RandomStream random(seed, "weight");
  std::vector<std::uint16_t> words(static_cast<std::size_t>(rows * k));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t bits = random.bits32(i);
    const std::uint32_t exponent = 127 - 40 + (bits >> 20) % 50;
    words[i] = static_cast<std::uint16_t>((bits & 0x8000) | (exponent << 7) | (bits & 0x7f));
    if (i / static_cast<std::size_t>(k) % 7 == 3 || bits % 11 == 0) words[i] = 0;
  }
  return words;
}

QuantizedWeight quantize_into(const Recipe& recipe, const TensorView& weight,
                              std::span<std::uint8_t> codes) {
  const auto take = [&](std::int64_t first, std::span<const std::uint8_t> part) {
    std::copy(part.begin(), part.end(), codes.begin() + first);
  };
  return quantize_weight(recipe, weight, take, [](auto) {});
}

void check_as_whole(const Recipe& recipe, const TensorView& weight, const std::string& what) {
  std::vector<std::uint8_t> codes(weight.bytes.size() / element_bytes(weight.type));
  const QuantizedWeight got = quantize_into(recipe, weight, codes);
  const std::vector<float> values = to_float(weight);
  const QuantizedTensor want = quantize(recipe, {values, weight.shape[0], weight.shape[1]});
  INFO(what << " " << shape_text(weight.shape));
  CHECK(std::equal(codes.begin(), codes.end(), want.codes.begin(), want.codes.end()));
  REQUIRE(got.inverse_scales.size() == want.inverse_scales.size());
  for (std::size_t i = 0; i < want.inverse_scales.size(); ++i)
    CHECK(std::bit_cast<std::uint32_t>(got.inverse_scales[i]) ==
          std::bit_cast<std::uint32_t>(want.inverse_scales[i]));
  std::int64_t nan = 0;
  if (recipe.format == FormatId::e4m3fn)
    for (const std::uint8_t code : want.codes) nan += (code & 0x7f) == 0x7f ? 1 : 0;
  CHECK(got.nan_codes == nan);
  CHECK(got.scale_codes == (want.e8m0.empty() ? want.ue4m3 : want.e8m0));
  CHECK(got.tensor.inverse_scale == want.tensor_inverse_scale);
}

/// Whether any layout can say the recipe.
bool is_served(const Preset& preset) {
  const Recipe& r = preset.weight;
  return (r.format == FormatId::e4m3fn || is_mx(r.rule) || is_two_level(r.rule)) &&
         r.source == ScaleSource::current && (r.row_block > 0 || r.k_block == 0);
}

}  // namespace

TEST_CASE("a weight in parts has the bits of the whole, under every preset",
          "[model_files][long]") {
  int presets_checked = 0;
  for (const Preset& preset : presets()) {
    if (!is_served(preset)) continue;
    ++presets_checked;
    const Recipe& recipe = preset.weight;
    // More than one part, with a last one of another size; ragged where the recipe takes that.
    for (const auto& [rows, k] : {std::pair<std::int64_t, std::int64_t>{896, 384},
                                  {1, 128},
                                  {301, 517},
                                  {3, 70000},
                                  {300, 2500}}) {
      if (rows % recipe.rows_multiple != 0 || k % recipe.k_multiple != 0) continue;
      const auto words = bf16_weight(rows, k, 7);
      check_as_whole(recipe,
                     view_of(ElementType::bf16, {rows, k}, std::span<const std::uint16_t>(words)),
                     std::string(preset.name));
    }
  }
  CHECK(presets_checked >= 40);
}

TEST_CASE("FP32 and FP16 weights in parts too", "[model_files]") {
  const Recipe& recipe = find_preset("inference-dynamic").weight;
  const auto words = bf16_weight(300, 500, 3);
  std::vector<float> values(words.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(words[i]) << 16) * 1.0001F;
  check_as_whole(recipe, view_of(ElementType::f32, {300, 500}, std::span<const float>(values)),
                 "f32");
  check_as_whole(recipe,
                 view_of(ElementType::f16, {300, 500}, std::span<const std::uint16_t>(words)),
                 "f16: every kind of code");
}

TEST_CASE("NaN and Inf in a weight give the rule's bits and are counted", "[model_files]") {
  std::vector<float> values(400 * 500, 0.25F);
  for (const float special :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    values[123456] = special;
    for (const char* name : {"modelopt", "te-current", "vllm-per-tensor", "compressed-tensors"})
      check_as_whole(find_preset(name).weight,
                     view_of(ElementType::f32, {400, 500}, std::span<const float>(values)), name);
  }
  std::vector<std::uint8_t> codes(values.size());
  const QuantizedWeight got =
      quantize_into(find_preset("modelopt").weight,
                    view_of(ElementType::f32, {400, 500}, std::span<const float>(values)), codes);
  CHECK(got.nan_codes > 0);
}

TEST_CASE("a weight that the recipe refuses is refused", "[model_files]") {
  const auto words = bf16_weight(100, 100, 1);
  const auto view = view_of(ElementType::bf16, {100, 100}, std::span<const std::uint16_t>(words));
  std::vector<std::uint8_t> codes(words.size());
  CHECK_THROWS_AS(quantize_into(find_preset("te-blockwise").weight, view, codes), Error);
  CHECK_THROWS_AS(quantize_into(find_preset("ocp-mxfp8").gradient, view, codes), Error);
}

TEST_CASE("dequantized weights are products, rounded once more", "[model_files]") {
  std::vector<std::uint8_t> codes(256 * 3);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  const std::vector<float> scales{0.3F, 1.0F, 1e-7F, 1.1754944e-38F, 3.4e38F, 7.0F};
  const auto view = view_of(ElementType::e4m3fn, {3, 256}, std::span<const std::uint8_t>(codes));
  std::vector<float> got(codes.size());
  dequantize_weight({view, scales, 1, 128}, ElementType::f32,
                    std::as_writable_bytes(std::span(got)));
  std::vector<std::uint16_t> narrow(codes.size());
  dequantize_weight({view, scales, 1, 128}, ElementType::bf16,
                    std::as_writable_bytes(std::span(narrow)));
  const std::span<const float> table = decode_table(FormatId::e4m3fn);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float want = table[codes[i]] * scales[i / 128];
    INFO("code " << int(codes[i]) << " scale " << scales[i / 128]);
    if (std::isnan(want)) {
      CHECK((std::isnan(got[i]) && (narrow[i] & 0x7fff) > 0x7f80));
      continue;
    }
    CHECK(std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want));
    CHECK(narrow[i] == std::bit_cast<std::uint32_t>(rounded_to_bf16(want)) >> 16);
  }
  std::vector<std::byte> wrong(5);
  CHECK_THROWS_AS(dequantize_weight({view, scales, 1, 128}, ElementType::f32, wrong), Error);
  CHECK_THROWS_AS(dequantize_weight({view, scales, 1, 100}, ElementType::f32,
                                    std::as_writable_bytes(std::span(got))),
                  Error);
}

TEST_CASE("a large weight is dequantized in parts with the scales of its rows", "[model_files]") {
  // More elements than one part has, and no power of two.
  constexpr std::int64_t kRows = 1201;
  constexpr std::int64_t kColumns = 1000;
  std::vector<std::uint8_t> codes(kRows * kColumns);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127);
  const auto view =
      view_of(ElementType::e4m3fn, {kRows, kColumns}, std::span<const std::uint8_t>(codes));
  const std::span<const float> table = decode_table(FormatId::e4m3fn);
  for (const std::int64_t row_block : {1, 128, 1201})
    for (const std::int64_t k_block : {128, 1000}) {
      const std::int64_t across = (kColumns + k_block - 1) / k_block;
      std::vector<float> scales(
          static_cast<std::size_t>((kRows + row_block - 1) / row_block * across));
      for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0F + static_cast<float>(i);
      std::vector<float> got(codes.size());
      dequantize_weight({view, scales, row_block, k_block}, ElementType::f32,
                        std::as_writable_bytes(std::span(got)));
      std::size_t wrong = 0;
      for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const std::int64_t scale = i / kColumns / row_block * across + i % kColumns / k_block;
        const auto at = static_cast<std::size_t>(i);
        wrong += got[at] == table[codes[at]] * scales[static_cast<std::size_t>(scale)] ? 0 : 1;
      }
      INFO(row_block << " x " << k_block);
      CHECK(wrong == 0);
    }
}

TEST_CASE("experts of several parts are cast one after the other, turned, and back",
          "[model_files]") {
  const TemporaryFolder folder("experts");
  constexpr std::int64_t kExperts = 2;
  constexpr std::int64_t kColumns = 64;  // two groups
  constexpr std::int64_t kRows = 2050;   // 64 x 2048 elements are a part
  const std::array<float, 16> table{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                    -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  // The first of a group is the largest, so that its scale is 2^shift; code 8 would be -0.
  const auto shift = [](std::int64_t e, std::int64_t r, std::int64_t c) {
    return static_cast<int>((3 * e + r + 5 * (c / 32)) % 7) - 3;
  };
  const auto code = [](std::int64_t e, std::int64_t r, std::int64_t c) {
    const std::int64_t drawn = (5 * e + 3 * r + 7 * c + r * c / 11) % 16;
    return static_cast<std::size_t>(c % 32 == 0 ? 7 : drawn == 8 ? 15 : drawn);
  };
  std::vector<float> values;
  std::vector<std::uint16_t> words;
  for (std::int64_t e = 0; e < kExperts; ++e)
    for (std::int64_t c = 0; c < kColumns; ++c)
      for (std::int64_t r = 0; r < kRows; ++r) {
        values.push_back(std::ldexp(table[code(e, r, c)], shift(e, r, c)));
        words.push_back(
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values.back()) >> 16));
      }
  const Layout& layout = find_layout("gpt-oss");
  const Preset& preset = find_preset("mxfp4");
  const WeightScheme scheme = make_scheme(layout, preset, false);
  const std::string name = "m.experts.down_proj";
  for (const TensorView& experts :
       {view_of(ElementType::f32, {kExperts, kColumns, kRows}, std::span<const float>(values)),
        view_of(ElementType::bf16, {kExperts, kColumns, kRows},
                std::span<const std::uint16_t>(words))}) {
    INFO(to_string(experts.type));
    const WeightOutputs outputs = outputs_of(layout, scheme, {name, experts.type, experts.shape});
    std::size_t released = 0;
    const auto release = [&](std::span<const std::byte> part) {
      CHECK(part.data() == experts.bytes.data() + released);
      released += part.size();
    };
    {
      SafetensorsWriter out(folder / "x.safetensors", outputs.list());
      CHECK(quantize_experts(scheme, preset.weight, experts, outputs, release, out) == 0);
      out.commit();
    }
    CHECK(released == experts.bytes.size());
    const SafetensorsFile file(folder / "x.safetensors");
    const TensorView& blocks = file.find(name + "_blocks");
    const TensorView& scales = file.find(name + "_scales");
    REQUIRE(blocks.shape == std::vector<std::int64_t>{kExperts, kRows, kColumns / 32, 16});
    REQUIRE(scales.shape == std::vector<std::int64_t>{kExperts, kRows, kColumns / 32});
    std::size_t wrong = 0;
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < kColumns; c += 2) {
          const auto at = static_cast<std::size_t>(((e * kRows + r) * kColumns + c) / 2);
          const std::size_t both = code(e, r, c) | code(e, r, c + 1) << 4;
          wrong += std::to_integer<std::size_t>(blocks.bytes[at]) == both ? 0 : 1;
          wrong += std::to_integer<int>(scales.bytes[at / 16]) == 127 + shift(e, r, c) ? 0 : 1;
        }
    CHECK(wrong == 0);

    const std::size_t bytes = experts.bytes.size() / 2;
    for (std::size_t e = 0; e < 2; ++e) {
      const std::span<const std::byte> of_expert = scales.bytes.subspan(e * kRows * 2, kRows * 2);
      const std::vector<std::byte> back = dequantize_expert(
          {ElementType::u8, {}, blocks.bytes.subspan(e * kRows * 32, kRows * 32)},
          {reinterpret_cast<const std::uint8_t*>(of_expert.data()), of_expert.size()}, kRows,
          kColumns, experts.type);
      const std::span<const std::byte> want = experts.bytes.subspan(e * bytes, bytes);
      CHECK(std::equal(back.begin(), back.end(), want.begin(), want.end()));
    }
  }
}

TEST_CASE("a weight's tensors have the names and shapes of their layout", "[model_files]") {
  using enum ElementType;
  struct Case {
    const char* layout;
    const char* preset;
    bool calibrated;
    std::vector<TensorSpec> expected;
  };
  for (const Case& c : std::vector<Case>{
           {"compressed-tensors",
            "llm-compressor",
            false,
            {{"m.weight", e4m3fn, {256, 384}}, {"m.weight_scale", f32, {256, 1}}}},
           {"compressed-tensors",
            "nvfp4",
            true,
            {{"m.weight_packed", u8, {256, 192}},
             {"m.weight_scale", e4m3fn, {256, 24}},
             {"m.weight_global_scale", f32, {1}},
             {"m.input_global_scale", f32, {1}}}},
           {"compressed-tensors",
            "mxfp6-e2m3",
            false,
            {{"m.weight_packed", u8, {256, 288}}, {"m.weight_scale", u8, {256, 12}}}},
           {"compressed-tensors",
            "ocp-mxfp8",
            false,
            {{"m.weight", e4m3fn, {256, 384}}, {"m.weight_scale", u8, {256, 12}}}},
           {"modelopt",
            "modelopt",
            true,
            {{"m.weight", e4m3fn, {256, 384}},
             {"m.weight_scale", f32, {}},
             {"m.input_scale", f32, {}}}},
           {"modelopt",
            "modelopt-nvfp4",
            true,
            {{"m.weight", u8, {256, 192}},
             {"m.weight_scale", e4m3fn, {256, 24}},
             {"m.weight_scale_2", f32, {}},
             {"m.input_scale", f32, {}}}},
           {"hf-fp8",
            "deepseek-v3",
            false,
            {{"m.weight", e4m3fn, {256, 384}}, {"m.weight_scale_inv", f32, {2, 3}}}},
           {"deepseek",
            "deepgemm",
            false,
            {{"m.weight", e4m3fn, {256, 384}}, {"m.weight_scale_inv", f32, {2, 3}}}},
           {"torchao",
            "torchao-inference",
            false,
            {{"m._weight_qdata", e4m3fn, {256, 384}}, {"m._weight_scale", f32, {256, 1}}}},
           {"torchao",
            "torchao-nvfp4",
            false,
            {{"m._weight_qdata", u8, {256, 192}},
             {"m._weight_scale", e4m3fn, {64, 96}},
             {"m._weight_per_tensor_scale", f32, {}}}}}) {
    const Layout& layout = find_layout(c.layout);
    const WeightScheme scheme = make_scheme(layout, find_preset(c.preset), c.calibrated);
    const auto got = outputs_of(layout, scheme, {"m.weight", f32, {256, 384}}).list();
    INFO(c.layout << " " << c.preset);
    REQUIRE(got.size() == c.expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO(got[i].name << " " << to_string(got[i].type) << " " << shape_text(got[i].shape));
      CHECK(got[i] == c.expected[i]);
    }
    CHECK(stores_multiplier(layout) == (std::string_view(c.layout) == "compressed-tensors"));
  }
}
