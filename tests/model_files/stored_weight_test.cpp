// Which shapes and types of scales fit a stored weight, the tiles that they mean, and the floats
// that they give.

#include "training/model_files/stored_weight.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "model_files/models.hpp"
#include "training/model_files/blocked_scales.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/stored_weight.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;

/// The row of names with these codes and scales.
const StoredNames& names_of(std::string_view codes, std::string_view scale) {
  for (const StoredNames& names : stored_names())
    if (names.codes == codes && names.scale == scale) return names;
  FAIL("no such names");
  return stored_names()[0];
}

StoredWeight weight_of(const StoredNames& names, const WeightForm& form, TensorSpec codes,
                       TensorSpec scale, std::optional<TensorSpec> upper = {},
                       bool u8_is_e8m0 = false) {
  StoredWeight weight;
  weight.module = "w";
  weight.codes = std::move(codes);
  weight.scale.spec = std::move(scale);
  if (upper) weight.tensor_scale = StoredTensor{*upper, 0};
  weight.names = &names;
  weight.written.name = "w.weight";
  StoredQuantization stored;
  stored.form = form;
  stored.u8_is_e8m0 = u8_is_e8m0;
  set_shapes(weight, stored);
  return weight;
}

/// 300 x 200 codes in blocks of 128 x 64: 3 x 4 of them.
StoredWeight plain(Shape scales, ElementType type = ElementType::f32, bool u8_is_e8m0 = false) {
  return weight_of(names_of(".weight", ".weight_scale_inv"), {.row_block = 128, .k_block = 64},
                   {"w.weight", ElementType::e4m3fn, {300, 200}},
                   {"w.weight_scale_inv", type, std::move(scales)}, {}, u8_is_e8m0);
}

constexpr WeightForm kMxfp4{FormatId::e2m1, ScaleKind::e8m0, 1, 32, {}};
constexpr WeightForm kMxfp8{FormatId::e4m3fn, ScaleKind::e8m0, 1, 32, {}};
constexpr WeightForm kNvfp4{FormatId::e2m1, ScaleKind::two_level, 1, 16, {}};

StoredWeight experts(Shape codes, Shape scales, ElementType type = ElementType::u8) {
  return weight_of(names_of("_blocks", "_scales"), kMxfp4,
                   {"m_blocks", ElementType::u8, std::move(codes)},
                   {"m_scales", type, std::move(scales)});
}

/// The tensors of the one file of a model, back in floats.
std::map<std::string, std::vector<float>> dequantized(const char* layout, const char* preset,
                                                      const std::vector<NamedTensor>& tensors) {
  const TemporaryFolder folder("dequantized");
  fs::create_directory(folder / "in");
  write_safetensors(folder / "in/model.safetensors", tensors);
  write_text(folder / "in/config.json", config_of(layout, preset));
  dequantize_model(ModelDirectory(folder / "in"), {.layout = "", .type = ElementType::f32},
                   folder / "out");
  std::map<std::string, std::vector<float>> values;
  const SafetensorsFile file(folder / "out/model.safetensors");
  for (const NamedTensor& item : file.tensors()) {
    if (item.name.starts_with("m")) CHECK(item.tensor.type == ElementType::f32);
    values[item.name] = to_float(item.tensor);
  }
  return values;
}

}  // namespace

