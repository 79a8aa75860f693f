#include "fp8lab/core/target.hpp"

#include <algorithm>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "message_of.hpp"

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

TEST_CASE("targets have their names, and one that this processor lacks is told as such",
          "[core][target]") {
  CHECK(to_string(Target::scalar) == "scalar");
  CHECK(to_string(Target::avx2) == "avx2");
  CHECK(to_string(Target::avx512) == "avx512");
  CHECK(to_string(Target::neon) == "neon");
  std::string available;
  for (const Target target : available_targets())
    available += (available.empty() ? "" : ", ") + std::string(to_string(target));
  int lacking = 0;
  for (const Target target : {Target::scalar, Target::avx2, Target::avx512, Target::neon}) {
    const std::string name(to_string(target));
    const bool there = std::ranges::find(available_targets(), target) != available_targets().end();
    INFO(name);
    CHECK(test::message_of([&] { (void)find_target(name); }) ==
          (there ? "accepted"
                 : "FP8LAB_TARGET: expected one of " + available + ", got '" + name +
                       "', which this processor does not support"));
    CHECK(test::message_of([&] { require_available(target); }) ==
          (there ? "accepted" : "target: expected one of " + available + ", got " + name));
    lacking += there ? 0 : 1;
  }
  CHECK(lacking > 0);  // no processor has those of both kinds
  for (const std::string name : {"", "avx", "AVX2", "avx2 ", "sse4"})
    CHECK(test::message_of([&] { (void)find_target(name); }) ==
          "FP8LAB_TARGET: expected one of " + available + ", got '" + name + "'");
}
