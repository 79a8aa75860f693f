// Which shapes and types of scales fit a stored weight, the tiles that they mean, and the folders
// of models that are read and written.

#include "fp8lab/model_files/stored_weight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/blocked_scales.hpp"
#include "fp8lab/model_files/dequantize_model.hpp"
#include "fp8lab/model_files/quantize_model.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

StoredWeight weight_of(const char* layout, StoredQuantization stored, TensorSpec codes,
                       TensorSpec scale) {
  StoredWeight weight;
  weight.codes = std::move(codes);
  weight.scale.spec = std::move(scale);
  weight.layout = &find_layout(layout);
  weight.stored = stored;
  weight.written.name = "w.weight";
  set_shapes(weight);
  return weight;
}

/// 300 x 200 codes in blocks of 128 x 64: 3 x 4 of them.
StoredWeight plain(Shape scales, ElementType type = ElementType::f32) {
  StoredQuantization stored;
  stored.row_block = 128;
  stored.k_block = 64;
  return weight_of("deepseek", stored, {"w.weight", ElementType::e4m3fn, {300, 200}},
                   {"w.weight_scale_inv", type, std::move(scales)});
}

StoredWeight experts(Shape codes, Shape scales, ElementType type = ElementType::u8) {
  return weight_of("gpt-oss",
                   {.family = LayoutFamily::gpt_oss,
                    .format = FormatId::e2m1,
                    .scales = ScaleKind::e8m0,
                    .row_block = 1,
                    .k_block = 32},
                   {"m_blocks", ElementType::u8, std::move(codes)},
                   {"m_scales", type, std::move(scales)});
}

TensorView bytes_view(ElementType type, Shape shape, const Bytes& bytes) {
  return view_of(type, std::move(shape), std::span<const std::uint8_t>(bytes));
}

/// A file of weights that each hold one byte.
void write_shard(const fs::path& path, const std::vector<std::string>& names) {
  const Bytes byte{7};
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names)
    tensors.push_back({name, bytes_view(ElementType::u8, {1}, byte)});
  write_safetensors(path, tensors);
}

/// `weight_map` is a JSON object.
void write_index(const TemporaryFolder& folder, const std::string& weight_map) {
  write_text(folder / std::string(kIndexFile),
             R"({"metadata": {"origin": "here"}, "weight_map": )" + weight_map + "}");
}

/// The config.json of a model of binary16 that a preset's weights were written for.
std::string config_of(const char* layout, const char* preset) {
  const Layout& known = find_layout(layout);
  return with_quantization(R"({"dtype": "float16", "zebra": 1})", "c", known,
                           make_scheme(known, find_preset(preset), false), {});
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
                        Case{{300}, {1, 200}}, Case{{300, 1}, {1, 200}}, Case{{3, 4}, {128, 64}}}) {
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
            contains("expected scales [1], [300], [300, 1] or [3, 4], got " + shape_text(scales)));
  }
  for (const ElementType type :
       {ElementType::f32, ElementType::bf16, ElementType::f16, ElementType::e8m0fnu})
    CHECK_NOTHROW(plain({3, 4}, type));
  for (const ElementType type : {ElementType::f64, ElementType::u8, ElementType::e4m3fn})
    CHECK_THROWS_AS(plain({3, 4}, type), Error);
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
  for (const ElementType type : {ElementType::e8m0fnu, ElementType::i8, ElementType::f32})
    CHECK_THROWS_WITH(experts({2, 5, 3, 16}, {2, 5, 3}, type), contains("u8 scales"));
}