TEST_CASE("the shape of plain scales says their tiles", "[model_files]") {
  struct Case {
    Shape scales;
    Shape tile;
  };
  for (const Case& c : {Case{{}, {300, 200}}, Case{{1}, {300, 200}}, Case{{1, 1}, {300, 200}},
                        Case{{300}, {1, 200}}, Case{{300, 1}, {1, 200}}, Case{{3, 4}, {128, 64}},
                        Case{{3, 1, 4, 1}, {128, 64}}}) {
    const StoredWeight weight = plain(c.scales);
    INFO(shape_text(c.scales));
    CHECK(Shape{weight.row_block, weight.k_block} == c.tile);
    CHECK(Shape{weight.rows, weight.k} == Shape{300, 200});
    CHECK(weight.written.shape == Shape{300, 200});
  }
  for (const Shape& scales :
       {Shape{2}, Shape{200}, Shape{299}, Shape{12}, Shape{1, 300}, Shape{300, 2}, Shape{2, 4},
        Shape{4, 4}, Shape{3, 3}, Shape{3, 5}, Shape{4, 3}, Shape{3, 4, 1}, Shape{0}}) {
    INFO(shape_text(scales));
    CHECK_THROWS_WITH(
        plain(scales),
        contains("tensor 'w.weight_scale_inv'") &&
            contains("expected scales [1], [300], [300, 1], [3, 4] or [3, 1, 4, 1], got " +
                     shape_text(scales)));
  }
  for (const ElementType type :
       {ElementType::f32, ElementType::bf16, ElementType::f16, ElementType::e8m0fnu})
    CHECK_NOTHROW(plain({3, 4}, type));
  for (const ElementType type : {ElementType::f64, ElementType::u8, ElementType::e4m3fn})
    CHECK_THROWS_AS(plain({3, 4}, type), Error);
  // Bytes are exponents only where the configuration says so.
  CHECK_NOTHROW(plain({3, 4}, ElementType::u8, true));
}

TEST_CASE("fused experts have scales of all, of an expert, of rows, of blocks or of columns",
          "[model_files]") {
  const auto fused = [](Shape scales) {
    return weight_of(names_of("", "_scale_inv"), {}, {"m", ElementType::e4m3fn, {5, 300, 200}},
                     {"m_scale_inv", ElementType::f32, std::move(scales)});
  };
  struct Case {
    Shape scales;
    Shape tile;
  };
  for (const Case& c : {Case{{}, {300, 200}}, Case{{1, 1, 1}, {300, 200}}, Case{{5}, {300, 200}},
                        Case{{5, 1, 1}, {300, 200}}, Case{{5, 300}, {1, 200}},
                        Case{{5, 300, 1}, {1, 200}}, Case{{5, 3, 2}, {128, 128}},
                        Case{{5, 3, 1, 2, 1}, {128, 128}}, Case{{5, 1, 200}, {300, 1}}}) {
    INFO(shape_text(c.scales));
    const StoredWeight weight = fused(c.scales);
    CHECK(Shape{weight.batch, weight.rows, weight.k} == Shape{5, 300, 200});
    CHECK(Shape{weight.row_block, weight.k_block} == c.tile);
  }
  for (const Shape& scales : {Shape{300}, Shape{4, 1, 1}, Shape{3, 2}, Shape{5, 2, 3}, Shape{200}})
    CHECK_THROWS_WITH(fused(scales), contains("'m_scale_inv': expected scales [1], [5]"));
  // ModelOpt leaves experts of some models as [experts, k, rows], packed along k.
  const auto turned = [](Shape scales) {
    return weight_of(names_of("", "_weight_scale"), kNvfp4, {"m", ElementType::u8, {5, 48, 20}},
                     {"m_weight_scale", ElementType::e4m3fn, std::move(scales)},
                     TensorSpec{"m_weight_scale_2", ElementType::f32, {}});
  };
  const StoredWeight weight = turned({5, 6, 20});
  CHECK(weight.is_turned);
  CHECK(Shape{weight.batch, weight.rows, weight.k} == Shape{5, 20, 96});
  CHECK(weight.written.shape == Shape{5, 96, 20});
  CHECK_THROWS_WITH(turned({5, 20, 6}), contains("a multiple of 16 elements per row, got 40"));
}

