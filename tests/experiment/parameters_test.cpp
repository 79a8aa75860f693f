#include "lab/experiment/parameters.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/parameter_range.hpp"

using namespace fp8lab;

namespace {

constexpr const char* kToml = R"(
question = "What holds?"
trials = 200
scale = 0.5
flush = false
distribution = "uniform"
k = [128, 512]
sigmas = [0.1, 1, 10]
recipes = ["a", "b"]

[quick]
trials = 20
sigmas = [1]
recipes = []
)";

}  // namespace

TEST_CASE("a default.toml gives each parameter its type and value", "[experiment]") {
  const Parameters p = Parameters::from_toml(kToml, false);
  CHECK(p.integer("trials") == 200);
  CHECK(p.real("scale") == 0.5);
  CHECK(p.real("trials") == 200.0);
  CHECK_FALSE(p.flag("flush"));
  CHECK(p.text("distribution") == "uniform");
  CHECK(p.integers("k") == std::vector<std::int64_t>{128, 512});
  CHECK(p.reals("k") == std::vector<double>{128.0, 512.0});
  CHECK(p.reals("sigmas") == std::vector<double>{0.1, 1.0, 10.0});
  CHECK(p.texts("recipes") == std::vector<std::string>{"a", "b"});
  CHECK(p.values().size() == 7);
  CHECK(read_question(kToml) == "What holds?");
}

TEST_CASE("the quick form changes what its table names and nothing else", "[experiment]") {
  const Parameters p = Parameters::from_toml(kToml, true);
  CHECK(p.integer("trials") == 20);
  CHECK(p.reals("sigmas") == std::vector<double>{1.0});
  CHECK(p.texts("recipes").empty());
  CHECK(p.integers("k") == std::vector<std::int64_t>{128, 512});
}

TEST_CASE("a wrong default.toml says where and why", "[experiment]") {
  const auto [toml, message] = GENERATE(table<std::string, std::string>({
      {"a = 1\nb = = 2", "default.toml:2:5"},
      {"a = 1\n[quick]\nb = 2", "[quick]: expected one of a, got 'b'"},
      {"a = 1\n[quick]\na = 1.5", "[quick] a: expected an integer"},
      {"a = [1]\n[quick]\na = 1", "[quick] a: expected a list of integers"},
      {"a = 2026-01-01", "a: expected an integer, a real number"},
      {"a = []", "a non-empty list"},
      {"a = [1, \"b\"]", "list of one kind"},
      {"a = {b = 1}", "a: expected"},
      {"quick = 1", "quick: expected a table"},
  }));
  INFO(toml);
  // A wrong quick table is wrong even when nobody asks for it.
  for (const bool quick : {false, true})
    CHECK_THROWS_WITH(Parameters::from_toml(toml, quick), contains(message));
}

TEST_CASE("a wrong default.toml is shown by line and column", "[experiment]") {
  for (const auto& [toml, message] :
       {std::pair{"a = 1\n\n  b = = 2", "default.toml:3:7: "},
        {"a = 1\n[quick]\n  bee = 2\n", "default.toml:3:9: [quick]: expected one of a, got 'bee'"},
        {"a = 1\nc = 2\n[quick]\na = 1.5\n",
         "default.toml:4:5: [quick] a: expected an integer, got a value of another type"},
        {"a = 1\n\nquick = 7", "default.toml:3:9: quick: expected a table, got a value"},
        {"a = 1\nrange = \"x\"", "default.toml:2:9: range: expected a table, got a value"},
        {"a = 1\n[range]\n\n a = 5\n",
         "default.toml:4:6: [range] a: expected text, got another type"},
        {"a = 1\nc = 2\n[range]\nb = \"[1, 2]\"\n",
         "default.toml:4:5: [range]: expected one of a, c, got 'b'"}}) {
    INFO(toml);
    CHECK_THROWS_WITH(Parameters::from_toml(toml, false), Catch::Matchers::StartsWith(message));
  }
}

