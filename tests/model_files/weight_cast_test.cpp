#include "training/model_files/weight_cast.hpp"
#include "fp8lab/tensors/packed.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "training/model_files/expert_cast.hpp"
#include "training/model_files/layout.hpp"

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
      const std::vector<float> factors =
          to_float({ElementType::e8m0fnu, {kRows, kColumns / 32}, of_expert});
      const std::vector<std::byte> codes =
          unpack_codes({ElementType::e2m1x2,
                        {kRows, kColumns},
                        blocks.bytes.subspan(e * kRows * 32, kRows * 32)});
      std::vector<std::byte> rows(codes.size() * element_bytes(experts.type));
      dequantize_weight({{ElementType::e2m1, {kRows, kColumns}, codes}, factors, 1, 32},
                        experts.type, rows);
      const std::vector<std::byte> back = transposed(rows, kRows, kColumns, experts.type);
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
    CHECK(layout.stores_multiplier == (std::string_view(c.layout) == "compressed-tensors"));
  }
}

TEST_CASE("NaN scales of groups are counted beside NaN codes", "[model_files]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto count = [](const auto& codes, int mask, int nan) {
    return std::count_if(codes.begin(), codes.end(),
                         [=](std::uint8_t code) { return (code & mask) == nan; });
  };
  std::map<std::string, std::int64_t> most;
  for (const char* name : {"ocp-mxfp8", "mxfp8-floor", "te-mxfp8", "modelopt-mxfp8", "mxfp4",
                           "mxfp6-e2m3", "compressed-tensors-mxfp4", "modelopt-mxfp4", "nvfp4",
                           "compressed-tensors-nvfp4", "modelopt-nvfp4", "torchao-nvfp4"})
    for (const auto& specials :
         {std::vector<float>{}, {kNan}, {-kNan}, {kInf}, {kNan, kInf, -kNan}}) {
      std::vector<float> values(64 * 96, 0.25F);
      for (std::size_t i = 0; i < specials.size(); ++i) values[100 + 1601 * i] = specials[i];
      const Recipe& recipe = find_preset(name).weight;
      const QuantizedTensor whole = quantize(recipe, {values, 64, 96});
      const std::int64_t expected =
          (recipe.format == FormatId::e4m3fn ? count(whole.codes, 0x7f, 0x7f) : 0) +
          count(whole.e8m0, 0xff, 0xff) + count(whole.ue4m3, 0x7f, 0x7f);
      std::vector<std::uint8_t> codes(values.size());
      const QuantizedWeight got = quantize_into(
          recipe, view_of(ElementType::f32, {64, 96}, std::span<const float>(values)), codes);
      INFO(name << ", " << specials.size() << " special values");
      CHECK(got.nan_codes == expected);
      CHECK((got.nan_codes > 0 || !specials.empty() || expected == 0));
      most[name] = std::max(most[name], got.nan_codes);
    }
  CHECK(most["mxfp4"] == 3);  // a scale for each group that has a special value
  CHECK(most["modelopt-nvfp4"] > 0);
  CHECK(most["ocp-mxfp8"] > 3);  // and elements
}

TEST_CASE("NaN of every expert are counted", "[model_files]") {
  const TemporaryFolder folder("experts_nan");
  const Layout& layout = find_layout("gpt-oss");
  const Preset& preset = find_preset("mxfp4");
  const WeightScheme scheme = make_scheme(layout, preset, false);
  for (const auto& experts :
       {std::vector<std::size_t>{}, {0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}}) {
    std::vector<std::uint16_t> words(3 * 32 * 2, 0x3f80);
    for (const std::size_t e : experts) words[e * 64 + 5] = 0x7fc0;
    const TensorView view =
        view_of(ElementType::bf16, {3, 32, 2}, std::span<const std::uint16_t>(words));
    const WeightOutputs outputs = outputs_of(layout, scheme, {"m", view.type, view.shape});
    SafetensorsWriter out(folder / "x.safetensors", outputs.list());
    CHECK(quantize_experts(
              scheme, preset.weight, view, outputs, [](auto) {}, out) ==
          static_cast<std::int64_t>(experts.size()));
  }
}

