// Parameters as structs.

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/parameter_struct.hpp"

using namespace fp8lab;

namespace {

struct All {
  std::int64_t count = 0;
  double gain = 0.0;
  bool on = false;
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<double> decades;
  std::vector<std::string> names;

  static constexpr auto fields() {
    return std::tuple{field("count", &All::count), field("gain", &All::gain),
                      field("on", &All::on),       field("name", &All::name),
                      field("sizes", &All::sizes), field("decades", &All::decades),
                      field("names", &All::names)};
  }
};

struct Count {
  std::int64_t count = 0;
  static constexpr auto fields() { return std::tuple{field("count", &Count::count)}; }
};

struct Twice {
  std::int64_t first = 0;
  std::int64_t second = 0;
  static constexpr auto fields() {
    return std::tuple{field("count", &Twice::first), field("count", &Twice::second)};
  }
};

constexpr const char* kToml = R"(
count = 7
gain = 2
on = true
name = "x"
sizes = [1, 2]
decades = [0, 1.5]
names = ["a", "b"]
)";

}  // namespace

TEST_CASE("Every member gets the parameter of its name", "[experiment]") {
  Parameters p = Parameters::from_toml(kToml, false);
  p.set("count=9");
  const auto all = read_parameters<All>(p);
  CHECK(all.count == 9);
  CHECK(all.gain == 2.0);
  CHECK(all.on);
  CHECK(all.name == "x");
  CHECK(all.sizes == std::vector<std::int64_t>{1, 2});
  CHECK(all.decades == std::vector<double>{0.0, 1.5});
  CHECK(all.names == std::vector<std::string>{"a", "b"});
}

TEST_CASE("A struct and default.toml that do not fit are refused", "[experiment]") {
  CHECK_THROWS_WITH(read_parameters<Count>(Parameters::from_toml("gain = 2", false)),
                    contains("parameter: expected one of gain, got 'count'"));
  CHECK_THROWS_WITH(read_parameters<Count>(Parameters::from_toml("count = \"x\"", false)),
                    contains("parameter count: expected an integer, got text"));
  CHECK_THROWS_WITH(read_parameters<Count>(Parameters::from_toml("count = 1\ngain = 2", false)),
                    "default.toml: gain: expected a parameter that the experiment reads, got one "
                    "that it does not");
  CHECK_THROWS_WITH(read_parameters<Twice>(Parameters::from_toml("count = 1", false)),
                    contains("each parameter in one member"));
}