TEST_CASE("whole reals are integers up to 2^53, beyond nothing says which was meant",
          "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  for (const auto& [text, value] : {std::pair{"9007199254740992.0", std::int64_t{1} << 53},
                                    {"-9007199254740992.0", -(std::int64_t{1} << 53)},
                                    {"9007199254740991.0", (std::int64_t{1} << 53) - 1},
                                    {"-0.0", 0}}) {
    INFO(text);
    p.set(std::string("trials=") + text);
    CHECK(p.integer("trials") == value);
    p.set(std::string("k=3, ") + text);
    CHECK(p.integers("k") == std::vector<std::int64_t>{3, value});
  }
  for (const char* text :
       {"9007199254740994.0", "-9007199254740994.0", "1e300", "inf", "nan", "0.5", "-0.5"}) {
    INFO(text);
    CHECK_THROWS_WITH(p.set(std::string("trials=") + text),
                      std::string("set trials: expected an integer, got '") + text + "'");
    CHECK_THROWS_WITH(p.set(std::string("k=1.0,") + text),
                      std::string("set k: expected a list of integers, got '1.0,") + text + "'");
  }
}

TEST_CASE("texts are bare, quoted either way, or hold any byte", "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  for (const auto& [text, value] : {std::pair{"'a \"b\" \\n'", "a \"b\" \\n"},
                                    {"\"a 'b' \\n\"", "a 'b' \n"},
                                    {"a 'b'", "a 'b'"},
                                    {"[1, 2]", "[1, 2]"},
                                    {"", ""},
                                    {"\"\"", ""}}) {
    INFO(text);
    p.set(std::string("distribution=") + text);
    CHECK(p.text("distribution") == value);
  }
  for (int byte = 1; byte < 128; ++byte) {
    const std::string text{'x', static_cast<char>(byte), 'y'};
    p.set("distribution=" + text);
    INFO(byte);
    REQUIRE(p.text("distribution") == text);
    Parameters again = Parameters::from_toml(kToml, false);
    again.set("distribution=" + p.to_toml("distribution"));
    REQUIRE(again.text("distribution") == text);
  }
  CHECK(p.to_toml("distribution") == "\"x\\u007Fy\"");
  p.set("recipes='a', \"b\"");
  CHECK(p.texts("recipes") == std::vector<std::string>{"a", "b"});
  p.set("\tscale \t= \t 4\t ");
  CHECK(p.real("scale") == 4.0);
}

TEST_CASE("each type of parameter is named where another one was meant", "[experiment]") {
  const Parameters p = Parameters::from_toml(kToml, false);
  CHECK_THROWS_WITH(p.integer("k"), "parameter k: expected an integer, got a list of integers");
  CHECK_THROWS_WITH(p.real("flush"), "parameter flush: expected a real number, got true or false");
  CHECK_THROWS_WITH(p.flag("trials"), "parameter trials: expected true or false, got an integer");
  CHECK_THROWS_WITH(p.text("scale"), "parameter scale: expected text, got a real number");
  CHECK_THROWS_WITH(p.integers("sigmas"),
                    "parameter sigmas: expected a list of integers, got a list of real numbers");
  CHECK_THROWS_WITH(p.reals("distribution"),
                    "parameter distribution: expected a list of real numbers, got text");
  CHECK_THROWS_WITH(p.texts("k"), "parameter k: expected a list of texts, got a list of integers");
  CHECK_THROWS_WITH(p.text("recipes"), "parameter recipes: expected text, got a list of texts");
  CHECK_THROWS_WITH(p.text("none"),
                    "parameter: expected one of distribution, flush, k, recipes, scale, sigmas, "
                    "trials, got 'none'");
  CHECK_THROWS_WITH(Parameters::from_toml("", false).text("none"),
                    "parameter: expected no key (it has no parameters), got 'none'");
}

