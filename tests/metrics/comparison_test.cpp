#include "fp8lab/metrics/comparison.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Comparison compare_floats(const std::vector<float>& reference, const std::vector<float>& actual) {
  return compare(std::span<const float>(reference), std::span<const float>(actual));
}

}  // namespace

TEST_CASE("a comparison gives the textbook figures", "[metrics]") {
  const Comparison c = compare_floats({3.0F, -4.0F, 0.0F, 12.0F}, {3.0F, -5.0F, 0.0F, 10.0F});
  CHECK(c.count == 4);
  CHECK(c.mismatches == 2);
  CHECK(c.mismatch_rate() == 0.5);
  CHECK(c.relative_l2 == std::sqrt(5.0) / std::sqrt(169.0));
  CHECK(c.sqnr_db == 10.0 * std::log10(169.0 / 5.0));
  CHECK(c.cosine == 149.0 / (std::sqrt(169.0) * std::sqrt(134.0)));
  CHECK(c.calc_diff == 1.0 - 2.0 * 149.0 / 303.0);
  CHECK(c.max_absolute == 2.0);
  CHECK(c.max_absolute_index == 3);
  CHECK(c.max_relative == 0.25);
  CHECK(c.max_relative_index == 1);
  CHECK(c.mean_signed_relative == -1.0 / 19.0);
}

TEST_CASE("equal tensors have no error, whatever they hold", "[metrics]") {
  const std::vector<float> x{1.0F, -0.0F, kInf, -kInf, kNaN};
  const Comparison c = compare_floats(x, {1.0F, 0.0F, kInf, -kInf, -kNaN});
  CHECK(c.mismatches == 0);
  CHECK(c.non_finite_mismatches == 0);
  CHECK(c.relative_l2 == 0.0);
  CHECK(c.sqnr_db == std::numeric_limits<double>::infinity());
  CHECK(c.cosine == 1.0);
  CHECK(c.calc_diff == 0.0);
  CHECK(c.max_relative == 0.0);
}

TEST_CASE("no figure comes from a tensor without a finite pair", "[metrics]") {
  for (const float value : {kNaN, kInf, -kInf}) {
    INFO("value " << value);
    const Comparison c = compare_floats({value, value}, {value, value});
    CHECK(c.mismatches == 0);
    CHECK(c.non_finite_mismatches == 0);
    for (const double figure : {c.relative_l2, c.sqnr_db, c.cosine, c.calc_diff, c.max_absolute,
                                c.max_relative, c.mean_signed_relative})
      CHECK(std::isnan(figure));
  }
  CHECK(compare_floats({kNaN, 1.0F}, {kNaN, 1.0F}).relative_l2 == 0.0);
  CHECK(compare_floats({}, {}).relative_l2 == 0.0);
}

TEST_CASE("one wrong NaN or infinity spoils every real-valued figure", "[metrics]") {
  const std::vector<std::pair<float, float>> bad{{1.0F, kNaN}, {kNaN, 1.0F}, {kInf, -kInf},
                                                 {kInf, kNaN}, {1.0F, kInf}, {-kInf, 1.0F}};
  for (const auto& [x, y] : bad) {
    CAPTURE(x, y);
    const Comparison c = compare_floats({2.0F, 5.0F, x, x}, {2.0F, 9.0F, y, y});
    CHECK(c.mismatches == 3);
    CHECK(c.non_finite_mismatches == 2);
    CHECK(std::isnan(c.relative_l2));
    CHECK(std::isnan(c.sqnr_db));
    CHECK(std::isnan(c.cosine));
    CHECK(std::isnan(c.calc_diff));
    CHECK(std::isnan(c.max_absolute));
    CHECK(std::isnan(c.mean_signed_relative));
    CHECK(c.max_relative_index == 2);
  }
}

TEST_CASE("zero references have defined errors", "[metrics]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Comparison both = compare_floats({0.0F, -0.0F}, {0.0F, 0.0F});
  CHECK(both.relative_l2 == 0.0);
  CHECK(both.cosine == 1.0);
  CHECK(both.calc_diff == 0.0);
  CHECK(both.mean_signed_relative == 0.0);

  const Comparison invented = compare_floats({0.0F, 0.0F}, {0.0F, 1.0F});
  CHECK(invented.relative_l2 == kInfinity);
  CHECK(invented.sqnr_db == -kInfinity);
  CHECK(invented.cosine == 0.0);
  CHECK(invented.calc_diff == 1.0);
  CHECK(invented.max_relative == kInfinity);
  CHECK(invented.max_relative_index == 1);

  const Comparison lost = compare_floats({0.0F, 2.0F}, {0.0F, 0.0F});
  CHECK(lost.relative_l2 == 1.0);
  CHECK(lost.sqnr_db == 0.0);
  CHECK(lost.cosine == 0.0);
  CHECK(lost.max_relative == 1.0);
  CHECK(lost.mean_signed_relative == -1.0);

  CHECK(compare_floats({}, {}).mismatch_rate() == 0.0);
}