TEST_CASE("groups have scales of their row's parts, of the kind that config.json says",
          "[model_files]") {
  const auto group = [](ScaleKind kind, TensorSpec codes, TensorSpec scale, TensorSpec upper = {}) {
    StoredWeight weight;
    const bool narrow = codes.type == ElementType::u8;
    weight.codes = std::move(codes);
    weight.scale.spec = std::move(scale);
    weight.tensor_scale = StoredTensor{std::move(upper), 0};
    weight.layout = &find_layout("modelopt");
    weight.stored = {.family = LayoutFamily::modelopt,
                     .format = narrow ? FormatId::e2m1 : FormatId::e4m3fn,
                     .scales = kind,
                     .row_block = 1,
                     .k_block = kind == ScaleKind::two_level ? 16 : 32};
    set_shapes(weight);
    return weight;
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

TEST_CASE("a model's index names each tensor once, and its shard", "[model_files]") {
  const TemporaryFolder folder("index");
  write_shard(folder / "one.safetensors", {"a", "b"});
  write_shard(folder / "two.safetensors", {"c"});
  const auto refused = [&](const std::string& map, const std::string& message) {
    write_index(folder, map);
    INFO(map);
    CHECK_THROWS_WITH(ModelDirectory(folder.path()), contains(message));
  };
  const std::string ab = R"("a": "one.safetensors", "b": "one.safetensors")";
  write_index(folder, "{" + ab + R"(, "c": "two.safetensors"})");
  for (const fs::path& path : {folder.path(), folder / std::string(kIndexFile)}) {
    const ModelDirectory model(path);
    CHECK(model.folder() == folder.path());
    CHECK(model.index_file() == kIndexFile);
    CHECK(model.index_metadata() == R"({"origin":"here"})");
    REQUIRE(model.shards().size() == 2);
    CHECK(model.shards()[1].file == "two.safetensors");
    CHECK(model.shards()[1].bytes == fs::file_size(folder / "two.safetensors"));
    REQUIRE(model.find("c") != nullptr);
    CHECK((model.find("c")->shard == 1 && model.find("c")->tensor == 0));
    CHECK(model.at(*model.find("b")).name == "b");
    CHECK(model.find("d") == nullptr);
  }
  refused("{" + ab + R"(, "c": "two.safetensors", "a": "one.safetensors"})",
          "the key 'a' appears twice");
  refused("{" + ab + R"(, "c": "one.safetensors"})",
          "'c': expected a tensor of one.safetensors, "
          "got a tensor that no shard holds");
  refused(R"({"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"})",
          "'b': expected a tensor of two.safetensors, got one of one.safetensors");
  refused(R"({"a": "one.safetensors", "c": "two.safetensors"})", "one.safetensors: 'b': expected");
  refused("{}", "a weight_map with tensors");
  refused("[]", "an object with weight_map");
  refused(R"({"a": 1})", "weight_map['a']: expected the name of a file, got 1");
  for (const char* name : {"", ".", "..", "../index/one.safetensors", "/one.safetensors",
                           "sub/one.safetensors", "one.bin", "one.safetensors/"})
    refused(fmt::format(R"({{"a": "{}"}})", name), "a .safetensors file in the same folder");
  write_shard(folder / "two.safetensors", {"c", "b"});
  refused("{" + ab + R"(, "c": "two.safetensors"})",
          "'b': expected a tensor that no other shard holds, got one that one.safetensors holds");
}

TEST_CASE("a file that looks like a part of the model is not passed over", "[model_files]") {
  const auto asked = [](const std::string& shard, const std::string& other, bool index) {
    const TemporaryFolder folder("strays");
    write_shard(folder / shard, {"a"});
    if (index) write_index(folder, fmt::format(R"({{"a": "{}"}})", shard));
    write_shard(folder / other, {"b"});
    try {
      return ModelDirectory(folder.path()).shards().at(0).file == shard ? "read" : "another file";
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool named = message.starts_with((folder / other).string() + ": expected");
      return named ? "refused" : "refused otherwise";
    }
  };
  const std::string first = "model-00001-of-00001.safetensors";
  for (const char* other : {"model-00002-of-00002.safetensors", "model-00002-of-00001.safetensors",
                            "model-1-of-9.safetensors", "model.safetensors"}) {
    INFO(other);
    CHECK(asked(first, other, true) == std::string("refused"));
    CHECK(asked("w-00001-of-00001.safetensors", other, true) == std::string("refused"));
  }
  CHECK(asked("w-00001-of-00001.safetensors", "w-00002-of-00002.safetensors", true) ==
        std::string("refused"));
  for (const char* other :
       {"w-00002-of-00002.safetensors", "adapter.safetensors", "mod-00002-of-00002.safetensors",
        "-of-00002.safetensors", "x-model-00002-of-00002.safetensors", "model2.safetensors"}) {
    INFO(other);
    CHECK(asked(first, other, true) == std::string("read"));
    CHECK(asked("model.safetensors", other, false) == std::string("read"));
  }
  CHECK(asked("model.safetensors", first, false) == std::string("refused"));
  CHECK(asked("a.safetensors", "b.safetensors", false) == std::string("refused otherwise"));
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
  nlohmann::json map;
  for (const char* name : {"a.weight", "a.input_scale", "norm.weight"}) map[name] = one;
  for (const char* name : {"a.weight_scale", "old.weight"}) map[name] = two;
  write_text(folder / (fmt::format("in/{}", kIndexFile)),
             nlohmann::json{{"weight_map", map}}.dump());
  write_text(folder / "in/config.json", config_of("compressed-tensors", "llm-compressor"));
  for (const char* other : {"in/tokenizer.json", "in/hf_quant_config.json", "in/old.bin"})
    write_text(folder / other, other);

  const DequantizedModel done = dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
  CHECK(done.converted == std::vector<TensorSpec>{{"a.weight", ElementType::f16, {2, 3}}});
  CHECK(done.without_scale == std::vector<std::string>{"old.weight"});
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
                     {"x.weight_scale", number(four, {})}}) ==
        Model{{"m.weight", {0.5F}}, {"x.weight_scale", {4.0F}}});
  CHECK_THROWS_WITH(
      dequantized("deepseek", "deepgemm", {{"m.weight_scale_inv", number(four, {1})}}),
      contains("expected weights in layout hf-fp8, got none"));

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

