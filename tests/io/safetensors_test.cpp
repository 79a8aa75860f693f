#include "fp8lab/io/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

struct Sample {
  std::vector<std::uint8_t> codes{0x38, 0xc0, 0x7f};
  std::vector<std::uint16_t> words{0x3f80, 0xc000};
  std::vector<float> values{1.5F};

  [[nodiscard]] std::vector<NamedTensor> tensors() const {
    return {{"codes", view_of(ElementType::e4m3fn, {3}, std::span<const std::uint8_t>(codes))},
            {"words", view_of(ElementType::bf16, {1, 2}, std::span<const std::uint16_t>(words))},
            {"values", view_of(ElementType::f32, {1}, std::span<const float>(values))},
            {"empty", view_of(ElementType::e5m2, {0, 7}, std::span<const std::uint8_t>())},
            {"e8m0", view_of(ElementType::e8m0fnu, {3}, std::span<const std::uint8_t>(codes))}};
  }
};

}  // namespace

TEST_CASE("safetensors: a round trip keeps every tensor", "[io]") {
  const TemporaryFolder folder("st_round_trip");
  const Sample sample;
  write_safetensors(folder / "a.safetensors", sample.tensors(), {{"recipe", "te-current"}});
  const SafetensorsFile file(folder / "a.safetensors");
  REQUIRE(file.tensors().size() == 5);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"recipe", "te-current"}});
  for (const NamedTensor& expected : sample.tensors()) {
    const TensorView& got = file.find(expected.name);
    INFO(expected.name);
    CHECK(got.type == expected.tensor.type);
    CHECK(got.shape == expected.tensor.shape);
    CHECK(std::equal(got.bytes.begin(), got.bytes.end(), expected.tensor.bytes.begin(),
                     expected.tensor.bytes.end()));
    if (!got.bytes.empty())
      CHECK(reinterpret_cast<std::uintptr_t>(got.bytes.data()) % element_bytes(got.type) == 0);
  }
  CHECK(to_float(file.find("words")) == std::vector<float>{1.0F, -2.0F});
  CHECK_THROWS_WITH(file.find("nothing"), contains("'nothing'") && contains("codes"));
  CHECK(folder.files() == 1);
}

TEST_CASE("safetensors: tensors without elements are in the order of their names", "[io]") {
  std::string header;
  for (int i = 0; i < 60; ++i)  // 00, 07, 14 ... 56, 03 ...
    header += fmt::format(R"({}"{:02}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "{" : ",", 7 * i % 60);
  const TemporaryFolder folder("st_empty");
  write_text(folder / "a.safetensors", safetensors(header + "}", ""));
  const SafetensorsFile file(folder / "a.safetensors");
  std::vector<std::string> names;
  for (const NamedTensor& item : file.tensors()) names.push_back(item.name);
  CHECK(names.size() == 60);
  CHECK(std::ranges::is_sorted(names));
}

TEST_CASE("safetensors: of many names a message has the first ones", "[io]") {
  const TemporaryFolder folder("st_names");
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 300; ++i)
    tensors.push_back({"tensor" + std::to_string(i),
                       view_of(ElementType::e5m2, {0}, std::span<const std::uint8_t>())});
  write_safetensors(folder / "a.safetensors", tensors);
  const SafetensorsFile file(folder / "a.safetensors");
  CHECK_THROWS_WITH(file.find("x"), contains("one of tensor") && contains(", ..., got 'x'"));
}

