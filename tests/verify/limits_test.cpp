// Limits that `verify` allows, at both sides.

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/budget_check.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/tails.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("judge: a cause and an output may each be off by one budget", "[verify]") {
  constexpr std::size_t kElements = 40;
  constexpr double kBudget = 1.0;
  const auto code = [](double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); };
  ErrorBudget budget;
  budget.exact = 100.0;
  budget.accumulation = kBudget;
  budget.low = code(99.0);
  budget.high = code(101.0);
  const std::vector<ErrorBudget> budgets(kElements, budget);
  const std::vector<std::uint32_t> golden(kElements, code(100.0));
  const std::vector<std::uint32_t> got(kElements, code(200.0));
  for (const auto& [off, explained] : {std::pair{0.0, true},
                                       {0.99, true},
                                       {1.5, true},
                                       {-1.99, true},
                                       {2.0, true},
                                       {2.01, false},
                                       {-2.5, false}}) {
    Judge judge(default_output(FormatId::f32), golden, got, budgets);
    judge.consider("cause", "text", std::vector<std::uint32_t>(kElements, code(200.0 + off)));
    INFO("a cause that is " << off << " budgets from the output");
    CHECK(judge.explains(3, code(200.0 + off)) == explained);
    CHECK(judge.finish().causes.size() == (explained ? 1 : 0));
  }
}

TEST_CASE("tails: their formulas, computed in Python", "[verify]") {
  const std::vector<double> values{1.0, 1.25, 0.75, 1.5, 2.0, 1.125};
  CHECK(std::abs(tail_of_whole(values, 1e-6) / 46.62908212691691 - 1.0) < 1e-9);
  CHECK(std::abs(tail_of_maximum(values, 1e-6, 16.0, false) / 24.60312527350719 - 1.0) < 1e-9);
  CHECK(std::abs(tail_of_maximum(values, 1e-6, 16.0, true) / 8667.05947150146 - 1.0) < 1e-9);
}

TEST_CASE("budget: behind an activation it is as steep as the activation", "[verify]") {
  const auto slope = [](Activation activation, double leaky) {
    const auto f = [&](double x) {
      switch (activation) {
        case Activation::gelu:
          return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
        case Activation::silu:
          return x / (1.0 + std::exp(-x));
        case Activation::leaky_relu:
          return x > 0.0 ? x : leaky * x;
        default:
          return std::max(x, 0.0);
      }
    };
    double steepest = 0.0;
    for (double x = -8.0; x < 8.0; x += 1e-3)
      steepest = std::max(steepest, std::abs(f(x + 1e-4) - f(x)) / 1e-4);
    return steepest;
  };
  const RandomProduct random({}, {.shape = {4, 4, 512}});
  for (const auto& [activation, leaky] : {std::pair{Activation::relu, 0.0F},
                                          {Activation::gelu, 0.0F},
                                          {Activation::silu, 0.0F},
                                          {Activation::leaky_relu, 4.0F}}) {
    Product product = random.product;
    product.epilogue.activation = activation;
    product.epilogue.slope = leaky;
    const double steepest = slope(activation, static_cast<double>(leaky));
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j) {
        const double before = error_budget(random.product, i, j).accumulation;
        const double behind = error_budget(product, i, j).accumulation;
        CAPTURE(to_string(activation), i, j, before, behind, steepest);
        CHECK(behind >= before * (steepest - 1e-3));
        CHECK(behind <= before * (steepest + 0.05) + 1e-3);
      }
  }
}

TEST_CASE("causes: no promotion with scales of blocks, whatever K", "[verify]") {
  // 300 terms are ten steps of 32, the last one short: one interval holds them all.
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {24, 20, 300}, .tiles_a = {24, 3}, .tiles_b = {1, 3}});
  const Product& product = random.product;
  for (const bool first : {true, false}) {
    const auto sums = compute_in_intervals(product, {.interval = 320, .first_scale = first});
    REQUIRE(sums);
    const std::vector<std::byte> codes = cast_output(*sums, product.output);
    const VerifyReport report =
        verify(product, {"got", {ElementType::f32, {24, 20}, codes}, nullptr});
    INFO(describe(report));
    REQUIRE(report.diagnosis);
    REQUIRE_FALSE(report.diagnosis->causes.empty());
    const Cause& cause = report.diagnosis->causes.front();
    CHECK(cause.name == "no_promotion");
    CHECK_THAT(cause.text, contains(first ? "under the first scale" : "under the last scale"));
  }
}

TEST_CASE("budget: fewer are worked out of longer sums, between 64 and 4096", "[verify]") {
  for (const auto& [k, most] :
       {std::pair<std::int64_t, std::uint64_t>{32, 4096}, {4000, 500}, {40000, 64}}) {
    const RandomProduct random({.model = "exact"}, {.shape = {66, 64, 16}});
    Product product = random.product;
    // One row of codes, of which all rows are; what they hold does not matter here.
    const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(k));
    product.problem.a = {FormatId::e4m3fn, zeros.data(), 66, k, 0, 1};
    product.problem.b = {FormatId::e4m3fn, zeros.data(), 64, k, 0, 1};
    const std::vector<std::byte> golden(66 * 64 * 4);
    const std::vector<std::byte> got(66 * 64 * 4, std::byte{1});
    std::vector<std::int64_t> mismatches;
    for (std::int64_t i = 0; i < 66 * 64; ++i) mismatches.push_back(i);
    const BudgetSummary summary = check_budgets(product, {golden, got}, mismatches, false, 1);
    INFO("k " << k);
    CHECK(summary.checked == most);
    CHECK(summary.outside.size() == most);
    CHECK(summary.within == 0);
  }
}