TEST_CASE("a rewrite that was interrupted goes on after its last whole shard", "[model_files]") {
  const TemporaryFolder folder("rewrite");
  const fs::path in = folder / "in";
  const fs::path out = folder / "out";
  fs::create_directory(in);
  write_shard(in / "one.safetensors", {"a", "b"});
  write_shard(in / "two.safetensors", {"c"});
  write_text(in / kIndexFile, R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                                                 "c": "two.safetensors"}})");
  const ModelDirectory source(in);
  ModelRewrite rewrite;
  rewrite.texts["config.json"] = "{}";
  rewrite.settings["command"] = "copy";
  for (std::size_t s = 0; s < 2; ++s) {
    ShardTask task{s, {}, {}};
    for (const TensorSpec& tensor : source.shards()[s].tensors)
      task.tasks.push_back(copy_task(tensor));
    rewrite.shards.push_back(std::move(task));
  }
  ModelRewrite failing = rewrite;
  failing.shards[1].tasks[0].work = [](const SafetensorsFile&, const TensorView&,
                                       SafetensorsWriter&) { throw Error("no more"); };
  CHECK_THROWS_WITH(rewrite_model(source, failing, out), contains("two.safetensors: 'c': no more"));
  CHECK(fs::exists(out / "one.safetensors"));
  for (const char* name : {"two.safetensors", "config.json", kIndexFile.data()})
    CHECK_FALSE(fs::exists(out / name));

  ModelRewrite other = rewrite;
  other.settings["command"] = "another";
  CHECK_THROWS_WITH(rewrite_model(source, other, out),
                    contains("an earlier part of the same run, with command"));
  other = rewrite;
  other.texts["config.json"] = "[]";
  CHECK_THROWS_WITH(rewrite_model(source, other, out), contains("with text of config.json"));

  std::vector<std::string> seen;
  const auto progress = [&](const RewriteProgress& p) {
    seen.push_back(fmt::format("{} {}/{}", p.shard, p.done, p.total));
  };
  const RewriteSummary done = rewrite_model(source, rewrite, out, progress);
  CHECK(seen == std::vector<std::string>{"two.safetensors 2/3"});
  CHECK(done.resumed == 1);
  CHECK(done.bytes_read == 3);
  CHECK(done.bytes_written ==
        fs::file_size(in / "one.safetensors") + fs::file_size(in / "two.safetensors"));
  for (const char* name : {"one.safetensors", "two.safetensors"})
    CHECK(read_file(out / name) == read_file(in / name));
  CHECK(ModelDirectory(out).shards().size() == 2);
  CHECK_THROWS_WITH(rewrite_model(source, rewrite, out), contains("a new or empty folder"));

  // Of a shard that lost its end the name says nothing.
  fs::remove_all(out);
  CHECK_THROWS_AS(rewrite_model(source, failing, out), Error);
  fs::resize_file(out / "one.safetensors", fs::file_size(out / "one.safetensors") - 1);
  seen.clear();
  CHECK(rewrite_model(source, rewrite, out, progress).resumed == 0);
  CHECK(seen == std::vector<std::string>{"one.safetensors 0/3", "one.safetensors 1/3",
                                         "two.safetensors 2/3"});
  CHECK(read_file(out / "one.safetensors") == read_file(in / "one.safetensors"));
}

