// Parts of experiments against loops over all that they hold, and what they refuse, word for word.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "accumulator-drift/drift.hpp"
#include "accumulator-drift/fit.hpp"
#include "catch.hpp"
#include "claims/claim.hpp"
#include "claims/recorded.hpp"
#include "common/page_reads.hpp"
#include "common/tensors.hpp"
#include "cost/cost_tables.hpp"
#include "delayed-dynamics/dynamics.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "int8-vs-fp8/grid.hpp"
#include "message_of.hpp"
#include "outlier/outlier.hpp"
#include "seed-listings/repeats.hpp"

namespace fp8lab::experiments::parts_test {
namespace {

const char* const kAccepted = "accepted";

/// The nearest number of a grid by a look at all of them; of two the one with the even code.
double nearest_of_all(const Grid& grid, double x) {
  int best = 0;
  for (int code = 1; code <= grid.last_code; ++code) {
    const double distance = std::abs(grid.value(code) - std::abs(x));
    const double least = std::abs(grid.value(best) - std::abs(x));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return x < 0.0 ? -grid.value(best) : grid.value(best);
}

}  // namespace

TEST_CASE("grids of eight bits: every number, and the nearest one of any other", "[experiments]") {
  const RandomStream random(3, "test/grids");
  struct Case {
    const char* name;
    int exponent_bits;
    double largest;
  };
  for (const Case& c :
       {Case{"INT8", 0, 127.0 / 128.0}, Case{"2E5M", 2, 7.875}, Case{"3E4M", 3, 124.0},
        Case{"4E3M", 4, 0x1.ep14}, Case{"5E2M", 5, 0x1.cp30}, Case{"E4M3 (OCP)", 4, 0x1.cp14},
        Case{"E5M2 (OCP)", 5, 0x1.cp29}}) {
    const Grid grid = find_grid(c.name);
    CAPTURE(c.name);
    CHECK(grid.exponent_bits == c.exponent_bits);
    CHECK(grid.max() == c.largest);
    CHECK(grid.value(0) == 0.0);
    // Steps double at every binade that begins behind the first one.
    const int a_binade = 1 << (7 - c.exponent_bits);
    double value = 0.0;
    for (int code = 1; code <= grid.last_code; ++code) {
      const int doublings = c.exponent_bits == 0 ? 0 : std::max(0, (code - 1) / a_binade - 1);
      value += std::ldexp(1.0, doublings) / a_binade;
      CAPTURE(code);
      CHECK(grid.value(code) == value);
      // The number itself, and both sides of the middle to the one below.
      const double middle = (grid.value(code) + grid.value(code - 1)) / 2.0;
      for (const double x : {value, middle, std::nextafter(middle, 0.0),
                             std::nextafter(middle, 2.0 * middle), -value, -middle})
        CHECK(grid.nearest(x) == nearest_of_all(grid, x));
    }
    CHECK(grid.nearest(2.0 * c.largest) == c.largest);
    CHECK(grid.nearest(-1e300) == -c.largest);
    CHECK(std::signbit(grid.nearest(-0.0)));

    std::vector<float> x;
    for (std::uint64_t i = 0; i < 40; ++i)
      x.push_back(static_cast<float>(random.normal(i)) * (i == 7 ? 9.0F : 1.0F));
    const auto amax = static_cast<double>(std::abs(*std::max_element(
        x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })));
    GridLoss least{0.0, std::numeric_limits<double>::infinity(), 0.0};
    for (int step = 0; step <= 12; ++step) {
      const double clip = std::exp2(-static_cast<double>(step) / 4.0);
      const double scale = c.largest / (clip * amax);
      double error = 0.0;
      double signal = 0.0;
      for (const float one : x) {
        const double exact = static_cast<double>(one);
        const double difference = nearest_of_all(grid, exact * scale) / scale - exact;
        error += difference * difference;
        signal += exact * exact;
      }
      const GridLoss loss = loss_at(grid, x, clip);
      CAPTURE(clip);
      CHECK(loss.clip == clip);
      CHECK(std::abs(loss.mse / (error / 40.0) - 1.0) < 1e-12);
      CHECK(std::abs(loss.sqnr_db - 10.0 * std::log10(signal / error)) < 1e-9);
      if (loss.mse < least.mse) least = loss;
    }
    // Four steps an octave, three octaves: the end is tried too.
    const GridLoss best = best_loss(grid, x, 4, 3);
    CHECK(best.clip == least.clip);
    CHECK(best.mse == least.mse);
    CHECK(best.sqnr_db == least.sqnr_db);
    CHECK(best_loss(grid, x, 4, 0).clip == 1.0);
  }
  // So many small elements that half of the largest may go, at the very last clip.
  std::vector<float> spiked = uniform(random, 100'000, -0.4, 0.4);
  spiked[5] = 1.0F;
  CHECK(best_loss(find_grid("INT8"), spiked, 1, 1).clip == 0.5);
}

TEST_CASE("what an outlier costs is counted over all other elements", "[experiments]") {
  const Format& e4m3 = format(FormatId::e4m3fn);
  const RandomStream random(9, "test/damage");
  std::vector<float> x(90);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = i % 7 == 0 ? 0.0F : static_cast<float>(random.normal(i)) * 1e-3F;
  for (const std::size_t outlier : {std::size_t{0}, std::size_t{41}, std::size_t{89}}) {
    std::vector<float> with = x;
    with[outlier] = 70.0F;
    for (const std::size_t tile : {std::size_t{0}, std::size_t{16}, std::size_t{32}})
      for (const CastPolicy& policy : {kNvidiaSatfinite, kFlush}) {
        const std::size_t length = tile == 0 ? with.size() : tile;
        double crushed = 0.0;
        double damaged = 0.0;
        double error = 0.0;
        double norm = 0.0;
        double of_outlier = 0.0;
        for (std::size_t i = 0; i < with.size(); ++i) {
          float amax = 0.0F;
          const std::size_t begin = i / length * length;
          for (std::size_t at = begin; at < std::min(begin + length, with.size()); ++at)
            amax = std::max(amax, std::abs(with[at]));
          const float scale = 448.0F / amax;
          const double q = round_trip(e4m3, policy, with[i] * scale);
          const auto back = static_cast<double>(static_cast<float>(q) * (1.0F / scale));
          const auto exact = static_cast<double>(with[i]);
          const double off = std::abs(back - exact);
          if (i == outlier) {
            of_outlier = off * off;
            continue;
          }
          crushed += exact != 0.0 && q == 0.0 ? 1.0 : 0.0;
          damaged += off > std::abs(exact) / 16.0 ? 1.0 : 0.0;
          error += off * off;
          norm += exact * exact;
        }
        const OutlierDamage damage = measure_damage(with, outlier, tile, e4m3, policy);
        CAPTURE(outlier, tile, crushed, damaged);
        CHECK(damage.crushed == crushed);
        CHECK(damage.crushed_share == crushed / 89.0);
        CHECK(damage.damaged == damaged);
        CHECK(std::abs(damage.bulk_relative_l2 - std::sqrt(error / norm)) < 1e-12);
        CHECK(std::abs(damage.whole_relative_l2 -
                       std::sqrt((error + of_outlier) / (norm + 4900.0))) < 1e-12);
      }
  }
}

TEST_CASE("running sums have every step of the first row, whatever their lengths",
          "[experiments]") {
  const AccumulatorModel& model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  const Format& e4m3 = format(FormatId::e4m3fn);
  for (const std::int64_t k : {96, 200, 333}) {
    const QuantizedOperands q = quantize(make_operands({Distribution::uniform, 2, 3, k}, 5));
    std::vector<Unpacked> a;
    std::vector<Unpacked> b;
    for (std::int64_t at = 0; at < k; ++at) {
      a.push_back(unpack(e4m3, q.a[static_cast<std::size_t>(at)]));
      b.push_back(unpack(e4m3, q.b[static_cast<std::size_t>(at)]));
    }
    for (const std::int64_t promotion : {32, 64, 96})
      for (const std::int64_t step : {32, 96}) {
        CAPTURE(k, promotion, step);
        const RunningSums sums = running_sums(q, model, promotion, step);
        REQUIRE(sums.k.size() == static_cast<std::size_t>(k / step));
        for (std::size_t i = 0; i < sums.k.size(); ++i) {
          const auto length = (i + 1) * static_cast<std::size_t>(step);
          double exact = 0.0;
          for (std::size_t at = 0; at < length; ++at)
            exact += decode(e4m3, q.a[at]) * decode(e4m3, q.b[at]);
          float promoted = 0.0F;
          float partial = 0.0F;
          for (std::size_t at = 0; at < length; at += static_cast<std::size_t>(promotion)) {
            const std::size_t count = std::min(static_cast<std::size_t>(promotion), length - at);
            partial = dot_product(model, std::span(a).subspan(at, count),
                                  std::span(b).subspan(at, count));
            if (count < static_cast<std::size_t>(promotion)) break;
            promoted += partial;
            partial = 0.0F;
          }
          const float whole =
              dot_product(model, std::span(a).first(length), std::span(b).first(length));
          CHECK(sums.k[i] == static_cast<double>(length));
          CHECK(sums.exact[i] == exact * q.inverse_scale);
          CHECK(sums.unpromoted[i] == static_cast<double>(whole) * q.inverse_scale);
          CHECK(sums.promoted[i] ==
                (static_cast<double>(promoted) + static_cast<double>(partial)) * q.inverse_scale);
        }
      }
  }
}

TEST_CASE("parts of experiments refuse what makes no sense, by its name", "[experiments]") {
  const auto said = [](const auto& call) { return test::message_of(call, kAccepted); };
  const std::vector<double> one{1.0};
  const std::vector<double> two{1.0, 2.0};
  const std::vector<double> three{1.0, 2.0, 4.0};
  CHECK(said([&] { (void)fit_line(three, two); }) == "y: expected 3 values, as x has, got 2");
  CHECK(said([&] { (void)fit_power_law(two, three); }) == "y: expected 2 values, as x has, got 3");
  CHECK(said([&] { (void)fit_line(one, one); }) == "x: expected at least 2 points, got 1");
  CHECK(said([&] { (void)fit_line(two, two); }) == kAccepted);
  CHECK(std::isnan(fit_line(two, two).slope_standard_error));
  // Of a law only the points with an error count.
  const std::vector<double> some{0.0, 3.0, -1.0};
  CHECK(said([&] { (void)fit_power_law(three, some); }) == "x: expected at least 2 points, got 1");

  const QuantizedOperands q = quantize(make_operands({Distribution::ones, 1, 1, 64}, 1));
  const AccumulatorModel& model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  const auto running = [&](std::int64_t promotion, std::int64_t step) {
    return said([&] { (void)running_sums(q, model, promotion, step); });
  };
  CHECK(running(32, 64) == kAccepted);
  for (const std::int64_t wrong : {-32, 0, 1, 33, 48}) {
    CHECK(running(32, wrong) ==
          fmt::format("step: expected a positive multiple of 32 terms, got {}", wrong));
    CHECK(
        running(wrong, 32) ==
        fmt::format("promotion_interval: expected a positive multiple of 32 terms, got {}", wrong));
  }
  CHECK(running(32, 96) == "k: expected at least one step of 96, got 64");

  const auto operands = [&](OperandSpec spec) {
    return said([&] { (void)make_operands(spec, 1); });
  };
  CHECK(operands({Distribution::ones, 1, 1, 1}) == kAccepted);
  CHECK(operands({Distribution::ones, 0, 2, 3}) == "operands: expected m, n, k > 0, got 0, 2, 3");
  CHECK(operands({Distribution::ones, 1, 0, 3}) == "operands: expected m, n, k > 0, got 1, 0, 3");
  CHECK(operands({Distribution::ones, 1, 2, 0}) == "operands: expected m, n, k > 0, got 1, 2, 0");
  CHECK(operands({Distribution::correlated, 1, 1, 1, 0.0}) == kAccepted);
  CHECK(operands({Distribution::correlated, 1, 1, 1, 1.0}) == kAccepted);
  CHECK(operands({Distribution::correlated, 1, 1, 1, -0.25}) ==
        "correlation: expected 0 .. 1, got -0.25");
  CHECK(operands({Distribution::correlated, 1, 1, 1, 1.25}) ==
        "correlation: expected 0 .. 1, got 1.25");
  CHECK(operands({Distribution::own, 1, 1, 1}) == "own_a: expected a source of operands, got none");
  CHECK(said([] { (void)find_distribution("one"); }) ==
        "distribution: expected uniform, normal, correlated, ones or own, got 'one'");

  const RandomStream random(1, "test/refusals");
  const auto rows = [&](double share) {
    return said([&] { (void)log_normal_rows(random, 2, 2, 3.0, share); });
  };
  CHECK((rows(0.0) == kAccepted && rows(1.0) == kAccepted));
  CHECK(rows(-0.5) == "row_share: expected 0 to 1, got -0.5");
  CHECK(rows(1.5) == "row_share: expected 0 to 1, got 1.5");
  const auto channels = [&](std::size_t outliers) {
    return said([&] {
      (void)outlier_channels(random, {.rows = 2, .channels = 3, .outlier_channels = outliers});
    });
  };
  CHECK(channels(3) == kAccepted);
  CHECK(channels(4) == "outlier_channels: expected at most 3 channels, got 4");
  const auto outlier_at = [&](std::size_t at) {
    return said([&] { (void)make_outlier_tensor(random, {16, 0.4, 1.0, at, false}); });
  };
  CHECK(outlier_at(15) == kAccepted);
  CHECK(outlier_at(16) == "outlier_index: expected below 16 elements, got 16");

  CHECK(said([] { (void)quantiles_of({}); }) == "values: expected at least 1, got 0");
  CHECK(said([] { (void)repeat_dots(1, 0, 1); }) == "repeats: expected a positive number, got 0");
  const auto torch = [&](std::int64_t repeats, float outlier) {
    return said([&] { (void)repeat_torch(1, repeats, outlier, 1); });
  };
  CHECK(torch(-1, 1.0F) == "repeats: expected a positive number, got -1");
  const auto largest = static_cast<float>(format(FormatId::bf16).max_finite());
  CHECK(torch(1, largest) == kAccepted);
  CHECK(torch(1, -largest) == kAccepted);
  for (const float beyond : {std::nextafter(largest, 3.4e38F), std::nextafter(-largest, -3.4e38F)})
    CHECK(torch(1, beyond) == fmt::format("outlier: expected a BF16 number, |x| <= {}, got {}",
                                          format(FormatId::bf16).max_finite(), beyond));

  CHECK(said([] { (void)find_grid("E3M4"); }) ==
        "formats: expected one of INT8, 2E5M, 3E4M, 4E3M, 5E2M, E4M3 (OCP), E5M2 (OCP), got "
        "'E3M4'");
  const auto loss = [&](float x) {
    const std::vector<float> values{0.0F, x};
    return said([&] { (void)loss_at(find_grid("INT8"), values, 1.0); });
  };
  CHECK(loss(1e-30F) == kAccepted);
  CHECK(loss(0.0F) == "x: expected a finite amax above 0, got 0");
  CHECK(loss(-std::numeric_limits<float>::infinity()) ==
        "x: expected a finite amax above 0, got inf");

  const auto trace = [&](TraceShape shape) {
    return said([&] { (void)make_trace(random, "sawtooth", shape); });
  };
  CHECK(trace({.steps = 2, .jump = 1e-9, .period = 1}) == kAccepted);
  CHECK(trace({.steps = 1}) == "steps: expected at least 2, got 1");
  CHECK(trace({.period = 0}) == "period: expected at least 1, got 0");
  CHECK(trace({.jump = 0.0}) == "jump: expected a positive number, got 0");
  CHECK(trace({.jump = -2.0}) == "jump: expected a positive number, got -2");

  const std::vector<MeasuredValue> values{{"a", "1", 2.0}, {"b", "1", 3.0}};
  CHECK(value_of(values, "b") == 3.0);
  CHECK(said([&] { (void)value_of(values, "c"); }) == "values: expected one called c, got none");
  CHECK(said([] { (void)recorded("none"); }) ==
        "recorded: expected a value of recorded.inc, got 'none'");
  const ModelCosts costs = model_costs(find_training_setup("7b"), training_schemes());
  CHECK(said([&] { (void)costs.of("bf16"); }) == kAccepted);
  CHECK(said([&] { (void)costs.of("bf8"); }) ==
        "scheme: expected one that was computed, got 'bf8'");
  CHECK(said([] { (void)PageCountedTensor({}, 1 << 20); }) ==
        "values: expected at least one, got none");
}

}  // namespace fp8lab::experiments::parts_test
