#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "catch.hpp"
#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/quantize.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "common/tensors.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/tensor.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const RandomStream kRandom(7, "common test");

}  // namespace

TEST_CASE("an axis in decades has both of its ends", "[experiments]") {
  const auto steps = [](double from, double to, double per_decade) {
    return log_steps("scale", {from, to, per_decade});
  };
  CHECK(steps(2.0, 2.0, 1.0) == std::vector{100.0});
  CHECK(steps(-1.0, 1.0, 1.0) == std::vector{0.1, 1.0, 10.0});
  CHECK(steps(0.0, 1.0, 4.0).size() == 5);
  CHECK_THROWS_WITH(steps(2.0, 1.9, 1.0), contains("scale_to: expected at least scale_from = 2"));
}

TEST_CASE("log-uniform tensors span their decades and no more", "[experiments]") {
  const TensorStatistics s = tensor_statistics(log_uniform(kRandom, 20000, 5.0));
  CHECK(s.amax <= 1.0);
  CHECK(s.min_nonzero >= static_cast<double>(1e-5F));
  CHECK(s.decades > 4.99);
}

TEST_CASE("log-normal tensors put 99.73 % inside their decades", "[experiments]") {
  const std::vector<float> x = log_normal(kRandom, 20000, 6.0);
  int inside = 0;
  for (const float v : x) inside += std::abs(v) > 1e-3F && std::abs(v) < 1e3F ? 1 : 0;
  CHECK(inside > 19900);
  CHECK(inside < 19990);
}

TEST_CASE("rows of a log-normal tensor share what they are told to", "[experiments]") {
  const std::vector<float> equal = log_normal_rows(kRandom, 4, 8, 6.0, 1.0);
  std::set<float> magnitudes;
  for (const float v : equal) magnitudes.insert(std::abs(v));
  CHECK(magnitudes.size() == 4);
  const std::vector<float> free = log_normal_rows(kRandom, 4, 8, 6.0, 0.0);
  magnitudes.clear();
  for (const float v : free) magnitudes.insert(std::abs(v));
  CHECK(magnitudes.size() == 32);
  CHECK_THROWS_WITH(log_normal_rows(kRandom, 4, 8, 6.0, 1.5), contains("row_share"));
}

TEST_CASE("outlier channels are few, one-sided, and the same in every row", "[experiments]") {
  const OutlierChannels shape{.rows = 64, .channels = 32, .outlier_channels = 3};
  const std::vector<float> x = outlier_channels(kRandom, shape);
  std::set<std::size_t> positive;
  std::set<std::size_t> negative;
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x[i]) < 10.0F) continue;  // 10 sigma of the bulk, 4 below the outliers
    ++count;
    (x[i] > 0.0F ? positive : negative).insert(i % shape.channels);
  }
  CHECK(positive.size() + negative.size() == 3);
  CHECK(count > 3 * 64 * 6 / 10);
  CHECK(count < 3 * 64 * 9 / 10);
  CHECK_THROWS_AS(outlier_channels(kRandom, {.rows = 1, .channels = 2, .outlier_channels = 3}),
                  Error);
}

TEST_CASE("quantization follows the amax of each block", "[experiments]") {
  const Format& f = format(FormatId::e4m3fn);
  const std::vector<float> x{1.0F,   0.5F, 100.0F, 0.0F,  //
                             448.0F, 2.0F, 0.0F,   0.0F};
  const Quantized q = quantize(x, 2, 4, tile(2), f, kNvidiaSatfinite);
  CHECK(q.inverse_scales ==
        std::vector<float>{1.0F / 448.0F, 1.0F / (448.0F / 100.0F), 1.0F, 1.0F});
  CHECK(q.scaled == std::vector<float>{448.0F, 224.0F, 448.0F, 0.0F, 448.0F, 2.0F, 0.0F, 0.0F});
  CHECK(q.codes[0] == 0x7e);
  const Quantized square = quantize(x, 2, 4, {2, 3}, f, kNvidiaSatfinite);
  CHECK(square.inverse_scales == std::vector<float>{1.0F, 1.0F});
  CHECK(square.values == std::vector<float>{1.0F, 0.5F, 96.0F, 0.0F, 448.0F, 2.0F, 0.0F, 0.0F});
  const Quantized whole = quantize(x, 0, format(FormatId::bf16), kNvidiaSatfinite);
  CHECK(whole.inverse_scales.size() == 1);
  CHECK(whole.codes.empty());
  CHECK_THROWS_WITH(quantize(x, 3, 4, kPerTensor, f, kNvidiaSatfinite),
                    contains("3 * 4 elements, got 8"));
}