TEST_CASE("a question must be there and be text", "[experiment]") {
  CHECK_THROWS_WITH(read_question("a = 1"), contains("got none"));
  CHECK_THROWS_WITH(read_question("question = 1"), contains("got no text"));
}

TEST_CASE("settings take TOML, bare texts and lists without brackets", "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  p.set("trials=7");
  p.set("scale = 2");
  p.set("flush=true");
  p.set("distribution=a \\ \"b\" = c");
  p.set("k=64,256");
  p.set("sigmas=[1e-3, 2]");
  p.set("recipes=x, y z");
  CHECK(p.integer("trials") == 7);
  CHECK(p.real("scale") == 2.0);
  CHECK(p.flag("flush"));
  CHECK(p.text("distribution") == "a \\ \"b\" = c");
  CHECK(p.integers("k") == std::vector<std::int64_t>{64, 256});
  CHECK(p.reals("sigmas") == std::vector<double>{1e-3, 2.0});
  CHECK(p.texts("recipes") == std::vector<std::string>{"x", "y z"});
  p.set("recipes='one, two'");
  CHECK(p.texts("recipes") == std::vector<std::string>{"one, two"});
  p.set("k=5");
  CHECK(p.integers("k") == std::vector<std::int64_t>{5});
}

TEST_CASE("integers mean what they mean in TOML, however they are written", "[experiment]") {
  const auto [text, expected] = GENERATE(table<std::string, std::int64_t>({
      {"0", 0},
      {"-0", 0},
      {"+5", 5},
      {"-7", -7},
      {"1_000", 1000},
      {"0x10", 16},
      {"999999999999999999", 999999999999999999},
      {"-999999999999999999", -999999999999999999},
      {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
      {"-9223372036854775808", std::numeric_limits<std::int64_t>::min()},
      {"3.0", 3},
  }));
  Parameters p = Parameters::from_toml(kToml, false);
  INFO(text);
  p.set("trials=" + text);
  CHECK(p.integer("trials") == expected);
  p.set("k=" + text);
  CHECK(p.integers("k") == std::vector<std::int64_t>{expected});
}

TEST_CASE("an integer of many digits stands for the nearest real number", "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  p.set("sigmas=111111111111010745, 1e300");
  CHECK(p.reals("sigmas") == std::vector<double>{111111111111010745.0, 1e300});
  p.set("sigmas=0.5, 9223372036854775807");
  CHECK(p.reals("sigmas") == std::vector<double>{0.5, 0x1p63});
  p.set("scale=9223372036854775807");
  CHECK(p.real("scale") == 0x1p63);
}

TEST_CASE("a setting that does not fit is refused and changes nothing", "[experiment]") {
  const auto [assignment, message] = GENERATE(table<std::string, std::string>({
      {"trials", "expected key=value, got 'trials'"},
      {"question=x", "expected one of distribution, flush, k, recipes, scale, sigmas, trials"},
      {"Trials=1", "got 'Trials'"},
      {"trials=1.5", "set trials: expected an integer, got '1.5'"},
      {"trials=", "set trials: expected an integer, got ''"},
      {"trials=007", "set trials: expected an integer, got '007'"},
      {"trials=-", "set trials: expected an integer, got '-'"},
      {"trials=5x", "set trials: expected an integer, got '5x'"},
      {"trials=9223372036854775808", "set trials: expected an integer"},
      {"trials=1\nscale = 2", "set trials: expected an integer"},
      {"scale=fast", "set scale: expected a real number, got 'fast'"},
      {"flush=1", "set flush: expected true or false, got '1'"},
      {"k=1,x", "set k: expected a list of integers, got '1,x'"},
      {"k=1.5", "set k: expected a list of integers"},
      {"recipes=[1]", "set recipes: expected a list of texts"},
  }));
  Parameters p = Parameters::from_toml(kToml, false);
  INFO(assignment);
  CHECK_THROWS_WITH(p.set(assignment), contains(message));
  CHECK(p.values() == Parameters::from_toml(kToml, false).values());
}

TEST_CASE("a parameter read as another type names both types", "[experiment]") {
  const Parameters p = Parameters::from_toml(kToml, false);
  CHECK_THROWS_WITH(p.integer("scale"),
                    contains("parameter scale: expected an integer, got a real number"));
  CHECK_THROWS_WITH(p.reals("recipes"), contains("got a list of texts"));
  CHECK_THROWS_WITH(p.flag("missing"), contains("'missing'"));
}

TEST_CASE("to_toml writes text that sets the same value", "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  p.set("scale=0.1");
  p.set("sigmas=[1e300, 3, nan, -inf, 5e-324, 1e22]");
  p.set("distribution=tab\there \"quoted\" back\\slash");
  p.set("recipes=a,\"");
  Parameters again = Parameters::from_toml(kToml, false);
  for (const auto& [key, value] : p.values()) again.set(key + "=" + p.to_toml(key));
  for (const auto& [key, value] : p.values()) {
    INFO(key << " = " << p.to_toml(key));
    CHECK(again.to_toml(key) == p.to_toml(key));
    if (key != "sigmas") CHECK(again.values().at(key) == value);  // NaN differs from itself
  }
  CHECK(p.to_toml("sigmas") == "[1e+300, 3.0, nan, -inf, 5e-324, 1e+22]");
  CHECK(again.reals("sigmas")[4] == 5e-324);
  CHECK(std::isnan(again.reals("sigmas")[2]));
}

namespace {

constexpr const char* kRanged = R"(
question = "?"
elements = 64
magnitude = 1.0
decades = [1.0, 2.0]
ranks = [1, 2]
names = ["a"]

[quick]
elements = 8

[range]
elements = "[1, 16777216]"
magnitude = "(0, 1e30]"
decades = "1 to 3 of [0, 30]"
ranks = "0 to 2 of [1, 8]"
names = "1 to 2"
)";

}  // namespace

