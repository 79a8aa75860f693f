// A judge against its definition: drawn outputs, budgets that are each element's own, and causes.

#include "fp8lab/verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"

using namespace fp8lab;

namespace {

/// Outputs [rows, columns] of one format, of which each has a budget of its own.
struct JudgedCase {
  OutputCast output;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint32_t> golden;
  std::vector<std::uint32_t> got;
  std::vector<ErrorBudget> budgets;

  [[nodiscard]] double value(std::uint32_t code) const {
    return decode(format(output.format), code);
  }
  [[nodiscard]] bool same(std::uint32_t x, std::uint32_t y) const {
    return x == y || (std::isnan(value(x)) && std::isnan(value(y)));
  }
  [[nodiscard]] bool right(std::size_t i, std::uint32_t code) const {
    if (same(golden[i], code)) return true;
    if (budgets.empty() || budgets[i].special) return false;
    return value(code) >= value(budgets[i].low) && value(code) <= value(budgets[i].high);
  }
  [[nodiscard]] bool explains(std::size_t i, std::uint32_t code) const {
    if (same(got[i], code)) return true;
    if (budgets.empty() || budgets[i].special) return false;
    const ErrorBudget& b = budgets[i];
    return std::abs(value(got[i]) - value(code)) <=
           2.0 * (b.quantization + b.accumulation + b.rounding);
  }
  [[nodiscard]] bool contradicts(std::size_t i, std::uint32_t code) const {
    return budgets.empty() ? !same(got[i], code) : !right(i, code);
  }
};

/// The place of the worst mismatch and of others, at most four.
std::vector<std::int64_t> with_worst(const std::vector<std::int64_t>& spread, std::int64_t worst) {
  std::vector<std::int64_t> all{worst};
  for (const std::int64_t place : spread)
    if (all.size() < 4 && place != worst) all.push_back(place);
  std::sort(all.begin(), all.end());
  return all;
}

/// Of the places that are true, at most four, evenly spread.
std::vector<std::int64_t> four_of(const std::vector<bool>& wrong) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    if (wrong[i]) all.push_back(static_cast<std::int64_t>(i));
  if (all.size() <= 4) return all;
  const std::size_t last = all.size() - 1;
  return {all[0], all[last / 3], all[2 * last / 3], all[last]};
}

}  // namespace

TEST_CASE("judge: every count is what its definition says, of every element's own budget",
          "[verify]") {
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomStream draws(seed, "judge");
    std::uint64_t next = 0;
    const auto pick = [&](std::uint64_t count) { return draws.below(next++, count); };
    JudgedCase one;
    constexpr std::array kJudged{FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16};
    one.output = default_output(kJudged[pick(3)]);
    one.rows = static_cast<std::int64_t>(1 + pick(9));
    one.columns = static_cast<std::int64_t>(1 + pick(13));
    const bool narrow = format(one.output.format).storage_bits == 8;
    const auto any_code = [&] {
      return static_cast<std::uint32_t>(narrow ? pick(0x100) : 0x3e00 + pick(0x400));
    };
    const auto count = static_cast<std::size_t>(one.rows * one.columns);
    const bool with_budgets = pick(3) > 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t code = any_code();
      one.golden.push_back(code);
      const std::uint64_t kind = pick(6);
      one.got.push_back(kind < 2 ? code : kind < 4 ? code ^ 1U : any_code());
      if (!with_budgets) continue;
      ErrorBudget b;
      b.special = pick(7) == 0;
      const double size = std::isfinite(one.value(code)) ? std::abs(one.value(code)) : 1.0;
      b.quantization = size * static_cast<double>(pick(3)) / 16.0;
      b.accumulation = size * static_cast<double>(pick(4)) / 16.0;
      b.rounding = size * static_cast<double>(pick(3)) / 32.0;
      const std::uint32_t low = code ^ static_cast<std::uint32_t>(pick(4));
      const std::uint32_t high = code ^ static_cast<std::uint32_t>(pick(4));
      b.low = one.value(low) <= one.value(high) ? low : high;
      b.high = b.low == low ? high : low;
      if (std::isnan(one.value(b.low)) || std::isnan(one.value(b.high))) b.special = true;
      one.budgets.push_back(b);
    }
    Judge judge(one.output, one.golden, one.got, one.budgets);
    std::uint64_t mismatches = 0;
    std::int64_t worst = 0;
    double largest = -1.0;
    std::vector<bool> wrong_rows(static_cast<std::size_t>(one.rows));
    std::vector<bool> wrong_columns(static_cast<std::size_t>(one.columns));
    INFO("seed " << seed << ", " << format(one.output.format).name << " [" << one.rows << ", "
                 << one.columns << "], budgets " << with_budgets);
    for (std::size_t i = 0; i < count; ++i) {
      const bool right = one.right(i, one.got[i]);
      if (judge.is_right(i) != right) CHECK(judge.is_right(i) == right);
      if (judge.got(i) != one.got[i]) CHECK(judge.got(i) == one.got[i]);
      if (right) continue;
      const double expected = one.value(one.golden[i]);
      const double least = format(one.output.format).min_subnormal();
      double off = std::abs(one.value(one.got[i]) - expected);
      off = std::isnan(off) ? INFINITY : off / std::max(std::abs(expected), least);
      if (std::isnan(off)) off = INFINITY;  // of two infinities
      if (off > largest) {
        largest = off;
        worst = static_cast<std::int64_t>(i);
      }
      ++mismatches;
      wrong_rows[i / static_cast<std::size_t>(one.columns)] = true;
      wrong_columns[i % static_cast<std::size_t>(one.columns)] = true;
    }
    const Sample probe = judge.probe(one.rows, one.columns);
    if (mismatches == 0) {
      CHECK((probe.rows.empty() && probe.columns.empty()));
    } else {
      CHECK(probe.rows == with_worst(four_of(wrong_rows), worst / one.columns));
      CHECK(probe.columns == with_worst(four_of(wrong_columns), worst % one.columns));
    }
    // Causes of every quality: how many of the codes they give are those that were got.
    std::string expected;
    for (std::uint64_t quality = 0; quality < 4; ++quality) {
      std::vector<std::uint32_t> codes;
      std::uint64_t explained = 0;
      std::uint64_t contradicted = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const bool exact = pick(40) < 25 + 5 * quality;
        codes.push_back(exact ? one.got[i] : one.got[i] ^ (1U << pick(narrow ? 8 : 9)));
        const bool explains = one.explains(i, codes[i]);
        if (judge.explains(i, codes[i]) != explains) CHECK(judge.explains(i, codes[i]) == explains);
        if (one.right(i, one.got[i]))
          contradicted += one.contradicts(i, codes[i]) ? 1U : 0U;
        else
          explained += explains ? 1U : 0U;
      }
      judge.consider(fmt::format("cause {}", quality), "text", codes);
      const auto right = static_cast<double>(count - mismatches);
      const bool enough =
          explained > 0 &&
          static_cast<double>(explained) >= 0.95 * static_cast<double>(mismatches) &&
          static_cast<double>(contradicted) <= (one.budgets.empty() ? 0.0 : 0.01) * right;
      (enough ? accepted : refused) += 1;
      if (enough) expected += fmt::format("cause {}: {}, {}\n", quality, explained, contradicted);
    }
    Diagnosis d = judge.finish();
    CHECK(d.mismatches == mismatches);
    CHECK(d.right == count - mismatches);
    CHECK(d.tried == 4);
    for (std::size_t i = 1; i < d.causes.size(); ++i) {
      const Cause& a = d.causes[i - 1];
      const Cause& b = d.causes[i];
      CHECK((a.explained > b.explained ||
             (a.explained == b.explained && a.contradicted <= b.contradicted)));
    }
    std::ranges::sort(d.causes, {}, &Cause::name);
    std::string got;
    for (const Cause& cause : d.causes)
      got += fmt::format("{}: {}, {}\n", cause.name, cause.explained, cause.contradicted);
    CHECK(got == expected);
  }
  CHECK(accepted > 60);
  CHECK(refused > 60);
}

