// Whether a sweep's findings name an axis that only chance tells apart.

#include "fp8lab/report/dependence.hpp"

#include <cmath>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

/// 4 x 3 points of 5 normal draws; `shift` is added for each step along the first axis.
GridDraws grid(std::uint64_t seed, double shift) {
  const RandomStream random(seed, "test/dependence");
  GridDraws draws;
  std::uint64_t position = 0;
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 3; ++b)
      for (int repeat = 0; repeat < 5; ++repeat)
        draws[{a, b}].push_back(random.normal(position++) + shift * static_cast<double>(a));
  return draws;
}

}  // namespace

TEST_CASE("Student's t against SciPy", "[report]") {
  struct Value {
    double tail;
    std::size_t freedom;
    double t;
  };
  // scipy.stats.t.isf(tail, freedom)
  for (const Value& v :
       {Value{0.005, 5, 4.032143}, Value{0.005, 24, 2.796940}, Value{0.0005, 10, 4.586894},
        Value{1e-4, 8, 6.441999}, Value{0.025, 6, 2.446912}}) {
    INFO(v.tail << ", " << v.freedom << ": expected " << v.t << ", got "
                << student_t(v.tail, v.freedom));
    CHECK(std::abs(student_t(v.tail, v.freedom) / v.t - 1.0) < 0.03);
  }
}

TEST_CASE("noise is no dependence, and a shift of the mean is one on its axis alone", "[report]") {
  int found = 0;
  int seen = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto noise = axes_that_matter(grid(seed, 0.0), 2);
    REQUIRE(noise);
    found += (*noise)[0] ? 1 : 0;
    found += (*noise)[1] ? 1 : 0;
    const auto shifted = axes_that_matter(grid(seed, 2.0), 2);
    seen += (*shifted)[0] && !(*shifted)[1] ? 1 : 0;
  }
  CHECK(found <= 12);  // a chance of 1 % an axis, 600 axes: 6 expected
  CHECK(seen >= 290);
}

TEST_CASE("what repeats cannot tell is not told", "[report]") {
  CHECK_FALSE(axes_that_matter({{{0}, {1.0}}, {{1}, {9.0}}}, 1));
  CHECK_FALSE(axes_that_matter({{{0}, {1.0, 2.0}}, {{1}, {9.0, 8.0}}}, 1));
  const std::vector<double> same{2.0, 2.0, 2.0, 2.0};
  const std::vector<double> more{2.5, 2.5, 2.5, 2.5};
  // Without noise any difference is one.
  CHECK(axes_that_matter({{{0}, same}, {{1}, more}}, 1) == std::vector<bool>{true});
  CHECK(axes_that_matter({{{0}, same}, {{1}, same}}, 1) == std::vector<bool>{false});
}
