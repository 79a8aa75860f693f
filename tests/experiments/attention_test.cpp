// attention-fp8: the errors that a published table of a chip has.

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"

namespace fp8lab::attention_test {
namespace {

double real_of(const Table& table, std::size_t row, std::string_view column) {
  for (std::size_t c = 0; c < table.columns().size(); ++c)
    if (table.columns()[c].name == column) return std::get<double>(table.rows()[row][c]);
  FAIL("no column " << column);
  return 0.0;
}

}  // namespace

TEST_CASE("attention-fp8: a stale maximum saturates P as on a published B300",
          "[experiments][long]") {
  const Results results = run_quick("attention-fp8", 2);
  const Table& published = table_named(results, "published");
  REQUIRE(published.rows().size() == 10);
  for (std::size_t row = 0; row < 10; ++row) {
    const double error = real_of(published, row, "error");
    const double chip = real_of(published, row, "published");
    CAPTURE(real_of(published, row, "deviation"), real_of(published, row, "offset"), error, chip);
    // Other draws and another shape: within a third of it.
    CHECK(error > 0.67 * chip);
    CHECK(error < 1.5 * chip);
  }
  REQUIRE(results.headline.has_value());
  CHECK(results.headline->mitigation == "offset 4");
  // Nothing saturates at an offset of 4.
  const Table& errors = table_named(results, "errors");
  for (std::size_t row = 0; row < errors.rows().size(); ++row)
    if (real_of(errors, row, "offset") == 4.0) CHECK(real_of(errors, row, "saturated") == 0.0);
}

TEST_CASE("attention-fp8: other kernels and lengths are beside no published row", "[experiments]") {
  const std::vector<std::string> small{"lengths=64", "queries=2", "head_size=16", "repeats=2"};
  const Results results = run_quick("attention-fp8", 2, small);
  CHECK(table_named(results, "published").rows().empty());
  CHECK_FALSE(results.headline.has_value());
}

}  // namespace fp8lab::attention_test