TEST_CASE("safetensors: a message lists names up to 200 letters", "[io]") {
  const TemporaryFolder folder("st_some_names");
  for (const std::size_t letters : {199U, 200U, 201U})  // of the first twenty
    for (const std::size_t more : {0U, 1U, 3U}) {
      std::vector<std::string> names;
      for (int i = 0; i < 19; ++i) names.push_back(fmt::format("tensor{}", 10 + i));
      std::string expected = fmt::format("{}", fmt::join(names, ", "));
      names.emplace_back(letters - expected.size() - 2, 'u');
      expected += ", " + names.back();
      REQUIRE(expected.size() == letters);
      for (std::size_t i = 0; i < more; ++i) names.push_back(fmt::format("v{}", i));
      if (more > 0 && letters >= 200) expected += ", ...";
      if (more > 0 && letters < 200) expected += more == 1 ? ", v0" : ", v0, ...";
      const std::array<std::uint8_t, 1> code{0x3c};  // the file's order is that of the data
      std::vector<NamedTensor> tensors;
      for (const std::string& name : names)
        tensors.push_back(
            {name, view_of(ElementType::e5m2, {1}, std::span<const std::uint8_t>(code))});
      write_safetensors(folder / "a.safetensors", tensors);
      CHECK_THROWS_WITH(SafetensorsFile(folder / "a.safetensors").find("x"),
                        contains("expected one of " + expected + ", got 'x'"));
    }
}

TEST_CASE("safetensors: what cannot be written is refused", "[io]") {
  const TemporaryFolder folder("st_refused");
  const Sample sample;
  auto twice = sample.tensors();
  twice[1].name = "codes";
  CHECK_THROWS_WITH(write_safetensors(folder / "a", twice), contains("a unique name"));
  auto reserved = sample.tensors();
  reserved[0].name = "__metadata__";
  CHECK_THROWS_AS(write_safetensors(folder / "a", reserved), Error);
  auto fortran = sample.tensors();
  fortran[1].tensor.fortran_order = true;
  CHECK_THROWS_WITH(write_safetensors(folder / "a", fortran), contains("row-major"));
  auto wrong = sample.tensors();
  wrong[0].tensor.shape = {4};
  CHECK_THROWS_WITH(write_safetensors(folder / "a", wrong), contains("4 bytes"));
  CHECK(folder.files() == 0);
}

TEST_CASE("safetensors: hostile headers say what is wrong", "[io]") {
  const TemporaryFolder folder("st_bad");
  const auto message = [&](const std::string& text) -> std::string {
    write_text(folder / "bad.safetensors", text);
    return test::message_of([&] { SafetensorsFile file(folder / "bad.safetensors"); });
  };
  const auto one = [&](const std::string& entry, std::size_t bytes) {
    return message(safetensors("{\"w\":" + entry + "}", std::string(bytes, '\0')));
  };
  const std::string tail = ",\"shape\":[2],\"data_offsets\":[0,8]}";
  CHECK(one("{\"dtype\":\"F32\"" + tail, 8) == "accepted");
  CHECK_THAT(message(""), contains("bad.safetensors") && contains("no header length"));
  CHECK_THAT(message(std::string(8, '\xff')), contains("at most 100000000"));
  CHECK_THAT(message(std::string("\x10\0\0\0\0\0\0\0{}", 10)), contains("truncated"));
  CHECK_THAT(message(safetensors("[]", "")), contains("does not start with '{'"));
  CHECK_THAT(message(safetensors("", "")), contains("does not start with '{'"));
  CHECK_THAT(message(safetensors("{\"w\":", "")), contains("not JSON"));
  CHECK_THAT(message(safetensors("{}", "x")), contains("belong to no tensor"));
  CHECK_THAT(message(safetensors("{\"w\":" + std::string(5000, '['), "")), contains("too deeply"));
  CHECK_THAT(message(safetensors(
                 "{\"w\":{\"dtype\":\"F32\"" + tail + ",\"w\":{\"dtype\":\"F32\"" + tail + "}",
                 std::string(8, '\0'))),
             contains("'w' appears twice"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"dtype\":\"F32\"" + tail, 8), contains("appears twice"));
  CHECK_THAT(one("{\"dtype\":\"F5\"" + tail, 8), contains("unknown dtype 'F5'"));
  CHECK_THAT(one("{\"dtype\":\"F4\"" + tail, 8), contains("expected 2 elements of 4 bits"));
  CHECK_THAT(one("{\"dtype\":4" + tail, 8), contains("dtype: expected a string"));
  CHECK_THAT(one("{\"dtype\":\"F16\"" + tail, 8), contains("expected 2 elements of 2 bytes"));
  CHECK_THAT(one("{\"dtype\":\"F32\"" + tail, 7), contains("outside the 7 bytes"));
  CHECK_THAT(one("{\"dtype\":\"F32\"" + tail, 12), contains("4 bytes of data belong to no tensor"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", 8),
             contains("outside"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-1,8]}", 8),
             contains("data_offsets: expected integers"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}", 8),
             contains("shape: expected integers"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}", 8),
             contains("at most 2^62"));
  CHECK_THAT(one("{\"dtype\":\"F32\",\"shape\":[2]}", 8), contains("expected exactly"));
  const std::string a = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},";
  const std::string data(8, '\0');
  CHECK_THAT(message(safetensors(
                 a + "\"b\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[2,8]}}", data)),
             contains("'b'") && contains("overlaps"));
  CHECK_THAT(message(safetensors(
                 a + "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[5,8]}}", data)),
             contains("'b'") && contains("hole"));
  CHECK_THAT(message(safetensors("{\"__metadata__\":{\"a\":1}}", "")),
             contains("object of strings"));
}