TEST_CASE("a value outside of its range is refused with the range", "[experiment]") {
  const auto [assignment, message] = GENERATE(table<std::string, std::string>({
      {"magnitude=nan", "magnitude: expected a finite number in (0, 1e30], got nan"},
      {"magnitude=inf", "magnitude: expected a finite number in (0, 1e30], got inf"},
      {"magnitude=0", "got 0.0"},
      {"magnitude=-1", "got -1.0"},
      {"magnitude=1.1e30", "got 1.1e+30"},
      {"elements=0", "elements: expected an integer in [1, 16777216], got 0"},
      {"elements=1e8", "elements: expected an integer in [1, 16777216], got 100000000"},
      {"elements=1.5", "set elements: expected an integer, got '1.5'"},
      {"elements=1e300", "set elements: expected an integer"},
      {"elements=nan", "set elements: expected an integer"},
      {"decades=", "decades: expected 1 to 3 values, got 0"},
      {"decades=1,2,3,4", "decades: expected 1 to 3 values, got 4"},
      {"decades=1,nan", "decades: expected a finite number in [0, 30], got nan"},
      {"ranks=1,9", "ranks: expected an integer in [1, 8], got 9"},
      {"ranks=1,2,3", "ranks: expected 0 to 2 values, got 3"},
      {"names=[]", "names: expected 1 to 2 values, got 0"},
  }));
  Parameters p = Parameters::from_toml(kRanged, false);
  INFO(assignment);
  CHECK_THROWS_WITH(p.set(assignment), contains(message));
  CHECK(p.values() == Parameters::from_toml(kRanged, false).values());
}