TEST_CASE("what is larger than a part is copied whole, and weights of other forms are not",
          "[model_files]") {
  // Parts have 8 MiB.
  const TemporaryFolder folder("copies");
  const fs::path in = folder / "in";
  fs::create_directory(in);
  Bytes codes((std::size_t{17} << 20) + 5);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i % 251 + (i >> 22));
  write_safetensors(
      in / "model.safetensors",
      {{"x", bytes_view(ElementType::u8, {static_cast<std::int64_t>(codes.size())}, codes)}});
  const std::string text(reinterpret_cast<const char*>(codes.data()), codes.size());
  const std::vector<std::string> others{"a.bin",     "a.ckpt", "a.gguf", "a.h5",  "a.index.json",
                                        "a.msgpack", "a.onnx", "a.pt",   "a.pth", "a.safetensors"};
  for (const std::string& name : others) write_text(in / name, name);
  const std::vector<std::string> copied{"a.bin.txt", "a.index.jsonl", "a.json",
                                        "big.dat",   "pth",           "tokenizer.model"};
  for (const std::string& name : copied) write_text(in / name, name == "big.dat" ? text : name);
  for (const char* hidden : {".hidden", ".git"}) write_text(in / hidden, hidden);
  for (const char* own : {"config.json", "dropped.json"}) write_text(in / own, own);
  fs::create_directory(in / "z.folder");
  write_text(in / "z.folder/file", "");

  const ModelDirectory source(in);
  ModelRewrite rewrite;
  rewrite.texts["config.json"] = "{}";
  rewrite.dropped = {"dropped.json"};
  rewrite.shards.push_back({0, {}, {copy_task(source.shards()[0].tensors[0])}});
  const RewriteSummary done = rewrite_model(source, rewrite, folder / "out");
  CHECK(done.copied == copied);
  std::vector<std::string> left = others;
  left.emplace_back("z.folder");
  CHECK(done.left == left);
  CHECK((read_file(folder / "out/model.safetensors") == read_file(in / "model.safetensors")));
  for (const std::string& name : copied)
    CHECK((read_file(folder / ("out/" + name)) == (name == "big.dat" ? text : name)));
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "out"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::vector<std::string> expected = copied;
  expected.insert(expected.end(), {"config.json", "model.safetensors"});
  std::sort(expected.begin(), expected.end());
  CHECK(names == expected);
  CHECK(read_file(folder / "out/config.json") == "{}");
}

TEST_CASE("what killed writers left in a target is no file of it", "[model_files]") {
  const TemporaryFolder folder("leftovers");
  const fs::path in = folder / "in";
  fs::create_directory(in);
  write_shard(in / "model.safetensors", {"a"});
  const ModelDirectory source(in);
  ModelRewrite rewrite;
  rewrite.shards.push_back({0, {}, {copy_task(source.shards()[0].tensors[0])}});
  const auto with = [&](const std::vector<std::string>& names) {
    const fs::path out = folder / "out";
    fs::remove_all(out);
    fs::create_directory(out);
    for (const std::string& name : names) write_text(out / name, name);
    try {
      rewrite_model(source, rewrite, out);
    } catch (const Error& error) {
      return std::string(error.what()).substr(out.string().size());
    }
    std::string left;
    for (const fs::directory_entry& entry : fs::directory_iterator(out))
      left += " " + entry.path().filename().string();
    return left;
  };
  const std::string good = " model.safetensors";
  CHECK(with({}) == good);
  CHECK(with({".model.safetensors.0123abcd.partial", ".x.partial"}) == good);
  for (const char* other : {"x.partial", ".hidden", "x", ".x.partial.txt"})
    CHECK(with({".x.partial", other}) == ": expected a new or empty folder, got one with files");
}

