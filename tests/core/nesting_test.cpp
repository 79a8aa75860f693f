// How deeply texts may be nested before anything recurses into them.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/toml_text.hpp"

using namespace fp8lab;

namespace {

std::string times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// `a.a.a` of so many parts.
std::string key(int parts) { return times(parts - 1, "a.") + "a"; }

constexpr int kMost = kMostTomlDepth;
constexpr int kEndless = 200'000;

}  // namespace

TEST_CASE("TOML is nested up to the limit in keys, tables and values together", "[core][nesting]") {
  for (const std::string& text :
       {key(kMost) + " = 1.5", fmt::format("[{}]", key(kMost)),
        fmt::format("[[{}]]", key(kMost - 1)),
        fmt::format("[{}]\n{} = 1", key(40), key(kMost - 40)),
        fmt::format("a = {}{}", times(kMost - 1, "["), times(kMost - 1, "]")),
        fmt::format("a = {}{}", times(31, "{a="), "1" + times(31, "}")),
        // Dots of numbers and in strings are none of keys, and brackets in comments none of values.
        "a = [" + times(100, "1.5, ") + "]",
        "\"" + times(100, ".") + "\" = '" + times(100, ".") + "'",
        "a = \"\"\"\n" + times(100, "[a.b]\n\"") + "\"\"\"", "# " + times(100, "[.") + "\na = 1",
        "a = \"" + times(100, "[.\\\"") + "\"",
        times(3, "# x\n") + "[a]\n" + "b.c = 1\n[d.e]\nf = 1",
        "a = [\n" + times(100, "  {b.c = 1},\n") + "]"}) {
    CAPTURE(text.substr(0, 200));
    CHECK_NOTHROW(parse_toml(text, "t"));
  }
}

TEST_CASE("TOML beyond the limit is refused before it is parsed", "[core][nesting]") {
  for (const int over : {1, kEndless})
    for (const std::string& text :
         {key(kMost + over) + " = 1", fmt::format("[{}]", key(kMost + over)),
          fmt::format("[[{}]]", key(kMost - 1 + over)),
          fmt::format("[{}]\n{} = 1", key(40), key(kMost - 40 + over)),
          fmt::format("a = {}", times(kMost - 1 + over, "[")),
          fmt::format("a = {}", times(kMost - 1 + over, "{a=")),
          "\xEF\xBB\xBF[" + key(kMost + over) + "]", "a = {b = 1, " + key(kMost + over) + " = 1}",
          "a = [1.5, {" + key(kMost + over) + " = 1}]",
          "a = \"\"\"\"\"\"\n[" + key(kMost + over) + "]",
          "a = '\\'\n" + key(kMost + over) + " = 1", "  [" + key(kMost + over) + "]",
          "a = 1 # '\n" + key(kMost + over) + " = 1",
          "a = \"x\"\n\"a" + times(kMost + over, "\".\"") + "\" = 1"}) {
      CAPTURE(over, text.substr(0, 200));
      CHECK_THROWS_WITH(parse_toml(text, "t"), contains("t: nested too deeply: at most 64 "));
    }
}

TEST_CASE("TOML that is none says where, not that it is deep", "[core][nesting]") {
  CHECK_THROWS_WITH(parse_toml("a = 1\nb = = 2", "t"), contains("t:2:5: "));
  CHECK_THROWS_WITH(parse_toml("a = ]]]", "t"), contains("t:1:"));
  CHECK_THROWS_WITH(parse_toml("a = \"" + std::string(1, '\\'), "t"), contains("t:1:"));
  CHECK(parse_toml("", "t").empty());
}

TEST_CASE("JSON is nested up to the limit, and has each key once", "[core][nesting]") {
  using nlohmann::json;
  const auto lists = [](int depth) { return times(depth, "[") + times(depth, "]"); };
  CHECK(parse_json<json>(lists(kMostJsonDepth), "t").is_array());
  for (const int over : {1, kEndless}) {
    CHECK_THROWS_WITH(parse_json<json>(lists(kMostJsonDepth + over), "t"),
                      contains("t: nested too deeply: at most 64 "));
    CHECK_THROWS_WITH(parse_if_json<json>(times(kMostJsonDepth + over, "{\"a\":"), "t"),
                      contains("t: nested too deeply: at most 64 "));
  }
  CHECK_THROWS_WITH(parse_if_json<json>(R"({"a": 1, "a": 1})", "t"),
                    contains("t: the key 'a' appears twice"));
  CHECK_FALSE(parse_if_json<json>("{", "t").has_value());
  CHECK(parse_if_json<json>("null", "t").has_value());
  CHECK_THROWS_WITH(parse_json<json>("{", "t"), contains("t: not JSON: "));
}