TEST_CASE("values at the ends of their range are taken, and whole reals as integers",
          "[experiment]") {
  Parameters p = Parameters::from_toml(kRanged, true);
  CHECK(p.integer("elements") == 8);
  p.set("elements=1e4");
  CHECK(p.integer("elements") == 10000);
  p.set("elements=1.6777216e7");
  p.set("magnitude=1e30");
  p.set("decades=0,30");
  p.set("ranks=");
  p.set("ranks=1e0,8");
  CHECK(p.integers("ranks") == std::vector<std::int64_t>{1, 8});
  CHECK(p.ranges().at("elements").high == 16777216.0);
}

TEST_CASE("a range holds its closed ends, not its open ones, and finite numbers alone",
          "[experiment]") {
  for (const auto& [text, low, high] : {std::tuple{"[1, 2]", true, true},
                                        {"(1, 2]", false, true},
                                        {"[1, 2)", true, false},
                                        {"(1, 2)", false, false}}) {
    const ParameterRange range = ParameterRange::parse(text);
    INFO(text);
    CHECK(range.interval == text);
    CHECK((range.fewest == 1 && range.most == 1000));
    CHECK(range.holds(1.0) == low);
    CHECK(range.holds(2.0) == high);
    CHECK(range.holds(1.5));
    CHECK_FALSE(range.holds(std::nextafter(1.0, 0.0)));
    CHECK_FALSE(range.holds(std::nextafter(2.0, 3.0)));
    CHECK_FALSE(range.holds(std::nan("")));
  }
  CHECK(ParameterRange::parse("[5, 5]").holds(5.0));
  CHECK(ParameterRange::parse("[-1e3, inf]").holds(1e300));
  CHECK_FALSE(ParameterRange::parse("[-1e3, inf]").holds(INFINITY));
  const ParameterRange counts = ParameterRange::parse("0 to 3 of (-1, 0.5]");
  CHECK((counts.fewest == 0 && counts.most == 3));
  CHECK((counts.low == -1.0 && counts.high == 0.5 && counts.interval == "(-1, 0.5]"));
  CHECK(ParameterRange::parse("5 to 5").most == 5);
  CHECK(ParameterRange::parse("models").interval == "models");
  const ParameterRange models = ParameterRange::parse("2 to 4 of models");
  CHECK((models.interval == "models" && models.fewest == 2 && models.most == 4));
  for (const char* bad :
       {"",        "[",         "[1, 2",      "1, 2]",           "{1, 2]",      "[1, 2}",
        "[1,2]",   "[, 2]",     "[1, ]",      "[1x, 2]",         "[1, 2x]",     "(1, 1)",
        "[1, 1)",  "(1, 1]",    "[2, 1]",     "-1 to 2",         "3 to 2",      "1 to x",
        "x to 1",  "1 to 2 of", "1 to 2 of ", "1 to 2 of model", "2 of [1, 2]", "of models",
        "1.5 to 2"}) {
    INFO(bad);
    CHECK_THROWS_WITH(ParameterRange::parse(bad), contains("range: expected '[LOW, HIGH]'"));
  }
}

TEST_CASE("a range that cannot be read or that a default breaks is refused", "[experiment]") {
  const auto [range, message] = GENERATE(table<std::string, std::string>({
      {"k = \"1 .. 5\"", "range: expected '[LOW, HIGH]'"},
      {"k = \"[5, 1]\"", "range: expected"},
      {"k = \"(1, 1]\"", "range: expected"},
      {"k = \"2 to 1 of [0, 9]\"", "range: expected"},
      {"k = \"[5, 9]\"", "k: expected an integer in [5, 9], got 4"},
      {"k = 5", "[range] k: expected text"},
      {"j = \"[5, 9]\"", "[range]: expected one of k"},
  }));
  INFO(range);
  CHECK_THROWS_WITH(Parameters::from_toml("k = 4\n[range]\n" + range + "\n", false),
                    contains(message));
  CHECK_THROWS_WITH(
      Parameters::from_toml("k = 4\n[quick]\nk = 9\n[range]\nk = \"[1, 8]\"\n", false),
      contains("k: expected an integer in [1, 8], got 9"));
}