TEST_CASE("an interrupted conversion goes on with the same requests alone", "[model_files]") {
  const TemporaryFolder folder("requests");
  const fs::path in = folder / "in";
  const fs::path out = folder / "out";
  fs::create_directory(in);
  const std::vector<std::uint16_t> ones(128 * 128, 0x3f80);
  const TensorView matrix =
      view_of(ElementType::bf16, {128, 128}, std::span<const std::uint16_t>(ones));
  const auto write_source = [&] {
    write_safetensors(in / "model.safetensors", {{"a.weight", matrix}, {"b.weight", matrix}});
    write_text(in / "config.json", R"({"dtype": "bfloat16"})");
  };
  write_source();
  write_text(folder / "t.csv", "a,1\nb,2\n");
  write_text(folder / "u.csv", "a,1\nb,3\n");
  QuantizeModelOptions options{.preset = "inference-static",
                               .layout = "compressed-tensors",
                               .rule = "all",
                               .calibration = {folder / "t.csv"}};
  int tensors = 0;
  const auto stop = [&](const RewriteProgress&) {
    if (++tensors == 2) throw Error("enough");
  };
  const auto message = [&](const QuantizeModelOptions& asked) {
    return test::message_of([&] { quantize_model(ModelDirectory(in), asked, out); });
  };
  CHECK_THROWS_WITH(quantize_model(ModelDirectory(in), options, out, stop), "enough");
  const std::string journal = (out / ".fp8lab-rewrite.json").string();
  REQUIRE(fs::exists(journal));
  const auto expected = [&](const std::string& key, const std::string& want,
                            const std::string& got) {
    return fmt::format("{}: expected an earlier part of the same run, with {} {}, got {}", journal,
                       key, want, got);
  };
  QuantizeModelOptions other = options;
  other.rule = "linear";
  CHECK(message(other) == expected("rule", "\"linear\"", "\"all\""));
  other = options;
  other.calibration = {folder / "u.csv"};
  CHECK_THAT(message(other), contains("with input scales \""));
  other = options;
  other.preset = "llm-compressor-bf16";
  other.calibration.clear();
  CHECK_THAT(message(other), contains("an earlier part of the same run, with "));
  CHECK_THROWS_WITH(dequantize_model(ModelDirectory(in), {}, out), contains("not quantized"));
  // Another source: of the same name and bytes, or of the same bytes elsewhere.
  const auto written = fs::last_write_time(in / "model.safetensors");
  fs::last_write_time(in / "model.safetensors", written + std::chrono::seconds(2));
  CHECK_THAT(
      message(options),
      contains(fmt::format(R"(with shards [{{"file":"model.safetensors","bytes":{},"modified":)",
                           fs::file_size(in / "model.safetensors"))));
  fs::last_write_time(in / "model.safetensors", written);
  fs::copy(in, folder / "moved", fs::copy_options::recursive);
  CHECK_THROWS_WITH(quantize_model(ModelDirectory(folder / "moved"), options, out),
                    contains("with source \"" + fs::canonical(folder / "moved").string()));
  CHECK(message(options) == "accepted");
  CHECK_FALSE(fs::exists(journal));
  fs::remove_all(out);
  fs::create_directory(out);
  write_text(journal, "[]");
  CHECK(message(options) ==
        journal + ": expected a JSON object that an earlier run wrote, got something else");
  write_text(journal, "{}");
  CHECK(message(options) == expected("version", "1", "none"));
  // The sizes of shards are part of a run, and so are layout and type of the way back.
  fs::remove_all(out);
  CHECK(message(options) == "accepted");
  tensors = 0;
  CHECK_THROWS_WITH(dequantize_model(ModelDirectory(out), {.layout = "", .type = ElementType::f16},
                                     folder / "back", stop),
                    "enough");
  CHECK_THROWS_WITH(dequantize_model(ModelDirectory(out), {.layout = "", .type = ElementType::f32},
                                     folder / "back"),
                    contains("with dtype \"f32\", got \"f16\""));
  CHECK_NOTHROW(dequantize_model(ModelDirectory(out), {.layout = "", .type = ElementType::f16},
                                 folder / "back"));
}