TEST_CASE("experts have a scale for every 16 bytes of a row", "[model_files]") {
  const StoredWeight weight = experts({2, 5, 3, 16}, {2, 5, 3});
  CHECK(Shape{weight.rows, weight.k} == Shape{5, 96});
  CHECK(weight.written.shape == Shape{2, 96, 5});
  for (const Shape& scales :
       {Shape{2, 5, 16}, Shape{2, 5, 2}, Shape{2, 5, 4}, Shape{2, 4, 3}, Shape{2, 6, 3},
        Shape{1, 5, 3}, Shape{3, 5, 3}, Shape{5, 2, 3}, Shape{2, 5}, Shape{2, 5, 3, 1}}) {
    INFO(shape_text(scales));
    CHECK_THROWS_WITH(experts({2, 5, 3, 16}, scales),
                      contains("'m_scales': expected [2, 5, 3], got " + shape_text(scales)));
  }
  for (const std::int64_t bytes : {1, 15, 17, 32})
    CHECK_THROWS_WITH(experts({2, 5, 3, bytes}, {2, 5, 3}),
                      contains("'m_blocks': expected [experts, rows, k / 32, 16]"));
  CHECK_NOTHROW(experts({2, 5, 3, 16}, {2, 5, 3}, ElementType::e8m0fnu));
  for (const ElementType type : {ElementType::i8, ElementType::f32})
    CHECK_THROWS_WITH(experts({2, 5, 3, 16}, {2, 5, 3}, type), contains("u8 or e8m0fnu scales"));
}

TEST_CASE("groups have scales of their row's parts, of the kind that config.json says",
          "[model_files]") {
  const auto group = [](ScaleKind kind, TensorSpec codes, TensorSpec scale, TensorSpec upper = {}) {
    const WeightForm form = kind == ScaleKind::two_level    ? kNvfp4
                            : codes.type == ElementType::u8 ? kMxfp4
                                                            : kMxfp8;
    return weight_of(names_of(".weight", ".weight_scale"), form, std::move(codes), std::move(scale),
                     kind == ScaleKind::two_level ? std::optional(std::move(upper)) : std::nullopt);
  };
  using enum ElementType;
  const TensorSpec one{"u", f32, {}};
  const StoredWeight fp4 =
      group(ScaleKind::two_level, {"w", u8, {3, 24}}, {"s", e4m3fn, {3, 3}}, one);
  CHECK(Shape{fp4.rows, fp4.k, fp4.row_block, fp4.k_block} == Shape{3, 48, 1, 16});
  CHECK(fp4.written.shape == Shape{3, 48});
  for (const ElementType type : {u8, e8m0fnu}) {
    const StoredWeight fp8 = group(ScaleKind::e8m0, {"w", e4m3fn, {3, 96}}, {"s", type, {3, 3}});
    CHECK(Shape{fp8.rows, fp8.k, fp8.row_block, fp8.k_block} == Shape{3, 96, 1, 32});
  }
  CHECK_THROWS_WITH(group(ScaleKind::e8m0, {"w", e4m3fn, {3, 80}}, {"s", u8, {3, 3}}),
                    contains("'w': expected a multiple of 32 elements per row, got 80"));
  CHECK_THROWS_WITH(group(ScaleKind::e8m0, {"w", e4m3fn, {3, 96}}, {"s", u8, {3, 4}}),
                    contains("'s': expected [3, 3], got [3, 4]"));
  CHECK_THROWS_WITH(group(ScaleKind::e8m0, {"w", e4m3fn, {3, 96}}, {"s", e4m3fn, {3, 3}}),
                    contains("'s': expected u8 or e8m0fnu scales"));
  for (const ElementType type : {u8, e8m0fnu, e5m2})
    CHECK_THROWS_WITH(group(ScaleKind::two_level, {"w", u8, {3, 24}}, {"s", type, {3, 3}}, one),
                      contains("'s': expected e4m3fn scales"));
  for (const TensorSpec& upper : {TensorSpec{"u", bf16, {}}, TensorSpec{"u", f32, {2}}})
    CHECK_THROWS_WITH(group(ScaleKind::two_level, {"w", u8, {3, 24}}, {"s", e4m3fn, {3, 3}}, upper),
                      contains("'u': expected one f32"));
}

