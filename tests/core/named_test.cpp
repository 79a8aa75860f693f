// Tables of named rows.

#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/names.hpp"

using namespace fp8lab;

namespace {
struct Row {
  std::string_view name;
  int value;
};
}  // namespace

TEST_CASE("A row is found by its whole name", "[core][named]") {
  static constexpr std::array kRows{Row{"one", 1}, Row{"two", 2}, Row{"twofold", 22}};
  CHECK(&find_named(kRows, "row", "two") == &kRows[1]);
  CHECK(find_named(kRows, "row", "twofold").value == 22);
  CHECK(names_of(kRows) == "one, two, twofold");
  for (const auto& [name, meant] : {std::pair{"", ""}, std::pair{"tw", "two"},
                                    std::pair{"twos", "two"}, std::pair{"One", "one"}}) {
    const std::string hint = *meant == 0 ? "" : " (did you mean " + std::string(meant) + "?)";
    CHECK_THROWS_WITH(
        find_named(kRows, "row", name),
        "row: expected one of one, two, twofold" + hint + ", got '" + std::string(name) + "'");
  }
  CHECK(names_of(std::vector<Row>{}).empty());
}
