#include "fp8lab/core/counted.hpp"

#include <cstdint>

#include "catch.hpp"

using fp8lab::counted;

TEST_CASE("a number and its noun: one of it has no plural", "[core]") {
  CHECK(counted(0, "row") == "0 rows");
  CHECK(counted(1, "row") == "1 row");
  CHECK(counted(2u, "larger cell") == "2 larger cells");
  CHECK(counted(std::int64_t{-1}, "row") == "-1 rows");
  CHECK(counted(~std::uint64_t{0}, "byte") == "18446744073709551615 bytes");
}