TEST_CASE("a shard of nothing but scales is not written, and two outputs of one name are refused",
          "[model_files]") {
  const TemporaryFolder folder("scales_alone");
  fs::create_directory(folder / "in");
  const Bytes codes{0x38, 0x40, 0x44};
  const std::vector<float> scale{2.0F};
  const auto number = view_of(ElementType::f32, {1}, std::span<const float>(scale));
  write_safetensors(folder / "in/one.safetensors",
                    {{"a.weight", bytes_view(ElementType::e4m3fn, {1, 3}, codes)}});
  write_safetensors(folder / "in/two.safetensors",
                    {{"a.weight_scale", number}, {"a.input_scale", number}});
  write_text(folder / (fmt::format("in/{}", kIndexFile)),
             R"({"weight_map": {"a.weight": "one.safetensors", "a.weight_scale": "two.safetensors",
                 "a.input_scale": "two.safetensors"}})");
  write_text(folder / "in/config.json", config_of("compressed-tensors", "llm-compressor"));
  std::vector<std::string> seen;
  const DequantizedModel done =
      dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out",
                       [&](const RewriteProgress& p) { seen.emplace_back(p.shard); });
  CHECK(seen == std::vector<std::string>{"one.safetensors"});
  CHECK_FALSE(fs::exists(folder / "out/two.safetensors"));
  CHECK(done.files.bytes_written == fs::file_size(folder / "out/one.safetensors"));
  CHECK(nlohmann::json::parse(read_file(folder / fmt::format("out/{}", kIndexFile))) ==
        nlohmann::json{{"metadata", {{"total_size", 6}}},
                       {"weight_map", {{"a.weight", "one.safetensors"}}}});
  CHECK(ModelDirectory(folder / "out").shards().size() == 1);

  const ModelDirectory source(folder / "in");
  ModelRewrite rewrite;
  TensorTask first = copy_task(source.shards()[0].tensors[0]);
  TensorTask second = copy_task(source.shards()[1].tensors[0]);
  const std::string other = second.source.name;
  second.outputs = first.outputs;
  rewrite.shards.push_back({0, {}, {first}});
  rewrite.shards.push_back({1, {}, {second}});
  CHECK_THROWS_WITH(
      rewrite_model(source, rewrite, folder / "twice"),
      fmt::format("tensor 'a.weight' of '{}': expected a name that no other tensor has, "
                  "got that of 'a.weight'",
                  other));
  CHECK_FALSE(fs::exists(folder / "twice"));
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
      // Without a scale it stays, and so do bytes.
      CHECK_THROWS_WITH(dequantized("compressed-tensors", "llm-compressor", {{"m.weight", weight}}),
                        contains("expected weights in layout compressed-tensors, got none"));
    }
  CHECK_THROWS_WITH(dequantized("compressed-tensors", "llm-compressor",
                                {{"m.weight", bytes_view(ElementType::u8, {2, 3}, codes)},
                                 {"m.weight_scale",
                                  view_of(ElementType::f32, shape, std::span<const float>(f32))}}),
                    contains("got none"));
}