TEST_CASE("weights in floats are codes times scales, whatever shard these are in",
          "[model_files]") {
  const TemporaryFolder folder("dequantize");
  fs::create_directory(folder / "in");
  const Bytes codes{0x38, 0x40, 0x44, 0xb8, 0x00, 0x7e};
  const std::array<float, 2> scales{0.5F, 3.0F};
  const std::vector<std::uint16_t> norm{0x3f80, 0xc000};
  const std::string one = "model-00001-of-00002.safetensors";
  const std::string two = "model-00002-of-00002.safetensors";
  write_safetensors(
      folder / ("in/" + one),
      {{"a.weight", bytes_view(ElementType::e4m3fn, {2, 3}, codes)},
       {"a.input_scale", view_of(ElementType::f32, {1}, std::span<const float>(scales).first(1))},
       {"norm.weight", view_of(ElementType::bf16, {2}, std::span<const std::uint16_t>(norm))}},
      {{"format", "pt"}});
  write_safetensors(
      folder / ("in/" + two),
      {{"a.weight_scale", view_of(ElementType::f32, {2, 1}, std::span<const float>(scales))},
       {"old.weight", bytes_view(ElementType::e4m3fn, {1, 6}, codes)}});
  const Layout& layout = find_layout("compressed-tensors");
  const WeightScheme scheme = make_scheme(layout, find_preset("llm-compressor"), false);
  nlohmann::json map;
  for (const char* name : {"a.weight", "a.input_scale", "norm.weight"}) map[name] = one;
  for (const char* name : {"a.weight_scale", "old.weight"}) map[name] = two;
  write_text(folder / (fmt::format("in/{}", kIndexFile)),
             nlohmann::json{{"weight_map", map}}.dump());
  // "old" is a module that stays: its codes are not this quantization's.
  write_text(folder / "in/config.json", with_quantization(R"({"dtype": "float16", "zebra": 1})",
                                                          "c", layout, scheme, {"old"}));
  for (const char* other : {"in/tokenizer.json", "in/hf_quant_config.json", "in/old.bin"})
    write_text(folder / other, other);

  const DequantizedModel done = dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
  CHECK(done.converted == std::vector<TensorSpec>{{"a.weight", ElementType::f16, {2, 3}}});
  CHECK(done.kept_codes == std::vector<std::string>{"old.weight"});
  REQUIRE(done.dropped.size() == 1);
  CHECK(done.dropped[0].name == "a.input_scale");
  CHECK(done.dropped[0].of == "input");
  CHECK(done.files.copied == std::vector<std::string>{"tokenizer.json"});
  CHECK(done.files.left == std::vector<std::string>{"old.bin"});
  CHECK(done.files.bytes_read == 6 + 4 + 6);
  CHECK(done.files.bytes_written ==
        fs::file_size(folder / ("out/" + one)) + fs::file_size(folder / ("out/" + two)));
  CHECK(done.files.resumed == 0);
  CHECK(read_file(folder / "out/config.json") ==
        "{\n  \"dtype\": \"float16\",\n  \"zebra\": 1\n}\n");
  const auto index = nlohmann::json::parse(read_file(folder / (fmt::format("out/{}", kIndexFile))));
  CHECK(index == nlohmann::json{{"metadata", {{"total_size", 12 + 4 + 6}}},
                                {"weight_map",
                                 {{"a.weight", one}, {"norm.weight", one}, {"old.weight", two}}}});
  const SafetensorsFile first(folder / ("out/" + one));
  CHECK(first.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(first.tensors().size() == 2);
  CHECK(first.find("a.weight").type == ElementType::f16);
  CHECK(to_float(first.find("a.weight")) ==
        std::vector<float>{0.5F, 1.0F, 1.5F, -3.0F, 0.0F, 1344.0F});
  CHECK(to_float(first.find("norm.weight")) == std::vector<float>{1.0F, -2.0F});
  const SafetensorsFile second(folder / ("out/" + two));
  CHECK(second.tensors().size() == 1);
  CHECK(second.find("old.weight").type == ElementType::e4m3fn);
}

TEST_CASE("a layout's own names and levels of scales give the floats", "[model_files]") {
  const Bytes nibbles{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};  // every code of E2M1
  const Bytes two{0x40};                                                // 2.0 in E4M3
  const std::vector<float> expected{0.0F,  0.25F,  0.5F,  0.75F,  1.0F,  1.5F,  2.0F,  3.0F,
                                    -0.0F, -0.25F, -0.5F, -0.75F, -1.0F, -1.5F, -2.0F, -3.0F};
  const Bytes blocked = to_blocked(two, 1, 1);
  const float quarter = 0.25F;
  const float four = 4.0F;
  const auto number = [](const float& value, Shape shape) {
    return view_of(ElementType::f32, std::move(shape), std::span(&value, 1));
  };
  const TensorView packed = bytes_view(ElementType::u8, {1, 8}, nibbles);
  const TensorView scale = bytes_view(ElementType::e4m3fn, {1, 1}, two);
  std::vector<NamedTensor> tensors{{"m.weight_packed", packed},
                                   {"m.weight_scale", scale},
                                   {"m.weight_global_scale", number(four, {1})}};
  using Model = std::map<std::string, std::vector<float>>;
  const Model model{{"m.weight", expected}};
  CHECK(dequantized("compressed-tensors", "nvfp4", tensors) == model);
  tensors.pop_back();
  CHECK_THROWS_WITH(dequantized("compressed-tensors", "nvfp4", tensors),
                    contains("tensor 'm.weight_global_scale': expected the tensor's scale"));
  CHECK(dequantized("modelopt", "modelopt-nvfp4",
                    {{"m.weight", packed},
                     {"m.weight_scale", scale},
                     {"m.weight_scale_2", number(quarter, {})}}) == model);
  CHECK(dequantized(
            "torchao", "torchao-nvfp4",
            {{"m._weight_qdata", packed},
             {"m._weight_scale", bytes_view(ElementType::e4m3fn, blocked_shape(1, 1), blocked)},
             {"m._weight_per_tensor_scale", number(quarter, {})}}) == model);
  CHECK(dequantized("deepseek", "deepgemm",
                    {{"m.weight", bytes_view(ElementType::e4m3fn, {1, 1}, two)},
                     {"m.weight_scale_inv", number(quarter, {1, 1})},
                     {"x.layer_scale", number(four, {})}}) ==
        Model{{"m.weight", {0.5F}}, {"x.layer_scale", {4.0F}}});
  CHECK_THROWS_WITH(
      dequantized("deepseek", "deepgemm", {{"m.weight_scale_inv", number(four, {1})}}),
      contains("'m.weight_scale_inv': expected FP8 or packed codes m.weight, got none"));

  // Fused experts: two of two rows of one group.
  Bytes blocks;
  std::vector<float> turned(2 * 32 * 2);
  const Bytes scales{127, 128, 126, 130};
  const std::array<float, 4> factors{1.0F, 2.0F, 0.5F, 8.0F};
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t c = 0; c < 32; ++c) {
      const std::size_t code = (c + 3 * row) % 16;
      if (c % 2 == 0) blocks.push_back(static_cast<std::uint8_t>(code));
      if (c % 2 == 1) blocks.back() |= static_cast<std::uint8_t>(code << 4);
      turned[(row / 2 * 32 + c) * 2 + row % 2] = 2.0F * expected[code] * factors[row];
    }
  CHECK(dequantized(
            "gpt-oss", "mxfp4",
            {{"m.experts.down_proj_blocks", bytes_view(ElementType::u8, {2, 2, 1, 16}, blocks)},
             {"m.experts.down_proj_scales", bytes_view(ElementType::u8, {2, 2, 1}, scales)}}) ==
        Model{{"m.experts.down_proj", turned}});
}

