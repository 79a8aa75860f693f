#include "fp8lab/core/integer_list.hpp"

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("integers of a text: all of them or a refusal", "[core]") {
  const auto shape = [](std::string_view text) {
    return parse_integers("--shape", text, 'x', 3, "MxNxK");
  };
  CHECK(shape("16x8x64") == std::vector<std::int64_t>{16, 8, 64});
  CHECK(shape("0x-1x9223372036854775807") == std::vector<std::int64_t>{0, -1, 9223372036854775807});
  CHECK(parse_integers("shard", "0/4", '/', 2, "I/N") == std::vector<std::int64_t>{0, 4});
  // What does not fit was taken for the largest number once, and blanks were skipped.
  for (const char* text : {"",
                           "x",
                           "16",
                           "16x8",
                           "16x8x",
                           "16x8x64x",
                           "16x8x64x1",
                           "16x8x64 ",
                           " 16x8x64",
                           "16x 8x64",
                           "+16x8x64",
                           "16X8X64",
                           "0x10x8x64",
                           "1.5x8x64",
                           "1e3x8x64",
                           "9223372036854775808x1x1",
                           "99999999999999999999x1x1",
                           "-9223372036854775809x1x1",
                           "16xx64",
                           "16,8,64",
                           "16x8,64",
                           "16/8/64",
                           "16:8x64",
                           "--1x1x1"}) {
    INFO(text);
    CHECK_THROWS_WITH(shape(text), "--shape: expected MxNxK, got '" + std::string(text) + "'");
  }
  for (const char separator : std::string_view("x/,:;-")) {
    const auto pair = [&](const std::string& text) {
      return parse_integers("pair", text, separator, 2, "two");
    };
    for (const char other : std::string_view("x/,:;- .")) {
      const std::string text = std::string("3") + other + "4";
      INFO(text << " at " << separator);
      if (other == separator)
        CHECK(pair(text) == std::vector<std::int64_t>{3, 4});
      else
        CHECK_THROWS_WITH(pair(text), "pair: expected two, got '" + text + "'");
    }
  }
}
