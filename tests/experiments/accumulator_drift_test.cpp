#include "accumulator-drift/drift.hpp"

#include <cmath>
#include <limits>

#include "accumulator-drift/fit.hpp"
#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const AccumulatorModel& model(std::string_view name) {
  return find_instruction_model(name).accumulator;
}

LineFit bf16_slope(std::string_view accumulator, Distribution distribution) {
  std::vector<double> lengths;
  std::vector<double> errors;
  for (const std::int64_t k : {32, 64, 128, 256, 512}) {
    const Bf16Operands operands = make_operands({distribution, 8, 8, k}, 3);
    lengths.push_back(static_cast<double>(k));
    errors.push_back(accumulation_error(operands, model(accumulator), 0, 1).relative_l2);
  }
  return fit_power_law(lengths, errors);
}

Comparison e4m3_error(std::string_view accumulator, Distribution distribution, std::int64_t k,
                      std::int64_t interval) {
  return accumulation_error(quantize(make_operands({distribution, 6, 6, k}, 3)), model(accumulator),
                            interval, 1);
}

}  // namespace

TEST_CASE("a line through exact points has its slope and no standard error", "[experiments]") {
  const std::vector<double> x{1.0, 2.0, 4.0, 8.0};
  const std::vector<double> y{3.0, 12.0, 48.0, 192.0};
  const LineFit fit = fit_power_law(x, y);
  CHECK(std::abs(fit.slope - 2.0) < 1e-12);
  CHECK(std::abs(fit.intercept - std::log2(3.0)) < 1e-12);
  CHECK(fit.slope_standard_error < 1e-12);
  CHECK(fit.points == 4);
}

TEST_CASE("a line's standard error is the textbook's", "[experiments]") {
  // y = 1 + 2x with residuals +1, -2, +1: slope unchanged, s^2 = 6 / 1, Sxx = 2.
  const std::vector<double> x{0.0, 1.0, 2.0};
  const std::vector<double> y{2.0, 1.0, 6.0};
  const LineFit fit = fit_line(x, y);
  CHECK(std::abs(fit.slope - 2.0) < 1e-12);
  CHECK(std::abs(fit.slope_standard_error - std::sqrt(3.0)) < 1e-12);
  CHECK_THROWS_WITH(fit_line(x, std::vector<double>{1.0}), contains("3 values"));
}

TEST_CASE("truncated 14-bit sums drift like K, nearest ones like its root", "[experiments]") {
  const Distribution d = GENERATE(Distribution::uniform, Distribution::normal);
  const LineFit truncated = bf16_slope("sequential14.rz", d);
  const LineFit nearest = bf16_slope("sequential14.rne", d);
  INFO(to_string(d) << ": truncated " << truncated.slope << ", nearest " << nearest.slope);
  CHECK(truncated.slope > 0.85);
  CHECK(truncated.slope < 1.15);
  CHECK(nearest.slope > 0.3);
  CHECK(nearest.slope < 0.7);
}

TEST_CASE("Hopper's bias is toward zero on positive data, and promotion removes it",
          "[experiments]") {
  const Comparison without = e4m3_error("sm90.wgmma.e4m3", Distribution::uniform, 4096, 0);
  const Comparison with = e4m3_error("sm90.wgmma.e4m3", Distribution::uniform, 4096, 128);
  INFO("without " << without.relative_l2 << ", with " << with.relative_l2);
  CHECK(without.mean_signed_relative < -0.05);
  CHECK(without.mean_signed_relative > -0.09);
  CHECK(with.relative_l2 < 0.001);
  CHECK(with.relative_l2 > 0.0002);
}

TEST_CASE("Hopper hardly drifts on zero-mean data", "[experiments]") {
  const Comparison error = e4m3_error("sm90.wgmma.e4m3", Distribution::normal, 4096, 0);
  CHECK(error.relative_l2 < 0.005);
  CHECK(error.relative_l2 > 0.0003);
}

TEST_CASE("cosine similarity cannot see a quarter of the sum missing", "[experiments]") {
  const QuantizedOperands q =
      quantize_unscaled(make_operands({Distribution::uniform, 4, 4, 16384}, 3), kNvidiaSatfinite);
  const Comparison error = accumulation_error(q, model("sm90.wgmma.e4m3"), 0, 1);
  CHECK(error.mean_signed_relative < -0.23);
  CHECK(error.mean_signed_relative > -0.27);
  CHECK(error.cosine > 0.99999);
}

TEST_CASE("a sum of ones sticks at 16384 and promotion frees it", "[experiments]") {
  const QuantizedOperands ones =
      quantize_unscaled(make_operands({Distribution::ones, 1, 1, 32768}, 1), kNvidiaSatfinite);
  const std::string name = GENERATE("sm90.wgmma.e4m3", "sm89.mma.e4m3", "sequential14.rne");
  INFO(name);
  CHECK(accumulate(ones, model(name), 0, 1).front() == 16384.0);
  CHECK(accumulate(ones, model(name), 128, 1).front() == 32768.0);
}

TEST_CASE("running sums end where the matrix product ends", "[experiments]") {
  const QuantizedOperands q = quantize(make_operands({Distribution::uniform, 1, 1, 2048}, 5));
  const AccumulatorModel& hopper = model("sm90.wgmma.e4m3");
  const RunningSums sums = running_sums(q, hopper, 128, 256);
  REQUIRE(sums.k.size() == 8);
  CHECK(sums.k.back() == 2048.0);
  CHECK(sums.exact.back() == exact_product(q).front() * q.inverse_scale);
  CHECK(sums.unpromoted.back() == accumulate(q, hopper, 0, 1).front() * q.inverse_scale);
  CHECK(sums.promoted.back() == accumulate(q, hopper, 128, 1).front() * q.inverse_scale);
}

