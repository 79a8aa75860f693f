#include "fp8lab/model_files/weight_cast.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/model_files/layout.hpp"

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
