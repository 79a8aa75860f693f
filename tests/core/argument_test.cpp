#include "fp8lab/core/argument.hpp"

#include <fmt/format.h>

#include <string>

#include "catch.hpp"

using namespace fp8lab;

namespace {

/// As a program might spell them: <name> or <name:value>.
std::string spelled(std::string_view message) {
  return spell_arguments(message, [](std::string_view name, std::string_view value) {
    return value.empty() ? fmt::format("<{}>", name) : fmt::format("<{}:{}>", name, value);
  });
}

}  // namespace

TEST_CASE("arguments in messages are spelled as a program wants", "[core]") {
  CHECK(argument("dtype") == "`dtype`");
  CHECK(argument("model", "gfx942.mfma.fp8") == "`model=gfx942.mfma.fp8`");
  CHECK(spelled("give " + argument("dtype", "e4m3fn") + ", or " + argument("recipe")) ==
        "give <dtype:e4m3fn>, or <recipe>");
  CHECK(spelled(argument("scale_format") + ": expected x") == "<scale_format>: expected x");
  CHECK(spelled(argument("a1") + argument("b_2", "-3.5")) == "<a1><b_2:-3.5>");
}

TEST_CASE("other text of a message stays as it is", "[core]") {
  for (const char* text :
       {"", "none", "`", "a ` b", "``", "`fp8lab list models`", "`0-31`", "`Name`", "`a=`", "`=b`",
        "`a=b c`", "`a=b=c`", "`_a`", "`a-b`", "--dtype"})
    CHECK(spelled(text) == text);
  CHECK(spelled("an open ` and `dtype`") == "an open ` and `dtype`");
  CHECK(spelled("`fp8lab list formats` or `dtype`") == "`fp8lab list formats` or <dtype>");
}

TEST_CASE("names have small letters, digits and lines, values also capitals, dots and signs",
          "[core]") {
  const std::string small = "abcdefghijklmnopqrstuvwxyz";
  const std::string digits = "0123456789";
  const std::string large = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto is_one_of = [](const std::string& all, char c) {
    return all.find(c) != std::string::npos;
  };
  for (int code = 1; code < 256; ++code) {
    const char c = static_cast<char>(code);
    if (c == '`' || c == '=') continue;
    const std::string letter(1, c);
    INFO("character " << code);
    const bool first = is_one_of(small, c);
    const bool later = first || is_one_of(digits + "_", c);
    const bool value = later || is_one_of(large + ".-", c);
    const auto look = [](bool spelled_out, const std::string& inside, const std::string& as) {
      CHECK(spelled("`" + inside + "`") == (spelled_out ? "<" + as + ">" : "`" + inside + "`"));
    };
    look(first, letter, letter);
    look(first, letter + "b", letter + "b");
    look(later, "a" + letter, "a" + letter);
    look(later, "a" + letter + "b", "a" + letter + "b");
    look(value, "a=" + letter, "a:" + letter);
    look(value, "a=b" + letter + "0", "a:b" + letter + "0");
  }
}