TEST_CASE("correlated operands have the correlation asked for", "[experiments]") {
  const Bf16Operands operands = make_operands({Distribution::correlated, 8, 8, 4096, 0.5}, 3);
  double mean = 0.0;
  for (const double sum : exact_product(operands)) mean += sum / (64.0 * 4096.0);
  CHECK(mean > 0.45);
  CHECK(mean < 0.55);
  CHECK_THROWS_WITH(make_operands({Distribution::correlated, 1, 1, 8, 1.5}, 3),
                    contains("correlation"));
}

TEST_CASE("stages of a pipeline are swapped one at a time", "[experiments]") {
  const Bf16Operands operands = make_operands({Distribution::uniform, 4, 4, 512}, 3);
  const Pipeline hopper{.name = "hopper", .accumulator = "sm90.wgmma.e4m3"};
  const Stages none{false, false, false, false};
  CHECK(pipeline_error(operands, hopper, none, 1) == 0.0);
  Stages products = none;
  products.product_rounding = true;
  CHECK(pipeline_error(operands, hopper, products, 1) == 0.0);  // Hopper's products are exact
  const Pipeline listing{.name = "listing", .accumulator = "seed.listing", .seed_cast = true};
  CHECK(pipeline_error(operands, listing, products, 1) > 1e-4);
  Stages output = none;
  output.output_rounding = true;
  const double rounded = pipeline_error(operands, hopper, output, 1);
  CHECK(rounded > 1e-4);
  CHECK(rounded < 1.0 / 256.0);  // BF16 nearest even: at most 2^-8
}

TEST_CASE("accumulator-drift and seed-listings refuse what they cannot run", "[experiments]") {
  const std::vector<std::string> small{
      "k=[128]",    "promotion_k=[]",   "rows=1",    "columns=1",
      "split_k=[]", "published_rows=1", "bf16_k=[]", "distributions=[\"ones\"]"};
  const auto with = [&](const std::string& change) {
    std::vector<std::string> all = small;
    all.push_back(change);
    return all;
  };
  CHECK_NOTHROW(run_quick("accumulator-drift", 1, with("running_sum_k=256")));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, with("running_sum_step=0")),
                    contains("running_sum_step: expected an integer in [1, 1048576], got 0"));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, with("running_sum_step=33")),
                    contains("step: expected a positive multiple of 32"));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, with("running_sum_k=64")), contains("k: "));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, with("rows=0")),
                    contains("rows: expected an integer in [1, 1024], got 0"));
  CHECK_THROWS_WITH(run_quick("accumulator-drift", 1, with("accumulators=[\"sm91\"]")),
                    contains("'sm91'"));
  CHECK_THROWS_WITH(run_quick("seed-listings", 1, {"torch_outliers=[1e39]"}),
                    contains("torch_outliers: expected a finite number in [1e-3, 1e30]"));
  CHECK_THROWS_WITH(run_quick("seed-listings", 1, {"listing_repeats=0"}), contains("repeats"));
}

TEST_CASE("accumulator-drift does not depend on threads", "[experiments][repeats]") {
  const std::vector<std::string> small{
      "k=[128,512,1024]", "promotion_k=[512]",  "rows=4",        "columns=4", "split_k=[256]",
      "published_rows=2", "running_sum_k=1024", "bf16_k=[32,64]"};
  const Results one = run_quick("accumulator-drift", 1, small);
  const Results two = run_quick("accumulator-drift", 2, small);
  CHECK(all_csv(one) == all_csv(two));
  CHECK(one.findings == two.findings);
  CHECK(table_named(one, "error").rows().size() > 50);
  CHECK(one.plots.size() == 7);
}

TEST_CASE("accumulator-drift: exponents are fitted where the law holds, over sets of operands",
          "[experiments]") {
  const std::vector<std::string> small{"k=[128,512,1024]",
                                       "promotion_k=[]",
                                       "rows=4",
                                       "columns=4",
                                       "split_k=[]",
                                       "published_rows=1",
                                       "fit_repeats=3",
                                       "running_sum_k=128",
                                       "bf16_k=[32,128,256,512,1024]",
                                       "promoted_accumulators=[]"};
  const Results results = run_quick("accumulator-drift", 1, small);
  std::vector<double> of_hopper;
  for (const std::vector<Cell>& row : table_named(results, "slope_repeats").rows())
    if (row[0] == Cell(std::string("bf16")) && row[1] == Cell(std::string("uniform")) &&
        row[2] == Cell(std::string("sm90.wgmma.e4m3")))
      of_hopper.push_back(std::get<double>(row[5]));
  REQUIRE(of_hopper.size() == 3);
  CHECK(of_hopper[0] != of_hopper[1]);
  for (const std::vector<Cell>& row : table_named(results, "slopes").rows()) {
    if (row[0] != Cell(std::string("bf16")) || row[1] != Cell(std::string("uniform")) ||
        row[2] != Cell(std::string("sm90.wgmma.e4m3")))
      continue;
    const double slope = std::get<double>(row[4]);
    INFO("slope " << slope);
    CHECK(slope > 1.0);  // 1.4 with the single step of K = 32
    CHECK(slope < 1.15);
    CHECK(std::abs(slope - (of_hopper[0] + of_hopper[1] + of_hopper[2]) / 3.0) < 1e-12);
    CHECK(std::get<std::int64_t>(row[9]) == 4);
  }
}