TEST_CASE("what torchao's reader takes for its own is no metadata of the way back",
          "[model_files]") {
  const TemporaryFolder folder("torchao_metadata");
  fs::create_directory(folder / "in");
  const Bytes codes{0x38, 0x40, 0x44};
  const std::vector<float> scale{2.0F};
  const std::map<std::string, std::string> metadata{{"format", "pt"},
                                                    {"tensor_names", "[\"m.weight\"]"},
                                                    {"m.weight", R"({"_type": "Float8Tensor"})"},
                                                    {"own", R"({"type": "x"})"}};
  const auto back = [&](const char* layout, const char* preset, const char* part) {
    write_safetensors(
        folder / "in/model.safetensors",
        {{fmt::format("m.{}", std::string_view(layout) == "torchao" ? "_weight_qdata" : "weight"),
          bytes_view(ElementType::e4m3fn, {1, 3}, codes)},
         {fmt::format("m.{}", part),
          view_of(ElementType::f32, {1, 1}, std::span<const float>(scale))}},
        metadata);
    write_text(folder / "in/config.json", config_of(layout, preset));
    fs::remove_all(folder / "out");
    dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out");
    const SafetensorsFile file(folder / "out/model.safetensors");
    CHECK(to_float(file.find("m.weight")) == std::vector<float>{2.0F, 4.0F, 6.0F});
    return file.metadata();
  };
  CHECK(back("torchao", "torchao-inference", "_weight_scale") ==
        std::map<std::string, std::string>{{"format", "pt"}, {"own", R"({"type": "x"})"}});
  CHECK(back("compressed-tensors", "llm-compressor", "weight_scale") == metadata);
}

TEST_CASE("a model is a folder, its index or a file, and stays what it was", "[model_files]") {
  const TemporaryFolder folder("places");
  write_shard(folder / "model.safetensors", {"a", "b"});
  fs::create_directory(folder / "not_a_file.safetensors");
  const ModelDirectory model(folder.path());
  CHECK(model.shards().at(0).file == "model.safetensors");
  CHECK(model.index_file().empty());
  CHECK(ModelDirectory(folder / "model.safetensors").folder() == folder.path());
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const ModelDirectory here("model.safetensors");
  CHECK(here.folder() == ".");
  CHECK(here.shards().at(0).tensors.size() == 2);
  fs::current_path(before);

  // An index of another name is one, if it is asked for.
  write_text(folder / "other.safetensors.index.json",
             R"({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}})");
  CHECK(ModelDirectory(folder / "other.safetensors.index.json").index_file() ==
        "other.safetensors.index.json");
  CHECK(ModelDirectory(folder.path()).index_file().empty());
  CHECK_THROWS_WITH(
      ModelDirectory(folder / "other.json"),
      (folder / "other.json").string() +
          ": expected a model's folder, its index or a .safetensors file, got something "
          "else");
  CHECK_NOTHROW(model.open(0));
  for (const std::vector<std::string>& changed :
       {std::vector<std::string>{"a"}, {"a", "c"}, {"a", "b", "c"}}) {
    write_shard(folder / "model.safetensors", changed);
    CHECK_THROWS_WITH(model.open(0), (folder / "model.safetensors").string() +
                                         ": expected the same tensors as before, got others");
  }
  const Bytes two{1, 2};
  write_safetensors(folder / "model.safetensors", {{"a", bytes_view(ElementType::u8, {2}, two)},
                                                   {"b", bytes_view(ElementType::u8, {1}, {7})}});
  CHECK_THROWS_WITH(model.open(0), contains("the same tensors as before"));
  write_safetensors(folder / "model.safetensors", {{"a", bytes_view(ElementType::i8, {1}, {7})},
                                                   {"b", bytes_view(ElementType::u8, {1}, {7})}});
  CHECK_THROWS_WITH(model.open(0), contains("the same tensors as before"));

  const TemporaryFolder others("places_others");
  const std::string where = others.path().string();
  const std::string wanted =
      where +
      ": expected model.safetensors.index.json, model.safetensors or one .safetensors file, got ";
  fs::create_directory(others / "folder.safetensors");
  CHECK_THROWS_WITH(ModelDirectory(others.path()), wanted + "none");
  write_shard(others / "x.safetensors", {"a"});
  CHECK(ModelDirectory(others.path()).shards().at(0).file == "x.safetensors");
  write_shard(others / "y.safetensors", {"a"});
  CHECK_THROWS_WITH(ModelDirectory(others.path()), wanted + "2 of them, and no index");
  write_shard(others / "model.safetensors", {"a"});
  CHECK(ModelDirectory(others.path()).shards().at(0).file == "model.safetensors");
  write_shard(others / "model-00001-of-00002.safetensors", {"a"});
  CHECK_THROWS_WITH(ModelDirectory(others.path()),
                    (others / "model-00001-of-00002.safetensors").string() +
                        ": expected an index that lists the several files of weights, got none");
}