TEST_CASE("judge: codes of a word are read in full, of every width", "[verify]") {
  const std::vector<unsigned> bytes{0x01, 0xfe, 0x80, 0x7f, 0x00, 0x12, 0x34, 0xf6};
  std::vector<std::byte> codes;
  for (const unsigned x : bytes) codes.push_back(static_cast<std::byte>(x));
  using Words = std::vector<std::uint32_t>;
  CHECK(code_words(FormatId::e4m3fn, codes) == Words(bytes.begin(), bytes.end()));
  CHECK(code_words(FormatId::bf16, codes) == Words{0xfe01, 0x7f80, 0x1200, 0xf634});
  CHECK(code_words(FormatId::f32, codes) == Words{0x7f80fe01, 0xf6341200});
}

TEST_CASE("judge: shares are met exactly, and the best cause comes first", "[verify]") {
  // 40 wrong elements and 40 right ones: 38 explained are enough, one contradicted is too many.
  std::vector<std::uint32_t> golden(80, 1);
  std::vector<std::uint32_t> got(80, 1);
  std::fill_n(got.begin(), 40, 2U);
  const auto with = [&](std::size_t explained, std::size_t contradicted) {
    std::vector<std::uint32_t> codes = got;
    for (std::size_t i = explained; i < 40; ++i) codes[i] = 3;
    for (std::size_t i = 40; i < 40 + contradicted; ++i) codes[i] = 3;
    return codes;
  };
  const auto accepted = [&](std::size_t explained, std::size_t contradicted) {
    Judge judge({}, golden, got);
    judge.consider("cause", "text", with(explained, contradicted));
    const Diagnosis d = judge.finish();
    CHECK((d.mismatches == 40 && d.right == 40 && d.tried == 1));
    return d.causes.size() == 1;
  };
  CHECK(accepted(38, 0));
  CHECK(accepted(40, 0));
  CHECK_FALSE(accepted(37, 0));
  CHECK_FALSE(accepted(40, 1));
  Judge judge({}, golden, got);
  judge.consider("fourth", "", with(39, 0));
  judge.consider("contradicted", "", with(40, 1));
  judge.consider("first", "", with(40, 0));
  judge.consider("last", "", with(38, 0));
  judge.consider("none", "", with(20, 0));
  judge.dismiss();
  const Diagnosis d = judge.finish();
  std::string order;
  for (const Cause& cause : d.causes) order += cause.name + " ";
  CHECK(order == "first fourth last ");
  CHECK(d.tried == 6);
}
