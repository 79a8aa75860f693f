// Which group's power counts, and elements of a budget whose exact value is 0.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/budget_check.hpp"
#include "fp8lab/verify/group_mistakes.hpp"
#include "fp8lab/verify/grouped.hpp"

using namespace fp8lab;

namespace {

/// Rows of groups, of which some have zeros alone in A: no check of them has power.
struct PartlyZero {
  std::vector<std::int64_t> rows;
  std::vector<int> live;  ///< groups that are not zeros
  std::int64_t group;     ///< whose power is told
  bool has_power;         ///< that group
};

const std::vector<PartlyZero> kPartlyZero = {
    {{2, 5, 3}, {0, 1, 2}, 1, true},
    {{2, 5, 3}, {0, 2}, 2, true},
    {{2, 5, 3}, {0}, 0, true},
    {{2, 5, 3}, {}, 1, false},
    {{4, 4, 4}, {0, 1, 2}, 0, true},
    {{4, 4, 4}, {1, 2}, 1, true},
    {{0, 4, 0, 1}, {3}, 3, true},
    {{0, 4, 0, 1}, {}, 1, false},
    // The eighth largest is looked at, the ninth is not.
    {{9, 1, 8, 7, 2, 6, 5, 4, 3}, {4}, 4, true},
    {{9, 1, 8, 7, 2, 6, 5, 4, 3}, {1}, 0, false},
    {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {7, 8}, 7, true},
    {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {8}, 0, false},
};

}  // namespace

TEST_CASE(
    "grouped verify: of the eight largest groups the first with power counts, else the largest",
    "[verify]") {
  constexpr std::int64_t kWide = 3;
  constexpr std::int64_t kDeep = 64;
  for (const PartlyZero& one : kPartlyZero) {
    const RandomStream random(5, "power of groups");
    std::vector<std::int64_t> ends;
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    std::uint64_t at = 0;
    const auto draw = [&] { return static_cast<std::uint8_t>(random.bits32(at++) % 0x78); };
    std::int64_t end = 0;
    for (std::size_t i = 0; i < one.rows.size(); ++i) {
      ends.push_back(end += one.rows[i]);
      const bool is_live = std::ranges::count(one.live, static_cast<int>(i)) > 0;
      for (std::int64_t x = 0; x < one.rows[i] * kDeep; ++x)
        a.push_back(is_live ? draw() : std::uint8_t{0});
      for (std::int64_t x = 0; x < kWide * kDeep; ++x) b.push_back(draw());
    }
    GemmOperands all;
    all.a.codes = view_of(ElementType::e4m3fn, {end, kDeep}, std::span<const std::uint8_t>(a));
    all.b.codes = view_of(ElementType::e4m3fn, {std::ssize(ends), kWide, kDeep},
                          std::span<const std::uint8_t>(b));
    const GroupedProduct product =
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::row_ends, ends, 0});
    const std::vector<float> right = compute(product);
    for (const char* check : {"bitwise", "budget"})
      for (const bool matrix : {false, true}) {
        VerifyOptions options;
        options.check = find_check(check);
        options.fault_matrix = matrix;
        options.threads = 1;
        const Operand got(
            "d", view_of(ElementType::f32, product.shape, std::span<const float>(right)), nullptr);
        const GroupedReport report = verify(product, got, options);
        INFO(fmt::format("{} of rows {}, not zeros: {}, all faults {}", check,
                         fmt::join(one.rows, " "), fmt::join(one.live, " "), matrix));
        CHECK(report.verdict == (one.has_power ? Verdict::pass : Verdict::no_power));
        CHECK(report.power_group == one.group);
        REQUIRE(report.power);
        const std::vector<Check> checks = matrix ? all_checks() : std::vector{options.check};
        const auto index = static_cast<std::size_t>(one.group);
        const PowerReport own =
            power(product.parts[index].product, checks, 1, group_mistakes(product, index));
        REQUIRE(report.power->checks.size() == checks.size());
        CHECK(checks[report.power_of_check].name() == check);
        CHECK(describe(*report.power, report.power_of_check) ==
              describe(own, report.power_of_check));
        options.judge_power = false;
        const GroupedReport unjudged = verify(product, got, options);
        CHECK(unjudged.verdict == Verdict::pass);
        CHECK_FALSE(unjudged.power);
      }
  }
}

TEST_CASE("budget check: elements whose exact value is 0 count like others, and have no median",
          "[verify][budget]") {
  constexpr std::int64_t kDeep = 64;
  // In each row one product of 2^-3 is left over, or none, beside pairs that cancel.
  for (unsigned zeros = 0; zeros < 32; ++zeros)
    for (const std::int64_t columns : {1, 2}) {
      std::vector<std::uint8_t> a;
      std::uint32_t code = 0x31;
      for (unsigned row = 0; row < 5; ++row)
        for (std::int64_t k = 0; k < kDeep; ++k) {
          if (k % 2 == 0) code = 0x20 + (code * 7 + row) % 0x40;
          a.push_back(static_cast<std::uint8_t>(k % 2 == 0 ? code : code | 0x80));
          if (k == kDeep - 1 && (zeros >> row & 1U) == 0) a.back() ^= 0x80;
        }
      const std::vector<std::uint8_t> b(static_cast<std::size_t>(columns * kDeep), 0x38);
      GemmOperands operands;
      operands.a.codes = view_of(ElementType::e4m3fn, {5, kDeep}, std::span<const std::uint8_t>(a));
      operands.b.codes =
          view_of(ElementType::e4m3fn, {columns, kDeep}, std::span<const std::uint8_t>(b));
      const Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
      const std::vector<std::byte> golden = golden_output(product);
      std::vector<float> got(golden.size() / 4);
      std::vector<std::int64_t> mismatches;
      std::vector<std::int64_t> outside;
      std::vector<double> relative;
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const ErrorBudget budget = error_budget(product, i / columns, i % columns);
        REQUIRE((budget.exact == 0.0) == ((zeros >> (i / columns) & 1U) != 0));
        REQUIRE(budget.total() > 0.0);
        const bool far = (i + zeros) % 3 == 0;
        got[static_cast<std::size_t>(i)] =
            static_cast<float>(budget.exact + (far ? 2.0 : 0.5) * budget.total());
        mismatches.push_back(i);
        if (far) outside.push_back(i);
        relative.push_back(budget.exact == 0.0 ? std::numeric_limits<double>::infinity()
                                               : budget.total() / std::abs(budget.exact));
      }
      std::ranges::sort(relative);
      for (const bool decides : {false, true}) {
        const BudgetSummary found =
            check_budgets(product, {golden, std::as_bytes(std::span(got))}, mismatches, decides, 1);
        INFO(fmt::format("rows of 0: {:05b}, {} columns, decides {}", zeros, columns, decides));
        CHECK(found.checked == mismatches.size());
        CHECK(found.outside == outside);
        CHECK(found.within == mismatches.size() - outside.size());
        CHECK(found.median == relative[relative.size() / 2]);
      }
    }
}