TEST_CASE("a large weight in sixteen bits is that of its blocks alone", "[model_files]") {
  constexpr std::int64_t kRows = 601;
  constexpr std::int64_t kColumns = 1000;
  std::vector<std::uint8_t> codes(kRows * kColumns);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127);
  const std::vector<float> scales = [] {
    std::vector<float> values(5 * 8);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.7F + static_cast<float>(i);
    return values;
  }();
  const auto view = [&](std::int64_t row, std::int64_t rows) {
    return view_of(
        ElementType::e4m3fn, {rows, kColumns},
        std::span<const std::uint8_t>(codes).subspan(static_cast<std::size_t>(row * kColumns),
                                                     static_cast<std::size_t>(rows * kColumns)));
  };
  for (const ElementType type : {ElementType::bf16, ElementType::f16, ElementType::f32}) {
    const std::size_t width = element_bytes(type);
    std::vector<std::byte> whole(codes.size() * width);
    dequantize_weight({view(0, kRows), scales, 128, 128}, type, whole);
    std::vector<std::byte> expected(whole.size());
    for (std::int64_t row = 0; row < kRows; row += 128) {  // a part has more rows
      const std::int64_t rows = std::min<std::int64_t>(128, kRows - row);
      dequantize_weight(
          {view(row, rows), std::span(scales).subspan(static_cast<std::size_t>(row / 128 * 8), 8),
           128, 128},
          type,
          std::span(expected).subspan(static_cast<std::size_t>(row * kColumns) * width,
                                      static_cast<std::size_t>(rows * kColumns) * width));
    }
    INFO(to_string(type));
    CHECK((whole == expected));
  }
}

TEST_CASE("all of a large weight is given back, strip after strip", "[model_files]") {
  constexpr std::int64_t kRows = 4200;  // more than 2^24 elements
  constexpr std::int64_t kColumns = 4096;
  std::vector<std::uint16_t> words(kRows * kColumns);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<std::uint16_t>(0x3c00 + i % 997);
  const TensorView weight =
      view_of(ElementType::bf16, {kRows, kColumns}, std::span<const std::uint16_t>(words));
  std::vector<std::uint8_t> taken(words.size());
  std::size_t released = 0;
  int strips = 0;
  const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
    std::copy(codes.begin(), codes.end(), taken.begin() + first);
  };
  const auto release = [&](std::span<const std::byte> part) {
    CHECK(part.data() == weight.bytes.data() + released);
    released += part.size();
    ++strips;
    // What is given back was read.
    CHECK(taken[released / 2 - 1] != 0);
    if (released < weight.bytes.size()) CHECK(taken[released / 2] == 0);
  };
  const Recipe& recipe = find_preset("llm-compressor-bf16").weight;
  const QuantizedWeight got = quantize_weight(recipe, weight, take, release);
  CHECK(released == weight.bytes.size());
  CHECK(strips == 2);
  CHECK(got.inverse_scales.size() == kRows);
  CHECK(std::count(taken.begin(), taken.end(), 0) == 0);
}

TEST_CASE("a scale is written in its own type, rounded to nearest even", "[model_files]") {
  const TemporaryFolder folder("numbers");
  for (const float value : {1.0F, 0x1.01p0F, 0x1.03p0F, 0x1.028p0F, 0x1.018p0F, 3.0F / 448.0F,
                            7.0F / 448.0F, 0x1p-133F})
    for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
      const TensorSpec spec{"x", type, {1}};
      {
        SafetensorsWriter out(folder / "x.safetensors", {spec});
        write_number(value, spec, out);
        out.commit();
      }
      const float got = to_float(SafetensorsFile(folder / "x.safetensors").find("x"))[0];
      INFO(to_string(type) << " " << value);
      CHECK(got == (type == ElementType::f32 ? value : rounded_to_bf16(value)));
    }
}