TEST_CASE("all rows of a large weight have its scale, whatever part they are read in",
          "[model_files]") {
  // Parts have 2^22 elements: the last has 37 rows.
  constexpr std::int64_t kRows = 512 + 37;
  constexpr std::int64_t kColumns = 8192;
  Bytes codes(kRows * kColumns);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127);
  const std::span<const float> table = decode_table(FormatId::e4m3fn);
  const float scale = 3.0F;
  const std::vector<float> got =
      dequantized("compressed-tensors", "vllm-per-tensor",
                  {{"m.weight", bytes_view(ElementType::e4m3fn, {kRows, kColumns}, codes)},
                   {"m.weight_scale", view_of(ElementType::f32, {1}, std::span(&scale, 1))}})
          .at("m.weight");
  REQUIRE(got.size() == codes.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] == table[codes[i]] * scale ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("a part of a large weight has the scales of its own blocks, rows and groups",
          "[model_files]") {
  // Parts have 2^22 elements at most, of whole blocks: 512 rows here, and the last 89.
  constexpr std::int64_t kRows = 512 + 89;
  constexpr std::int64_t kColumns = 8192;
  Bytes codes(kRows * kColumns);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7 % 127);
  const auto scales_of = [](std::int64_t rows, std::int64_t columns) {
    std::vector<float> scales(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0F + static_cast<float>(i % 509);
    return scales;
  };
  const std::span<const float> table = decode_table(FormatId::e4m3fn);
  struct Kind {
    const char* layout;
    const char* preset;
    const char* scale;
    Shape tile;
    Shape shape;
  };
  for (const Kind& kind :
       {Kind{"deepseek", "deepgemm", "m.weight_scale_inv", {128, 128}, {5, 64}},
        Kind{
            "compressed-tensors", "llm-compressor", "m.weight_scale", {1, kColumns}, {kRows, 1}}}) {
    const std::vector<float> scales = scales_of(kind.shape[0], kind.shape[1]);
    const std::vector<float> got =
        dequantized(kind.layout, kind.preset,
                    {{"m.weight", bytes_view(ElementType::e4m3fn, {kRows, kColumns}, codes)},
                     {kind.scale, view_of(ElementType::f32, kind.shape, std::span(scales))}})
            .at("m.weight");
    REQUIRE(got.size() == codes.size());
    std::size_t wrong = 0;
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const auto at = static_cast<std::size_t>(r * kColumns + c);
        const std::int64_t tile = r / kind.tile[0] * kind.shape[1] + c / kind.tile[1];
        wrong += got[at] == table[codes[at]] * scales[static_cast<std::size_t>(tile)] ? 0U : 1U;
      }
    INFO(kind.layout);
    CHECK(wrong == 0);
  }
  // Packed codes, two a byte, in groups of 16 with a scale of each and one of all.
  codes.resize(kRows * kColumns / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 11 % 251);
  Bytes groups(kRows * kColumns / 16);
  for (std::size_t i = 0; i < groups.size(); ++i)
    groups[i] = static_cast<std::uint8_t>(0x20 + i % 61);
  const float quarter = 0.25F;
  const std::vector<float> got =
      dequantized(
          "modelopt", "modelopt-nvfp4",
          {{"m.weight", bytes_view(ElementType::u8, {kRows, kColumns / 2}, codes)},
           {"m.weight_scale", bytes_view(ElementType::e4m3fn, {kRows, kColumns / 16}, groups)},
           {"m.weight_scale_2", view_of(ElementType::f32, {}, std::span(&quarter, 1))}})
          .at("m.weight");
  REQUIRE(got.size() == 2 * codes.size());
  const std::span<const float> elements = decode_table(FormatId::e2m1);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const unsigned code = i % 2 == 0 ? codes[i / 2] & 0xfU : codes[i / 2] >> 4U;
    wrong += got[i] == elements[code] * (table[groups[i / 16]] * quarter) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("codes of every FP8 type are a weight, under scales of every float type",
          "[model_files]") {
  const Bytes codes{0x38, 0x40, 0x44, 0xb8, 0x30, 0x01};
  const std::array<float, 2> f32{0.5F, 4.0F};
  const std::array<std::uint16_t, 2> f16{0x3800, 0x4400};
  const std::array<std::uint16_t, 2> bf16{0x3f00, 0x4080};
  const std::array<std::uint8_t, 2> e8m0{126, 129};
  const Shape shape{2, 1};
  for (const ElementType type :
       {ElementType::e4m3fn, ElementType::e5m2, ElementType::e4m3fnuz, ElementType::e5m2fnuz})
    for (const TensorView& scales :
         {view_of(ElementType::f32, shape, std::span<const float>(f32)),
          view_of(ElementType::f16, shape, std::span<const std::uint16_t>(f16)),
          view_of(ElementType::bf16, shape, std::span<const std::uint16_t>(bf16)),
          view_of(ElementType::e8m0fnu, shape, std::span<const std::uint8_t>(e8m0))}) {
      INFO(to_string(type) << " under " << to_string(scales.type));
      const TensorView weight = bytes_view(type, {2, 3}, codes);
      std::vector<float> expected = to_float(weight);
      for (std::size_t i = 0; i < 6; ++i) expected[i] *= f32[i / 3];
      CHECK(dequantized("compressed-tensors", "llm-compressor",
                        {{"m.weight", weight}, {"m.weight_scale", scales}}) ==
            std::map<std::string, std::vector<float>>{{"m.weight", expected}});
      // Without a scale it is refused, and so are bytes under plain scales.
      CHECK_THROWS_WITH(dequantized("compressed-tensors", "llm-compressor", {{"m.weight", weight}}),
                        contains("tensor 'm.weight': expected the scales of these codes"));
    }
  CHECK_THROWS_WITH(dequantized("compressed-tensors", "llm-compressor",
                                {{"m.weight", bytes_view(ElementType::u8, {2, 3}, codes)},
                                 {"m.weight_scale",
                                  view_of(ElementType::f32, shape, std::span<const float>(f32))}}),
                    contains("e4m3fn or e8m0fnu scales of packed codes"));
}

