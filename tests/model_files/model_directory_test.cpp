// Which files and tensors are a model.

#include <fmt/format.h>

#include <string>
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

/// `weight_map` is a JSON object.
void write_index(const TemporaryFolder& folder, const std::string& weight_map) {
  write_text(folder / std::string(kIndexFile),
             R"({"metadata": {"origin": "here"}, "weight_map": )" + weight_map + "}");
}

}  // namespace

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
