// Tests that skip or fail on purpose, for skip_test.py: hidden from other runs.

#include "catch.hpp"
#include "skip.hpp"

TEST_CASE("planted: skipped", "[.][planted][skip]") { skip_test("on purpose"); }

TEST_CASE("planted: passes", "[.][planted][pass]") { CHECK(true); }

TEST_CASE("planted: as many failures as CTest's sign of a skipped test", "[.][planted][77]") {
  for (int i = 0; i < 77; ++i) CHECK(i < 0);
}

TEST_CASE("planted: checks nothing", "[.][planted][nothing]") {}

TEST_CASE("planted: skipped, then fails", "[.][planted][both]") {
  skip_test("on purpose");
  CHECK(false);
}