TEST_CASE("safetensors: a name that a file does not hold is refused with those that it does",
          "[io]") {
  const TemporaryFolder folder("st_names");
  const auto asked = [&](const std::string& header) {
    write_text(folder / "n.safetensors", safetensors(header, std::string(2, '\0')));
    const SafetensorsFile file(folder / "n.safetensors");
    return test::message_of([&] { (void)file.find("x"); }, "found");
  };
  const std::string a = "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  const std::string b = "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}";
  CHECK_THAT(asked("{" + a + "," + b + "}"), contains("expected one of a, b, got 'x'"));
  write_text(folder / "none.safetensors", safetensors("{}", ""));
  CHECK_THROWS_WITH(SafetensorsFile(folder / "none.safetensors").find("x"),
                    contains("a name (the file holds none)"));
}

TEST_CASE("safetensors: data at any alignment is read", "[io]") {
  const TemporaryFolder folder("st_unaligned");
  const std::string header =
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}";
  write_text(folder / "u.safetensors", safetensors(header, std::string("\x07\x00\x00\x80\x3f", 5)));
  const SafetensorsFile file(folder / "u.safetensors");
  CHECK(to_float(file.find("b")) == std::vector<float>{1.0F});
}

TEST_CASE("safetensors: no truncated or mutated file is read past its end", "[io]") {
  const TemporaryFolder folder("st_fuzz");
  write_safetensors(folder / "ok.safetensors", Sample().tensors(), {{"k", "v"}});
  const std::string good = read_text(folder / "ok.safetensors");
  for (std::size_t length = 0; length < good.size(); ++length) {
    write_text(folder / "cut.safetensors", good.substr(0, length));
    INFO("cut to " << length << " of " << good.size() << " bytes");
    CHECK_THROWS_AS(SafetensorsFile(folder / "cut.safetensors"), Error);
  }
  const RandomStream random(1, "st_fuzz");
  int rejected = 0;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    std::string text = good;
    for (std::uint64_t change = 0; change < 1 + trial % 3; ++change)
      text[random.below(8 * trial + 2 * change, good.size())] =
          static_cast<char>(random.below(8 * trial + 2 * change + 1, 256));
    write_text(folder / "mutated.safetensors", text);
    try {
      const SafetensorsFile file(folder / "mutated.safetensors");
      for (const NamedTensor& item : file.tensors()) (void)to_float(item.tensor);
    } catch (const Error&) {
      ++rejected;
    }
  }
  CHECK(rejected > 1000);
}

