// Cells that a spreadsheet would run, and names that a terminal would obey.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/io/csv.hpp"

using namespace fp8lab;

TEST_CASE("csv: a text that a spreadsheet would run has an apostrophe in front", "[io]") {
  for (const std::string text : {"=1+1", "=cmd|' /C calc'!A1", "+x", "-x", "@SUM(A1)", "\tx", "\rx",
                                 "--1", "+-1", "-1-1", "-nan(1)", "1e5x", "=", "@", "-0x10"}) {
    INFO(text);
    const std::string cell = csv_cell(text);
    const bool runs = text != "1e5x";
    CHECK((cell.find('\'') == (cell.front() == '"' ? 1U : 0U)) == runs);
    CHECK(parse_csv("a\n" + cell + "\n")[1] == std::vector<std::string>{text});
  }
}

TEST_CASE("csv: numbers stay numbers, and other texts as they are", "[io]") {
  for (const std::string text :
       {"-1", "-1.5e-3", "+1", "-inf", "-nan", "inf", "nan", "1e999", "-1e999", "-", "+", "", "a=b",
        "'quoted'", "it's", "'", "0.5", "-.5"}) {
    INFO(text);
    CHECK(csv_cell(text) == text);
    CHECK(parse_csv("a\n" + text + "\n")[1] == std::vector<std::string>{text});
  }
}

TEST_CASE("csv: every text is read back as it was, with apostrophes in front too", "[io]") {
  for (const std::string start : {"", "'", "''", "\"", "'\""})
    for (const std::string rest : {"", "=x", "-1", "-x", "+", "@a,b", "\rx\n", "a\"b", "\t"}) {
      const std::string text = start + rest;
      INFO(text);
      CHECK(parse_csv("a,b\n" + csv_cell(text) + ",1\n")[1] == std::vector<std::string>{text, "1"});
    }
}

TEST_CASE("printable: what acts on a terminal is written out", "[core]") {
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"plain σ² ‘x’ \\n", "plain σ² ‘x’ \\n"},
           {"a\nb\r\tc", "a\\nb\\r\\tc"},
           {"\x1b]0;title\a", "\\x1b]0;title\\x07"},
           {std::string("a\0b", 3), "a\\x00b"},
           {"\x7f", "\\x7f"},
           {"\u0085\u009b", "\\u0085\\u009b"},
           {"a\u202eb\u2028\u2066\ufeff", "a\\u202eb\\u2028\\u2066\\ufeff"},
           {"x\xff.npy", "x\\xff.npy"},
           {"\xc0\x80\xed\xa0\x80\xf5", "\\xc0\\x80\\xed\\xa0\\x80\\xf5"},
           {"\xe2\x82", "\\xe2\\x82"},
           {"\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xf4\x90\x80\x80",
            "\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\\xf4\\x90\\x80\\x80"},
           {"", ""}}) {
    CHECK(printable(text) == shown);
    CHECK(printable(printable(text)) == shown);
  }
}

TEST_CASE("JSON shows bytes that are not UTF-8, and data with them is refused", "[core]") {
  const nlohmann::json value{{"p\xff", {"x\xff.npy", "ok\n", 1}}, {"q", "σ"}};
  CHECK(json_text(value) == R"({"p\\xff":["x\\xff.npy","ok\n",1],"q":"σ"})");
  CHECK(json_text(nlohmann::json("ok\x1b")) == R"("ok\u001b")");
  CHECK_THROWS_WITH(exact_json_text(value, "header"),
                    contains("header: expected names and texts in UTF-8"));
  CHECK(exact_json_text(nlohmann::json{{"a", 1}}, "header") == R"({"a":1})");
}
