// Whether a sweep's findings name an axis that only chance tells apart.

#include "lab/report/dependence.hpp"

#include <array>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

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
    double tolerance;  ///< the series ends after 1 / freedom^4
  };
  // scipy.stats.t.isf(tail, freedom)
  for (const Value& v : {Value{0.005, 5, 4.032142984, 1e-3}, Value{0.005, 24, 2.796939505, 1e-6},
                         Value{0.0005, 10, 4.586893859, 3e-4}, Value{1e-4, 8, 6.441999821, 2e-3},
                         Value{0.025, 6, 2.446911851, 1e-4}, Value{0.025, 20, 2.085963447, 2e-7},
                         Value{0.025, 30, 2.042272456, 2e-8}, Value{0.01, 12, 2.680997993, 6e-6}}) {
    INFO(v.tail << ", " << v.freedom << ": expected " << v.t << ", got "
                << student_t(v.tail, v.freedom));
    CHECK(std::abs(student_t(v.tail, v.freedom) / v.t - 1.0) < v.tolerance);
  }
}

TEST_CASE("Student's t is right up to a fifth power of the degrees of freedom", "[report]") {
  // For an even number of degrees of freedom the chance beyond t is a finite sum.
  const auto tail_of = [](double t, std::size_t freedom) {
    const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
    const double square = std::cos(angle) * std::cos(angle);
    double term = 1.0;
    double sum = 1.0;
    for (std::size_t i = 2; i < freedom; i += 2) {
      term *= square * static_cast<double>(i - 1) / static_cast<double>(i);
      sum += term;
    }
    return 0.5 * (1.0 - std::sin(angle) * sum);
  };
  const auto exact = [&](double tail, std::size_t freedom) {
    double low = 0.0;
    double high = 40.0;
    for (int i = 0; i < 200; ++i) {
      const double middle = 0.5 * (low + high);
      (tail_of(middle, freedom) > tail ? low : high) = middle;
    }
    return low;
  };
  CHECK(std::abs(exact(0.025, 20) - 2.085963447) < 1e-9);
  // Twice the degrees of freedom divide the error by 32, as long as no term before is off.
  for (const auto& [tail, freedom] : {std::pair{0.005, std::size_t{30}},
                                      {0.005, std::size_t{60}},
                                      {1e-3, std::size_t{80}},
                                      {1e-4, std::size_t{120}}}) {
    const double one = exact(tail, freedom) - student_t(tail, freedom);
    const double two = exact(tail, 2 * freedom) - student_t(tail, 2 * freedom);
    INFO("tail " << tail << ", degrees of freedom " << freedom << ": errors " << one << " and "
                 << two);
    CHECK((one / two > 27.0 && one / two < 37.0));
  }
}

TEST_CASE("an axis matters from the distance on that chance makes in one of a hundred",
          "[report]") {
  // Two points of n draws, +-d around their means: variance 2 n d^2 / (2 n - 2), error
  // sqrt(2 variance / n). Three points make three pairs, each with a third of the chance.
  const auto matters = [](std::size_t draws, std::size_t points, double ratio) {
    const double d = 0.25;
    const auto n = static_cast<double>(draws);
    const double variance = n * d * d / (n - 1.0);
    const std::size_t pairs = points * (points - 1) / 2;
    const double t = student_t(0.005 / static_cast<double>(pairs), points * (draws - 1));
    const double distance = ratio * t * std::sqrt(2.0 * variance / n);
    GridDraws grid;
    for (std::size_t point = 0; point < points; ++point)
      for (std::size_t i = 0; i < draws; ++i)
        grid[{point}].push_back((i % 2 == 0 ? d : -d) + (point == 0 ? distance : 0.0));
    const auto found = axes_that_matter(grid, 1);
    REQUIRE(found);
    return found->front();
  };
  for (const std::size_t draws : std::array<std::size_t, 3>{4, 6, 20})
    for (const std::size_t points : std::array<std::size_t, 2>{2, 3}) {
      INFO(points << " points of " << draws);
      CHECK_FALSE(matters(draws, points, 0.999));
      CHECK(matters(draws, points, 1.001));
      CHECK(matters(draws, points, -1.001));
    }
}

TEST_CASE("five draws beyond the means of points tell, points of other counts too", "[report]") {
  const auto points = [](std::size_t first, std::size_t second, double ratio) {
    // +-1 around their means, the first moved; of an odd number of draws the last is the mean.
    GridDraws grid;
    const auto even = static_cast<double>(first / 2 * 2 + second / 2 * 2);
    const std::size_t freedom = first + second - 2;
    const double error =
        std::sqrt(even / static_cast<double>(freedom) *
                  (1.0 / static_cast<double>(first) + 1.0 / static_cast<double>(second)));
    const double distance = ratio * student_t(0.005, freedom) * error;
    for (const auto& [point, count, mean] :
         {std::tuple{std::size_t{0}, first, distance}, {std::size_t{1}, second, 0.0}})
      for (std::size_t i = 0; i < count; ++i)
        grid[{point}].push_back(mean + (i == count / 2 * 2 ? 0.0 : i % 2 == 0 ? 1.0 : -1.0));
    return axes_that_matter(grid, 1);
  };
  CHECK_FALSE(points(3, 3, 100.0));
  CHECK_FALSE(points(2, 4, 100.0));
  for (const auto& [first, second] :
       {std::pair<std::size_t, std::size_t>{3, 4}, {2, 20}, {30, 4}, {7, 7}}) {
    INFO(first << " and " << second << " draws");
    CHECK(points(first, second, 0.999) == std::vector<bool>{false});
    CHECK(points(first, second, 1.001) == std::vector<bool>{true});
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
