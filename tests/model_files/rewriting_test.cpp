// What a rewrite of a model leaves where it is stopped, and what it copies.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model_files/models.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/quantize_model.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;

}  // namespace

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
