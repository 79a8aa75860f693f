// Files at both sides of each limit.

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/json_keys.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

/// Why a file with these bytes is no tensor.
std::string message_of(const TemporaryFolder& folder, const std::string& name,
                       std::optional<ElementType> dtype = std::nullopt) {
  try {
    (void)load_operand((folder / name).string(), dtype);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("safetensors: a file shorter than its length says so", "[io]") {
  const TemporaryFolder folder("short");
  std::string whole(8, '\0');
  whole[0] = 2;
  whole += "{}";
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    write_text(folder / "x.safetensors", whole.substr(0, size));
    std::string message = "accepted";
    try {
      const SafetensorsFile file(folder / "x.safetensors");
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(size, message);
    if (size < 8)
      CHECK_THAT(message, contains("truncated: no header length"));
    else if (size < whole.size())
      CHECK_THAT(message, contains("header"));
    else
      CHECK(message == "accepted");
  }
}

TEST_CASE("operand: bytes are codes of eight bits and of nothing wider", "[io]") {
  const TemporaryFolder folder("wide");
  const std::array<std::uint8_t, 8> bytes{0x38, 0x40, 0x44, 0xb8, 0x00, 0x7e, 0x01, 0x02};
  const TensorView tensor = view_of(ElementType::u8, {2, 4}, std::span<const std::uint8_t>(bytes));
  write_safetensors(folder / "x.safetensors", {{"x", tensor}});
  write_npy(folder / "x.npy", tensor);
  for (const ElementType type :
       {ElementType::e4m3fn, ElementType::e5m2, ElementType::f16, ElementType::bf16,
        ElementType::f32, ElementType::i16, ElementType::f64}) {
    const bool fits = element_bits(type) == 8;
    for (const char* name : {"x.safetensors", "x.npy"}) {
      const std::string message = message_of(folder, name, type);
      CAPTURE(to_string(type), name, message);
      CHECK((message == "accepted") == fits);
    }
  }
}

TEST_CASE("operand: the type that is given goes before the sidecar's", "[io]") {
  const TemporaryFolder folder("given");
  const std::array<std::uint8_t, 4> bytes{0x38, 0x40, 0x44, 0xb8};
  write_npy(folder / "x.npy",
            view_of(ElementType::u8, {1, 4}, std::span<const std::uint8_t>(bytes)));
  write_text(folder / "x.npy.json", R"({"dtype": "e4m3fn"})");
  write_text(folder / "x.bin", "\x38\x40\x44\xb8");
  write_text(folder / "x.bin.json", R"({"dtype": "e4m3fn", "shape": [1, 4]})");
  for (const char* name : {"x.npy", "x.bin"}) {
    INFO(name);
    CHECK(load_operand((folder / name).string()).tensor().type == ElementType::e4m3fn);
    CHECK(load_operand((folder / name).string(), ElementType::e5m2).tensor().type ==
          ElementType::e5m2);
  }
}

TEST_CASE("names of results are plain", "[io]") {
  for (const char* name : {"a", "A-1_b.csv", "0", "x.y.z", "a."})
    CHECK_NOTHROW(require_file_name("name", name));
  for (const char* name :
       {"", ".", "..", ".hidden", ".a", "a/b", "/a", "a b", "a\n", "a\\b", "ä", "a:b", "a*"}) {
    INFO(name);
    CHECK_THROWS_WITH(require_file_name("name", name), contains("letters, digits"));
  }
}

TEST_CASE("JSON has each key of an object once, and so many levels", "[io]") {
  const auto ask = [](const char* text, int depth) { require_unique_keys(text, "x", depth); };
  for (const char* text :
       {"{}", "[]", "7", R"({"a": 1, "b": 2, "A": 3})", R"({"a": {"a": {"a": 1}}, "b": {"a": 1}})",
        R"([{"a": 1}, {"a": 1}])", R"({"a": ["a", "a"], "": ""})"})
    CHECK_NOTHROW(ask(text, 3));
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"a": 1, "b": 2, "a": 3})",
                           R"([{"b": 1}, {"a": 1, "a": 2}])", R"({"b": {"a": 1, "a": 1}})",
                           R"({"a": {"b": 1}, "a": {"c": 1}})", R"({"a": 1, "\u0061": 2})"}) {
    INFO(text);
    CHECK_THROWS_WITH(ask(text, 3), contains("x: the key 'a' appears twice"));
  }
  for (const char* text : {"[[[]]]", R"({"a": {"b": {}}})", R"([{"a": [1]}])", "[[], [[]]]"}) {
    INFO(text);
    CHECK_NOTHROW(ask(text, 3));
    CHECK_THROWS_WITH(ask(text, 2), contains("x: nested too deeply"));
  }
  for (const char* text : {"", "{", R"({"a": 1} 2)", "{a: 1}"})
    CHECK_THROWS_WITH(ask(text, 3), contains("x is not JSON"));
}
