// What claim A1 asks of a draw, at both sides of its limits.

#include <array>
#include <vector>

#include "catch.hpp"
#include "claims/schemes.hpp"

using namespace fp8lab;

TEST_CASE("A1: each of its limits, at any number of ranks", "[experiments]") {
  struct Case {
    double pre, post, automatic;  ///< underflow
    double post_over, auto_over;
    std::array<bool, 4> expected;  ///< pre, post, auto underflow, auto overflow
  };
  for (const Case& c : {Case{3.0, 2.0, 3.0, 0.0, 0.1, {false, false, false, false}},
                        Case{3.001, 2.0, 2.0, 0.0, 0.0, {true, false, false, false}},
                        Case{2.0, 2.0, 3.001, 0.0, 0.0, {false, false, true, false}},
                        Case{2.0, 2.0, 2.0, 1e-9, 0.0, {false, true, false, false}},
                        Case{2.0, 2.0, 2.0, 0.0, 0.1001, {false, false, false, true}},
                        Case{0.1, 0.0, 0.1, 0.0, 0.0, {true, false, true, false}},
                        Case{9.0, 1.0, 9.0, 1.0, 1.0, {true, true, true, true}}})
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<experiments::SchemeLosses> losses(3);
      losses[place].pre.underflow_percent = c.pre;
      losses[place].post.underflow_percent = c.post;
      losses[place].automatic.underflow_percent = c.automatic;
      losses[place].post.overflow_percent = c.post_over;
      losses[place].automatic.overflow_percent = c.auto_over;
      losses[place].pre.overflow_percent = 50.0;  // nobody asks
      const experiments::SchemeVerdict v = experiments::judge_draw(losses);
      CAPTURE(c.pre, c.post, c.automatic, c.post_over, c.auto_over, place);
      CHECK(std::array{v.pre_underflows, v.post_overflows, v.auto_underflows, v.auto_overflows} ==
            c.expected);
    }
}
