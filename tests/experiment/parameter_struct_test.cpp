// Parameters as structs.

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/parameter_struct.hpp"

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

struct Names {
  std::vector<std::string> all;
  static constexpr auto fields() { return std::tuple{field("names", &Names::all)}; }
};

const std::string& first_of(const std::string& name) {
  static const std::vector<std::string> kKnown{"a", "b", "x"};
  for (const std::string& known : kKnown)
    if (known == name) return known;
  throw Error("name", "a, b or x", "'" + name + "'");
}

struct Inner {
  std::size_t count = 0;
  float gain = 0.0F;
  const std::string* name = nullptr;
};

/// Every kind of member that is more than a plain one.
struct Nested {
  Inner inner;
  Names names;
  std::vector<std::size_t> sizes;
  std::vector<float> decades;
  bool on = false;

  static constexpr auto fields() {
    return std::tuple{group(&Nested::inner, field("count", &Inner::count),
                            field("gain", &Inner::gain), field("name", &Inner::name, first_of)),
                      group(&Nested::names), field("sizes", &Nested::sizes),
                      field("decades", &Nested::decades), field("on", &Nested::on)};
  }
};

struct Found {
  std::vector<const std::string*> pointers;
  static constexpr auto fields() { return std::tuple{field("names", &Found::pointers, first_of)}; }
};

struct Lengths {
  std::vector<std::size_t> of;
  static constexpr auto fields() {
    return std::tuple{
        field("names", &Lengths::of, [](const std::string& name) { return name.size(); })};
  }
};

struct Small {
  std::int8_t count = 0;
  static constexpr auto fields() { return std::tuple{field("count", &Small::count)}; }
};

struct Unsigned {
  std::vector<std::size_t> sizes;
  static constexpr auto fields() { return std::tuple{field("sizes", &Unsigned::sizes)}; }
};

/// One member in two groups.
struct Twofold {
  Inner inner;
  static constexpr auto fields() {
    return std::tuple{group(&Twofold::inner, field("count", &Inner::count)),
                      group(&Twofold::inner, field("gain", &Inner::gain))};
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
                    contains("count: expected a parameter in one member, got one in two"));
}

TEST_CASE("Members narrow numbers, hold what texts name, and group", "[experiment]") {
  const auto s = read_parameters<Nested>(Parameters::from_toml(kToml, false));
  CHECK(s.inner.count == 7U);
  CHECK(s.inner.gain == 2.0F);
  CHECK(s.inner.name == &first_of("x"));
  CHECK(s.names.all == std::vector<std::string>{"a", "b"});
  CHECK(s.sizes == std::vector<std::size_t>{1, 2});
  CHECK(s.decades == std::vector<float>{0.0F, 1.5F});
  CHECK(s.on);
  const Parameters names = Parameters::from_toml("names = [\"b\", \"a\"]", false);
  CHECK(read_parameters<Found>(names).pointers ==
        std::vector<const std::string*>{&first_of("b"), &first_of("a")});
  CHECK(read_parameters<Lengths>(names).of == std::vector<std::size_t>{1, 1});
  const auto two = read_parameters<Twofold>(Parameters::from_toml("count = 1\ngain = 2", false));
  CHECK(two.inner.count == 1U);
  CHECK(two.inner.gain == 2.0F);
}

TEST_CASE("A value that does not fit its member is refused", "[experiment]") {
  CHECK_THROWS_WITH(read_parameters<Small>(Parameters::from_toml("count = 128", false)),
                    "count: expected an integer from -128 to 127, got 128");
  CHECK(read_parameters<Small>(Parameters::from_toml("count = -128", false)).count == -128);
  CHECK_THROWS_WITH(read_parameters<Unsigned>(Parameters::from_toml("sizes = [1, -1]", false)),
                    contains("sizes: expected an integer from 0 to "));
  CHECK_THROWS_WITH(read_parameters<Found>(Parameters::from_toml("names = [\"c\"]", false)),
                    "names: name: expected a, b or x, got 'c'");
  CHECK_THROWS_WITH(read_parameters<Found>(Parameters::from_toml("names = [1]", false)),
                    contains("parameter names: expected a list of texts"));
  CHECK_THROWS_WITH(
      read_parameters<Twofold>(Parameters::from_toml("count = 1\ngain = 2\non = true", false)),
      contains("default.toml: on: expected a parameter that the experiment reads"));
}
