#include "lab/experiment/table.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <limits>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/csv.hpp"

using namespace fp8lab;

namespace {

Table example() {
  Table table("error", "Error against K",
              {{"k", "1", "terms"}, {"model", "", "accumulator"}, {"error", "%", "relative"}});
  table.add_row({std::int64_t{128}, std::string("plain"), 0.1});
  table.add_row({std::int64_t{-4}, std::string("a, \"b\"\nc"), 57344.0});
  return table;
}

double read(const std::string& text) {
  double value = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int significant_digits(std::string text) {
  text = text.substr(0, text.find('e'));
  std::string digits;
  for (const char c : text)
    if (c >= '0' && c <= '9' && !(digits.empty() && c == '0')) digits += c;
  return static_cast<int>(digits.find_last_not_of('0') + 1);
}

}  // namespace

TEST_CASE("cells as CSV", "[experiment]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(to_csv(std::int64_t{-7}) == "-7");
  CHECK(to_csv(true) == "true");
  CHECK(to_csv(false) == "false");
  CHECK(to_csv(0.1) == "0.1");
  CHECK(to_csv(1.0) == "1.0");
  CHECK(to_csv(-0.0) == "-0.0");
  CHECK(to_csv(1e300) == "1e+300");
  CHECK(to_csv(5e-324) == "5e-324");
  CHECK(to_csv(kInfinity) == "inf");
  CHECK(to_csv(-kInfinity) == "-inf");
  CHECK(to_csv(kNan) == "nan");
  CHECK(to_csv(-kNan) == "nan");
  CHECK(to_csv(std::string("plain text")) == "plain text");
  CHECK(to_csv(std::string()).empty());
  CHECK(to_csv(std::string("a,b")) == "\"a,b\"");
  CHECK(to_csv(std::string("say \"no\"")) == "\"say \"\"no\"\"\"");
  CHECK(to_csv(std::string("two\nlines")) == "\"two\nlines\"");
}

TEST_CASE("reals in CSV read back to the same bits and cannot be shorter", "[experiment]") {
  const RandomStream random(1, "table_test");
  std::uint64_t checked = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random.bits64(i));
    if (value != value || value - value != 0.0) continue;
    ++checked;
    const std::string text = to_csv(value);
    const double back = read(text);
    if (std::bit_cast<std::uint64_t>(back) != std::bit_cast<std::uint64_t>(value))
      FAIL("value " << std::hexfloat << value << ", CSV " << text << ", read " << back);
    if (text.ends_with(".0")) continue;  // an integer in full
    const int digits = significant_digits(text);
    const std::string shorter = digits < 2 ? "" : fmt::format("{:.{}e}", value, digits - 2);
    if (read(shorter) == value) FAIL("CSV " << text << ", but " << shorter << " would do");
  }
  CHECK(checked > 19000);
}

TEST_CASE("a table as CSV, and read back", "[experiment]") {
  const std::string csv = example().csv();
  CHECK(csv == "k,model,error\n128,plain,0.1\n-4,\"a, \"\"b\"\"\nc\",57344.0\n");
  const auto rows = parse_csv(csv);
  REQUIRE(rows.size() == 3);
  CHECK(rows[2] == std::vector<std::string>{"-4", "a, \"b\"\nc", "57344.0"});
  CHECK(parse_csv("a,b\n,\n")[1] == std::vector<std::string>{"", ""});
  CHECK_THROWS_WITH(parse_csv("a,b\n1\n"), contains("row 2: expected 2 cells, got 1"));
  CHECK_THROWS_WITH(parse_csv("a\n\"b"), contains("open quote"));
  CHECK_THROWS_WITH(parse_csv("a\n\"b\"c\n"), contains("after a closing quote"));
}

TEST_CASE("a table for people is aligned and says what it leaves out", "[experiment]") {
  Table table("t", "Title", {{"k", "1", ""}, {"name", "", ""}, {"share", "%", ""}});
  table.add_row({std::int64_t{5}, std::string("√K"), 1.0 / 3.0});
  table.add_row({std::int64_t{32768}, std::string("ab"), 123456.7});
  table.add_row({std::int64_t{1}, std::string("c"), 1e-9});
  CHECK(table.text() ==
        "Title\n"
        "      k  name  share [%]\n"
        "      5  √K       0.3333\n"
        "  32768  ab       123457\n"
        "      1  c         1e-09\n");
  CHECK(table.text(1) ==
        "Title\n"
        "  k  name  share [%]\n"
        "  5  √K       0.3333\n"
        "  ... 2 more rows\n");
}

TEST_CASE("each sign that CSV quotes is quoted, in cells and in names of columns", "[experiment]") {
  for (const char* sign : {",", "\"", "\n", "\r", ";", "'", " ", "\t"}) {
    const std::string text = std::string("a") + sign + "b";
    const bool quoted = std::string(",\"\n\r").find(sign) != std::string::npos;
    const std::string inside = sign[0] == '"' ? "a\"\"b" : text;
    const std::string expected = quoted ? "\"" + inside + "\"" : text;
    INFO(text);
    CHECK(to_csv(text) == expected);
    Table table("t", "", {{text, "", ""}, {"x", "", ""}});
    table.add_row({text, true});
    CHECK(table.csv() == expected + ",x\n" + expected + ",true\n");
    CHECK(csv_line({true, text, std::int64_t{3}, 0.5}) == "true," + expected + ",3,0.5");
  }
  CHECK(csv_line({}).empty());
  CHECK(csv_line({std::string(), std::string(), true, std::string()}) == ",,true,");
}

TEST_CASE("texts stand to the left, all else to the right", "[experiment]") {
  Table table("t", "",
              {{"flag", "", ""},
               {"n", "bits", ""},
               {"x_bits", "bits", ""},
               {"s", "", ""},
               {"or", "1", ""}});
  table.add_row({true, std::int64_t{5}, 0.5, std::string("long text"), std::string("a")});
  table.add_row({false, std::int64_t{123456789}, 123456.0, std::string("b"), 2.0});
  const std::string whole =
      "   flag   n [bits]  x_bits  s          or\n"
      "   true          5     0.5  long text  a\n"
      "  false  123456789  123456  b          2\n";
  CHECK(table.text() == whole);
  CHECK(table.text(2) == whole);
  CHECK(table.text(3) == whole);
  CHECK(table.text(1) ==
        "  flag  n [bits]  x_bits  s          or\n"
        "  true         5     0.5  long text  a\n"
        "  ... 1 more rows\n");
}

TEST_CASE("a table refuses rows of another length and columns of one name", "[experiment]") {
  Table table = example();
  CHECK_THROWS_WITH(table.add_row({true}), contains("table error: row: expected 3 cells, got 1"));
  CHECK(table.rows().size() == 2);
  for (const char* unit : {"", "dB"})
    CHECK_THROWS_WITH(Table("t", "", {{"a", "", ""}, {"a", unit, ""}}), contains("unique"));
}
