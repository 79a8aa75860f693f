#include "fp8lab/core/target.hpp"

#include <algorithm>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("every available target is found by its name, scalar first", "[core][target]") {
  REQUIRE_FALSE(available_targets().empty());
  CHECK(available_targets().front() == Target::scalar);
  for (const Target target : available_targets()) {
    CHECK(find_target(to_string(target)) == target);
    CHECK_NOTHROW(require_available(target));
  }
  CHECK(std::ranges::find(available_targets(), current_target()) != available_targets().end());
}

TEST_CASE("a target that is unknown or not available is refused by name", "[core][target]") {
  CHECK_THROWS_WITH(find_target("avx1024"),
                    contains("FP8LAB_TARGET: expected one of scalar") && contains("'avx1024'"));
  for (const Target target : {Target::avx2, Target::avx512, Target::neon}) {
    if (std::ranges::find(available_targets(), target) != available_targets().end()) continue;
    CHECK_THROWS_AS(find_target(to_string(target)), Error);
    CHECK_THROWS_AS(require_available(target), Error);
  }
}