TEST_CASE("a size mismatch names both sizes", "[metrics]") {
  CHECK_THROWS_WITH(compare_floats({1.0F, 2.0F}, {1.0F}),
                    contains("actual: expected 2 elements") && contains("got 1"));
}

TEST_CASE("the reference may be FP64", "[metrics]") {
  const std::vector<double> reference{1.0, 1.0 + 0x1p-40};
  const std::vector<float> actual{1.0F, 1.0F};
  const Comparison c = compare(std::span<const double>(reference), std::span<const float>(actual));
  CHECK(c.mismatches == 1);
  CHECK(c.max_absolute == 0x1p-40);
  CHECK(
      compare(std::span<const double>(reference), std::span<const double>(reference)).mismatches ==
      0);
}

TEST_CASE("the mismatch rate under a tolerance counts what is beyond it", "[metrics]") {
  const std::vector<float> x{100.0F, 100.0F, 0.0F, kInf, kInf, kNaN, 1.0F, kNaN};
  const std::vector<float> y{101.0F, 101.5F, 0.25F, kInf, 7.0F, kNaN, kNaN, 1.0F};
  CHECK(mismatch_rate(x, y, 0.01, 0.25) == 4.0 / 8.0);  // 101.5, inf : 7, and the lone NaNs
  CHECK(mismatch_rate(x, y, 0.0, 0.0) == 6.0 / 8.0);
  CHECK(mismatch_rate({}, {}, 0.0, 0.0) == 0.0);
  CHECK_THROWS_AS(mismatch_rate(x, y, -1.0, 0.0), Error);
  CHECK_THROWS_AS(mismatch_rate(x, y, 0.0, -1.0), Error);
  CHECK_THROWS_AS(mismatch_rate(x, {}, 0.0, 0.0), Error);
}

TEST_CASE("the pairwise sum keeps what a running sum loses", "[metrics]") {
  // 2^20 terms of 0.1: a running sum is off by about 1e-7 of an ulp a term.
  constexpr std::size_t kCount = std::size_t{1} << 20;
  PairwiseSum pairwise;
  double running = 0.0;
  for (std::size_t i = 0; i < kCount; ++i) {
    pairwise.add(0.1);
    running += 0.1;
  }
  const double exact = 0.1 * static_cast<double>(kCount);  // a power of two: exact
  const double pairwise_error = std::abs(pairwise.total() - exact);
  const double running_error = std::abs(running - exact);
  CAPTURE(pairwise_error, running_error);
  CHECK(pairwise_error <= exact * 150.0 * 0x1p-53);
  CHECK(pairwise_error < running_error / 10.0);
}

TEST_CASE("the pairwise sum takes every length", "[metrics]") {
  PairwiseSum sum;
  for (std::size_t n = 1; n <= 2000; ++n) {
    sum.add(static_cast<double>(n));
    CAPTURE(n);
    REQUIRE(sum.total() == static_cast<double>(n * (n + 1) / 2));
  }
}

TEST_CASE("the pairwise sum adds 128 terms in order, then blocks of one size in pairs",
          "[metrics]") {
  // Terms so far apart that each order rounds otherwise.
  std::uint64_t state = 1;
  std::vector<double> terms;
  for (int i = 0; i < 128 * 21 + 77; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    terms.push_back(std::ldexp(static_cast<double>(state >> 11), -static_cast<int>(state >> 59)));
  }
  PairwiseSum sum;
  std::vector<std::pair<std::size_t, double>> blocks;  // sizes, each larger than those behind it
  double partial = 0.0;
  for (std::size_t n = 1; n <= terms.size(); ++n) {
    sum.add(terms[n - 1]);
    partial += terms[n - 1];
    if (n % 128 == 0) {
      blocks.emplace_back(1, partial);
      partial = 0.0;
      while (blocks.size() > 1 && blocks[blocks.size() - 2].first == blocks.back().first) {
        const auto last = blocks.back();
        blocks.pop_back();
        blocks.back() = {2 * last.first, last.second + blocks.back().second};
      }
    }
    double total = partial;
    for (std::size_t i = blocks.size(); i-- > 0;) total += blocks[i].second;
    CAPTURE(n);
    REQUIRE(sum.total() == total);
  }
}