TEST_CASE("what is not finite is told with its reason", "[model_files]") {
  const TemporaryFolder folder("not_finite");
  fs::create_directory(folder / "in");
  const Bytes codes{0x38, 0x7f, 0x7e, 0xff, 0x00, 0x01};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto said = [&](std::array<float, 2> scales) {
    fs::remove_all(folder / "out");
    write_safetensors(
        folder / "in/model.safetensors",
        {{"m.weight", bytes_view(ElementType::e4m3fn, {2, 3}, codes)},
         {"m.weight_scale", view_of(ElementType::f32, {2, 1}, std::span<const float>(scales))}});
    write_text(folder / "in/config.json", config_of("compressed-tensors", "llm-compressor"));
    const DequantizedModel done =
        dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
    std::string text;
    for (const NonFiniteWeight& one : done.non_finite) text += one.name + ": " + describe(one);
    return text;
  };
  CHECK(said({1.0F, 1.0F}) == "m.weight: 2 of 6 values are NaN");
  CHECK(said({1.0F, nan}) == "m.weight: 4 of 6 values are NaN (1 scale of NaN)");
  CHECK(said({1000.0F, 1.0F}) == "m.weight: 2 of 6 values are NaN, 1 of 6 values are infinite");
  CHECK(said({0.0F, 1.0F}) == "m.weight: 2 of 6 values are NaN (1 scale of zero)");
}
