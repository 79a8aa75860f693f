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

TEST_CASE("attention-fp8: errors of caches follow their formats and scales", "[experiments]") {
  const std::vector<std::string> small{"deviations=1",         "lengths=64",      "queries=2",
                                       "cache_lengths=64,256", "cache_queries=8", "repeats=3",
                                       "value_sizes=1,0.0001"};
  const Results results = run_quick("attention-fp8", 2, small);
  const Table& caches = table_named(results, "caches");
  REQUIRE(caches.rows().size() == 8 * 2 * 2);
  const auto error = [&](const std::string& cache, double size, const char* column) {
    for (std::size_t row = 0; row < caches.rows().size(); ++row)
      if (std::get<std::string>(caches.rows()[row][0]) == cache &&
          std::get<std::int64_t>(caches.rows()[row][1]) == 256 &&
          real_of(caches, row, "value_size") == size)
        return real_of(caches, row, column);
    FAIL("no row " << cache);
    return 0.0;
  };
  for (const double size : {1.0, 0.0001}) {
    INFO(size);
    // A scale of its own, whatever the size of V.
    CHECK(error("e4m3.head", size, "stored_error") > 0.02);
    CHECK(error("e4m3.head", size, "stored_error") < 0.06);
    // One bit of precision less.
    CHECK(error("e5m2.head", size, "error") > 1.5 * error("e4m3.head", size, "error"));
    CHECK(error("nvfp4", 1.0, "error") > 2.0 * error("e4m3.head", 1.0, "error"));
    CHECK(error("deepseek-v3.2", size, "error") < 0.06);
    CHECK(error("e4m3.head", size, "error") > error("e4m3.head", size, "stored_error"));
  }
  // A small head under the scale of a large one, and under none: everything becomes 0.
  CHECK(error("e4m3.tensor", 0.0001, "error") > 1.3 * error("e4m3.head", 0.0001, "error"));
  CHECK(error("e4m3.one", 0.0001, "error") == 1.0);
  CHECK(error("e5m2.one", 0.0001, "error") < 0.2);
}

TEST_CASE("attention-fp8: an unknown cache is named", "[experiments]") {
  CHECK_THROWS_WITH(
      run_quick("attention-fp8", 1, {"caches=fp8"}),
      contains("caches: expected one of e4m3.head") && contains("deepseek-v3.2, got"));
}

}  // namespace fp8lab::attention_test
