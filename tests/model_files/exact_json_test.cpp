// What a config.json of others says is written back as it was.

#include <nlohmann/json.hpp>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "training/model_files/exact_json.hpp"
#include "training/model_files/quantization_config.hpp"

using namespace fp8lab;

TEST_CASE("integers of any size keep their digits", "[model_files]") {
  const std::string text = R"({
  "a": 18446744073709551616,
  "b": [
    -9223372036854775809,
    123456789012345678901234567890,
    18446744073709551615,
    -9223372036854775808,
    9007199254740993,
    {
      "c": 100000000000000000000
    }
  ],
  "d": {},
  "e": [],
  "f": null,
  "g": "18446744073709551616",
  "é\n": true
})";
  CHECK(exact_json(parse_exact_json(text, "c"), 2) == text);
  CHECK(without_quantization(text, "c") == text + "\n");
  for (const char* alone : {"18446744073709551616", "[]", "{}", "\"x\"", "-1", "0.5", "null"})
    CHECK(exact_json(parse_exact_json(alone, "c"), 2) == alone);
}

TEST_CASE("a text without such integers is written as the JSON library writes it",
          "[model_files]") {
  const std::string text =
      R"({"z": [1, -2, 0.1, 1e5, 1E-7, true, null, [], {}], "a": {"b": {"c": ["x", "\u001b\"é"]}}})";
  for (const int indent : {0, 1, 2, 4})
    CHECK(exact_json(parse_exact_json(text, "c"), indent) ==
          nlohmann::ordered_json::parse(text).dump(indent));
}

TEST_CASE("what is no JSON, too deep or given twice is refused", "[model_files]") {
  CHECK_THROWS_WITH(parse_exact_json("{", "c"), contains("c: not JSON: "));
  CHECK_THROWS_WITH(parse_exact_json(R"({"a": 1, "a": 2})", "c"), contains("'a' appears twice"));
  CHECK_THROWS_WITH(parse_exact_json(std::string(65, '['), "c"), contains("c: nested too deeply"));
  CHECK_THROWS_WITH(parse_exact_json("[1e400]", "c"), contains("c: not JSON: "));
}