TEST_CASE("what is no weight of a recipe is said", "[model_files]") {
  const std::vector<float> values(256 * 2, 1.0F);
  std::vector<std::uint8_t> codes(values.size());
  const auto why = [&](const Recipe& recipe, std::vector<std::int64_t> shape,
                       ElementType type = ElementType::f32, bool fortran = false) {
    const auto bytes = std::as_bytes(std::span(values));
    TensorView view{type, std::move(shape), bytes, fortran};
    view.bytes = bytes.first(static_cast<std::size_t>(view.size()) * element_bytes(type));
    return test::message_of([&] { quantize_into(recipe, view, codes); });
  };
  const Recipe row{.row_block = 1};
  CHECK(why(row, {2, 256}) == "accepted");
  CHECK(why(row, {512}) == "weight: expected row-major [rows, k], got [512]");
  for (const std::vector<std::int64_t>& other :
       {std::vector<std::int64_t>{}, {2, 16, 16}, {2, 256, 1}, {1, 2, 256}})
    CHECK(why(row, other) == "weight: expected row-major [rows, k], got " + shape_text(other));
  CHECK(why(row, {2, 256}, ElementType::f32, true) ==
        "weight: expected row-major [rows, k], got [2, 256]");
  CHECK(why(row, {2, 128}, ElementType::f64) ==
        "weight: expected f32, f16 or bf16 elements, got f64");
  CHECK(why({.k_block = 128}, {2, 256}) ==
        "recipe: expected tiles of a row, a block or the tensor, got 0 x 128");
  Recipe whole = row;
  whole.rows_multiple = 4;
  CHECK(why(whole, {2, 256}) == "weight: expected rows divisible by 4, got [2, 256]");
  CHECK(why(whole, {4, 128}) == "accepted");
  whole.rows_multiple = 1;
  whole.k_multiple = 3;
  CHECK(why(whole, {2, 256}) == "weight: expected k divisible by 3, got [2, 256]");
  CHECK(why(whole, {2, 255}) == "accepted");

  const auto back = [&](ScaledCodes weight, ElementType type, std::size_t bytes) {
    std::vector<std::byte> to(bytes);
    return test::message_of([&] { dequantize_weight(weight, type, to); });
  };
  const auto view = [&](std::vector<std::int64_t> shape, ElementType type = ElementType::e4m3fn) {
    return TensorView{type, shape, std::as_bytes(std::span(codes)).first(6)};
  };
  const std::vector<float> scales(3, 1.0F);
  const std::span<const float> two = std::span(scales).first(2);
  CHECK(back({view({2, 3}), two, 1, 3}, ElementType::f32, 24) == "accepted");
  CHECK(back({view({2, 3}), two, 1, 100}, ElementType::f16, 12) == "accepted");
  const std::string shape =
      "codes: expected one code per byte or packed, [rows, k] in blocks, got ";
  for (const std::vector<std::int64_t>& other :
       {std::vector<std::int64_t>{}, {6}, {2, 3, 1}, {1, 2, 3}, {2, 1, 3}, {1, 2, 3, 1}})
    CHECK(back({view(other), two, 1, 3}, ElementType::f32, 24) == shape + shape_text(other));
  CHECK(back({view({2, 3}, ElementType::u8), two, 1, 3}, ElementType::f32, 24) == shape + "[2, 3]");
  CHECK(back({view({2, 3}, ElementType::bf16), two, 1, 3}, ElementType::f32, 24) ==
        shape + "[2, 3]");
  CHECK(back({view({2, 3}), two, 0, 3}, ElementType::f32, 24) == shape + "[2, 3]");
  CHECK(back({view({2, 3}), two, 1, 0}, ElementType::f32, 24) == shape + "[2, 3]");
  CHECK(back({view({2, 3}), two, 1, 3}, ElementType::f64, 48) ==
        "type: expected f32, f16 or bf16, got f64");
  CHECK(back({view({2, 3}), scales, 1, 3}, ElementType::f32, 24) == "scales: expected 2, got 3");
  CHECK(back({view({2, 3}), two, 1, 2}, ElementType::f32, 24) == "scales: expected 4, got 2");
  CHECK(back({view({2, 3}), two, 1, 3}, ElementType::f32, 23) == "bytes: expected 24, got 23");
  CHECK(back({view({2, 3}), two, 1, 3}, ElementType::bf16, 24) == "bytes: expected 12, got 24");
}