TEST_CASE("a block without a usable amax has scale 1", "[experiments]") {
  const Format& f = format(FormatId::e4m3fn);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto inverse_of = [&](float x, const CastPolicy& policy) {
    return quantize(std::vector<float>{x}, 0, f, policy).inverse_scales[0];
  };
  CHECK(inverse_of(0.0F, kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(kInf, kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(std::numeric_limits<float>::quiet_NaN(), kNvidiaSatfinite) == 1.0F);
  CHECK(inverse_of(0x1p-149F, kNvidiaSatfinite) == 1.0F / std::numeric_limits<float>::max());
  CHECK(inverse_of(2.0F, kSeedToy) == 1.0F / 120.0F);
  const Quantized q = quantize(std::vector<float>{3.0F, kInf, 2.0F, 1.0F}, 2, f, kNvidiaSatfinite);
  CHECK(q.scaled == std::vector<float>{3.0F, 448.0F, 448.0F, 224.0F});
}

TEST_CASE("a failing point of a parallel loop is reported", "[experiments]") {
  RunContext context;
  context.threads = 2;
  double last = 0.0;
  context.on_progress = [&](double fraction) { last = fraction; };
  std::vector<int> seen(64);
  parallel_points(context, seen.size(), [&](std::size_t i) { seen[i] = 1; });
  CHECK(seen == std::vector<int>(64, 1));
  CHECK(last == 1.0);
  CHECK_THROWS_WITH(parallel_points(context, 8,
                                    [](std::size_t i) {
                                      if (i == 5) throw Error("point", "any but 5", "5");
                                    }),
                    contains("any but 5"));
}

TEST_CASE("an interval over repeats is Student's t of one more draw", "[experiments]") {
  const std::vector<double> draws{1.0, 2.0, 3.0};
  const Interval interval = interval_of(draws);
  CHECK(interval.mean == 2.0);
  CHECK(std::abs(interval.half_width - 9.925 * std::sqrt(4.0 / 3.0)) < 1e-12);
  CHECK(std::isnan(interval_of(std::vector{5.0}).half_width));
  CHECK(interval_text(draws) == "2 ± 11");
  CHECK(interval_text(draws, 100.0) == "200 ± 1100");
  CHECK(interval_text(std::vector{0.5}) == "0.5");
  CHECK(interval_text(std::vector{0.0, 0.0}, 100.0, share_resolution(300)) == "0 ± 1");
  // Shares stay between 0 and 100 %, and say so in another form.
  CHECK(share_text(std::vector{0.4, 0.4}, 100.0, 0.25) == "40 ± 25 %");
  CHECK(share_text(std::vector{40.0, 40.0}, 1.0, 25.0) == "40 ± 25 %");
  CHECK(share_text(std::vector{0.125, 0.125}, 100.0, 0.25) == "12.5 % (0 to 37.5)");
  CHECK(share_text(std::vector{1.0, 1.0}, 100.0, 0.25) == "100 % (75 to 100)");
  CHECK(share_text(std::vector{0.25, 0.25}, 100.0, 0.25) == "25 ± 25 %");
  CHECK(share_text(std::vector{0.5}) == "50 %");
  CHECK(std::abs(student_t_995(11) - 3.106) < 0.011);
  CHECK(std::abs(student_t_995(20) - 2.845) < 0.002);
  CHECK(std::abs(student_t_995(1000) - 2.581) < 0.002);
  // Of many draws of one normal distribution, 99 % lie in the interval of five others.
  const RandomStream random(11, "tests/interval");
  int inside = 0;
  for (std::uint64_t trial = 0; trial < 4000; ++trial) {
    std::vector<double> five;
    for (std::uint64_t i = 0; i < 5; ++i) five.push_back(random.normal(6 * trial + i));
    const Interval of_five = interval_of(five);
    if (std::abs(random.normal(6 * trial + 5) - of_five.mean) <= of_five.half_width) ++inside;
  }
  CHECK(inside > 3930);
  CHECK(inside < 3985);
}

TEST_CASE("a thinned line keeps what lasts one step", "[experiments]") {
  std::vector<double> y(10'000, 1.0);
  y[1234] = 9.0;
  y[1235] = -9.0;
  const Series series = thinned("y", y);
  CHECK(series.x.size() <= 1002);
  CHECK(*std::max_element(series.y.begin(), series.y.end()) == 9.0);
  CHECK(*std::min_element(series.y.begin(), series.y.end()) == -9.0);
  for (std::size_t i = 0; i < series.x.size(); ++i)
    CHECK(series.y[i] == y[static_cast<std::size_t>(series.x[i])]);
  CHECK(std::is_sorted(series.x.begin(), series.x.end()));
  CHECK(thinned("y", {3.0, 1.0, 2.0}).y == std::vector{3.0, 1.0, 2.0});
}

TEST_CASE("Student's t of a few draws is that of its tables", "[experiments]") {
  const std::vector<double> table{63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499,
                                  3.355,  3.250, 3.169, 3.106, 3.055, 3.012, 2.977,
                                  2.947,  2.921, 2.898, 2.878, 2.861, 2.845};
  for (std::size_t i = 0; i < table.size(); ++i) {
    CAPTURE(i + 1);
    CHECK(std::abs(student_t_995(i + 1) - table[i]) < (i < 10 ? 1e-12 : 0.011));
  }
  CHECK(std::abs(student_t_995(30) - 2.750) < 0.001);
  CHECK(std::abs(student_t_995(60) - 2.660) < 0.001);
}

TEST_CASE("texts of intervals have two digits behind their sign, and no exponent below a million",
          "[experiments]") {
  const auto text = [](double mean, double half_width) {
    return interval_text(Interval{mean, half_width});
  };
  CHECK(text(1.2345, 0.0123) == "1.23 ± 0.012");
  CHECK(text(1.2345, 9.94) == "1.23 ± 9.9");
  CHECK(text(1.2345, 99.4) == "1.23 ± 99");
  CHECK(text(1.2345, 99.5) == "1.23 ± 100");
  CHECK(text(1.2345, 144.0) == "1.23 ± 140");
  CHECK(text(1.2345, 12'345.0) == "1.23 ± 12000");
  CHECK(text(1.2345, 999'999.0) == "1.23 ± 1000000");
  CHECK(text(1.2345, 1.23e6) == "1.23 ± 1.2e+06");
  CHECK(text(1e7, 0.0) == "1e+07 ± 0");
  CHECK(interval_text(Interval{0.5, 0.001}, 100.0, 0.02) == "50 ± 2");
  CHECK(interval_text(Interval{0.5, 0.03}, 100.0, 0.02) == "50 ± 3");
  CHECK(range_text({0.25, 0.125, 0.5}) == "25 % (12.5 to 50)");
  const Spread none = spread_of({});
  CHECK((none.mean == 0.0 && none.min == 0.0 && none.max == 0.0));
  const Spread some = spread_of(std::vector{3.0, -1.0, 4.0});
  CHECK((some.mean == 2.0 && some.min == -1.0 && some.max == 4.0));
}

TEST_CASE("series of points have their label's places, bands and styles", "[experiments]") {
  struct Point {
    const char* label;
    double x;
  };
  const std::vector<Point> points{{"a", 3}, {"", 9}, {"b", 1}, {"a", 2}};
  const auto all = series_by(
      points, [](const Point& p) { return std::string(p.label); },
      [](const Point& p) { return std::tuple(p.x, 2 * p.x, 3 * p.x, 4 * p.x); },
      [](const Point& p) { return p.x > 2 ? Series::Style::dashed : Series::Style::steps; });
  REQUIRE(all.size() == 2);
  CHECK((all[0].label == "a" && all[1].label == "b"));
  CHECK((all[0].style == Series::Style::dashed && all[1].style == Series::Style::steps));
  CHECK(all[0].x == std::vector<double>{3, 2});
  CHECK(all[0].y == std::vector<double>{6, 4});
  CHECK(all[0].low == std::vector<double>{9, 6});
  CHECK(all[0].high == std::vector<double>{12, 8});
  CHECK(all[1].x == std::vector<double>{1});

  Plot plot{"p", "t", {"x"}, {"y"}, all};
  plot = in_percent(std::move(plot));
  CHECK(plot.series[0].x == std::vector<double>{3, 2});
  CHECK(plot.series[0].y == std::vector<double>{600, 400});
  CHECK(plot.series[0].low == std::vector<double>{900, 600});
  CHECK(plot.series[0].high == std::vector<double>{1200, 800});

  std::vector<Series> variants;
  for (const char* label : {"x, cut", "x, whole", "y, cut", "z, whole", "z, cut, cut"})
    variants.push_back({label, {}, {}});
  share_colours(variants, "cut", "whole");
  CHECK(variants[0].like == std::size_t{1});
  CHECK(!variants[1].like);
  CHECK(!variants[2].like);  // there is no whole y
  CHECK(!variants[4].like);  // nor one that is whole once
}

TEST_CASE("a thinned line has the extremes of each stretch, in their order", "[experiments]") {
  const RandomStream random(9, "test/thinned");
  for (const std::size_t count : {1U, 499U, 500U, 999U, 1000U, 1503U, 2499U}) {
    std::vector<double> y(count);
    for (std::size_t i = 0; i < count; ++i) y[i] = random.uniform(i);
    const std::size_t stride = std::max<std::size_t>(1, count / 500);
    std::vector<double> x;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = i / stride * stride;
      const auto [least, most] = std::minmax_element(
          y.begin() + static_cast<std::ptrdiff_t>(begin),
          y.begin() + static_cast<std::ptrdiff_t>(std::min(count, begin + stride)));
      if (y[i] == *least || y[i] == *most) x.push_back(static_cast<double>(i));
    }
    CAPTURE(count);
    CHECK(thinned("y", y, Series::Style::steps).x == x);
    CHECK(thinned("y", y, Series::Style::steps).style == Series::Style::steps);
  }
}

TEST_CASE("a tensor is turned and scaled as a whole", "[experiments]") {
  CHECK(transposed({1, 2, 3, 4, 5, 6}, 2, 3) == std::vector<float>{1, 4, 2, 5, 3, 6});
  std::vector<float> x{2.0F, -8.0F, 0.0F};
  normalize_amax(x);
  CHECK(x == std::vector<float>{0.25F, -1.0F, 0.0F});
  x = {0.0F, -0.0F};
  normalize_amax(x);
  CHECK(x == std::vector<float>{0.0F, 0.0F});
}

TEST_CASE("drawn tensors are those of their streams, element by element", "[experiments]") {
  const std::size_t count = 300;
  const std::vector<float> even = uniform(kRandom, count, -2.0, 6.0);
  const std::vector<float> bell = normal(kRandom, count, 0.25);
  const std::vector<float> tailed = student_t(kRandom, count, 5, 0.5);
  const std::vector<float> decades = log_uniform(kRandom, count, 4.0);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    REQUIRE(even[i] == static_cast<float>(-2.0 + 8.0 * kRandom.uniform(i)));
    REQUIRE(bell[i] == static_cast<float>(0.25 * kRandom.normal(i)));
    REQUIRE(tailed[i] == static_cast<float>(0.5 * kRandom.student_t(i, 5)));
    const double size = std::pow(10.0, -4.0 * kRandom.uniform(2 * i + 1));
    REQUIRE(decades[i] == static_cast<float>((kRandom.bits64(2 * i) & 1) != 0 ? -size : size));
  }
  // Shares of a variance: those of rows and of elements make the whole.
  for (const double share : {0.0, 0.25, 1.0}) {
    const std::vector<float> x = log_normal_rows(kRandom, 400, 50, 6.0, share);
    double all = 0.0;
    double within = 0.0;
    for (std::size_t r = 0; r < 400; ++r) {
      double row = 0.0;
      double squares = 0.0;
      for (std::size_t c = 0; c < 50; ++c) {
        const double exponent = std::log10(std::abs(static_cast<double>(x[50 * r + c])));
        row += exponent / 50.0;
        squares += exponent * exponent / 50.0;
        all += exponent * exponent / 20000.0;
      }
      within += (squares - row * row) * 50.0 / 49.0 / 400.0;
    }
    CAPTURE(share, all, within);
    CHECK(std::abs(all - 1.0) < 0.2);
    CHECK(std::abs(within - (1.0 - share)) < 0.1);
  }
}

TEST_CASE("one row lies below another beyond chance if draws agree", "[experiments]") {
  using Row = std::vector<double>;
  CHECK(below_beyond_chance(Row{1.0, 1.1, 0.9, 5.0, 2.0}, Row{1.01, 1.2, 1.0, 50.0, 2.1}));
  CHECK_FALSE(below_beyond_chance(Row{1.0, 1.1, 0.9, 5.0, 2.0}, Row{1.01, 1.2, 1.0, 50.0, 2.0}));
  // Of fewer than five draws the differences must be larger than they spread.
  CHECK(below_beyond_chance(Row{1.0, 1.0, 1.0}, Row{10.0, 10.5, 9.5}));
  CHECK_FALSE(below_beyond_chance(Row{1.0, 1.0, 1.0}, Row{1.1, 10.5, 200.0}));
  CHECK_FALSE(below_beyond_chance(Row{1.0, 1.0}, Row{10.0, 10.0}));
  // Values of both signs are compared by their differences.
  CHECK(below_beyond_chance(Row{-5.0, -5.1, -4.9}, Row{5.0, 5.1, 4.9}));

  const std::vector<Row> rows{Row(5, 3.0), {1.0, 1.2, 1.0, 1.2, 1.0}, {1.1, 1.1, 1.1, 1.1, 1.1}};
  CHECK(smallest_of(rows) == std::vector<std::size_t>{1, 2});
  CHECK(largest_of(rows) == std::vector<std::size_t>{0});
}