TEST_CASE("safetensors: written part by part is what is written at once", "[io]") {
  const TemporaryFolder folder("st_parts");
  const Sample sample;
  const std::vector<NamedTensor> tensors = sample.tensors();
  const std::map<std::string, std::string> metadata{{"format", "pt"}};
  write_safetensors(folder / "whole.safetensors", tensors, metadata);
  std::vector<TensorSpec> specs;
  for (const NamedTensor& item : tensors)
    specs.push_back({item.name, item.tensor.type, item.tensor.shape});
  SafetensorsWriter writer(folder / "parts.safetensors", specs, metadata);
  for (auto item = tensors.rbegin(); item != tensors.rend(); ++item)
    for (std::size_t at = item->tensor.bytes.size(); at-- > 0;)
      writer.write(item->name, at, item->tensor.bytes.subspan(at, 1));
  writer.commit();
  const std::string whole = read_text(folder / "whole.safetensors");
  CHECK(whole == read_text(folder / "parts.safetensors"));
  CHECK(whole.size() == writer.file_bytes());
  CHECK(whole.size() == safetensors_bytes(specs, metadata));
}

TEST_CASE("safetensors: a file that is not written in full does not come to be", "[io]") {
  const TemporaryFolder folder("st_missing");
  const std::array<std::byte, 4> bytes{};
  {
    SafetensorsWriter writer(folder / "x.safetensors", {{"x", ElementType::f32, {1}}});
    CHECK_THROWS_WITH(writer.commit(), contains("4 fewer"));
    CHECK_THROWS_WITH(writer.write("y", 0, bytes), contains("y"));
    CHECK_THROWS_WITH(writer.write("x", 1, bytes), contains("at most 4 bytes"));
  }
  CHECK(folder.files() == 0);
  const auto twice = [&] {
    const SafetensorsWriter writer(folder / "x.safetensors",
                                   {{"x", ElementType::f32, {1}}, {"x", ElementType::f32, {1}}});
  };
  CHECK_THROWS_AS(twice(), Error);
  CHECK(folder.files() == 0);
}

TEST_CASE("safetensors: tensors of no bytes stand at any place between others", "[io]") {
  const TemporaryFolder folder("st_empty");
  const auto entry = [](const std::string& name, int count, int begin) {
    return fmt::format("\"{}\":{{\"dtype\":\"U8\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name,
                       count, begin, begin + count);
  };
  const auto names = [&](const std::string& header) {
    std::string text;
    const std::string said = test::message_of(
        [&] {
          write_text(folder / "e.safetensors", safetensors("{" + header + "}", "1234567"));
          const SafetensorsFile file(folder / "e.safetensors");
          for (const NamedTensor& one : file.tensors())
            text += fmt::format("{}:{} ", one.name, one.tensor.bytes.size());
        },
        "");
    return said.empty() ? text : said.substr(said.find(": ") + 2);
  };
  const std::string all = entry("b", 4, 0) + "," + entry("d", 3, 4);
  CHECK(names(all) == "b:4 d:3 ");
  // Whatever their names, those of no bytes come first where others begin.
  for (const char* name : {"a", "c", "z"}) {
    CHECK(names(all + "," + entry(name, 0, 0)) == fmt::format("{}:0 b:4 d:3 ", name));
    CHECK(names(all + "," + entry(name, 0, 4)) == fmt::format("b:4 {}:0 d:3 ", name));
    CHECK(names(all + "," + entry(name, 0, 7)) == fmt::format("b:4 d:3 {}:0 ", name));
    CHECK(names(all + "," + entry(name, 0, 5)) ==
          fmt::format("'{}': overlaps the tensor before it", name));
  }
  CHECK(names(all + "," + entry("z", 0, 0) + "," + entry("a", 0, 0)) == "a:0 z:0 b:4 d:3 ");
  // A header has three levels, and no more.
  for (const auto& [shape, said] :
       {std::pair{"[[7]]", "header: nested too deeply: at most 3 objects and lists in each other"},
        {"[{}]", "header: nested too deeply: at most 3 objects and lists in each other"},
        {"{}", "'w': shape: expected a list of integers"},
        {"[7]", "w:7 "}})
    CHECK(names(fmt::format("\"w\":{{\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,7]}}",
                            shape)) == said);
}
