#include "fp8lab/experiment/parameters.hpp"

#include <cmath>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

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

TEST_CASE("a setting that does not fit is refused and changes nothing", "[experiment]") {
  const auto [assignment, message] = GENERATE(table<std::string, std::string>({
      {"trials", "expected key=value, got 'trials'"},
      {"question=x", "expected one of distribution, flush, k, recipes, scale, sigmas, trials"},
      {"Trials=1", "got 'Trials'"},
      {"trials=1.5", "set trials: expected an integer, got '1.5'"},
      {"trials=", "set trials: expected an integer, got ''"},
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
