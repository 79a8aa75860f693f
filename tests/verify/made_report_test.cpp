// A report that is made by hand, in which no two numbers are alike, word for word.

#include <fmt/format.h>

#include <bit>
#include <string>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/gates.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

namespace {

VerifyReport made_report() {
  VerifyReport r;
  r.verdict = Verdict::mismatch;
  r.check = find_check("budget");
  r.subject = "the subject";
  r.rows = 5;
  r.columns = 7;
  r.output = FormatId::bf16;
  r.within_activation = 11;
  CodeComparison& c = r.comparison;
  c.bit_mismatches = 3;
  c.nan_payloads = 13;
  Comparison& v = c.values;
  v.count = 35;
  v.relative_l2 = 0.125;
  v.sqnr_db = 18.5;
  v.cosine = 0.875;
  v.calc_diff = 0.0625;
  v.mean_signed_relative = -0.25;
  v.max_absolute = 96.0;
  v.max_absolute_index = 9;
  v.max_relative = 1.5;
  v.max_relative_index = 20;
  v.non_finite_mismatches = 2;
  c.ulp.counts[0] = 30;
  c.ulp.counts[1] = 29;
  c.ulp.counts[2] = 28;
  c.ulp.counts[3] = 27;
  c.ulp.counts[5] = 26;
  c.ulp.nan_mismatches = 25;
  c.ulp.max_distance = 24;
  c.ulp.toward_zero = 23;
  c.ulp.away_from_zero = 22;
  c.fp8.counts[33] = 21;
  c.fp8.max_distance = 19;
  c.fp8.toward_zero = 18;
  c.fp8.away_from_zero = 17;
  r.map = make_map(5, 7);
  r.map.counts[8] = 1;
  ElementReport element;
  element.which = "first";
  element.mismatch.expected = 0x3f80;
  element.mismatch.got = 0xc000;
  element.mismatch.ulp = 77;
  element.row = 1;
  element.column = 2;
  ErrorBudget budget;
  budget.exact = 1.0625;
  budget.quantization = 0.5;
  budget.accumulation = 0.25;
  budget.rounding = 0.125;
  element.budget = budget;
  element.k_begin = 32;
  element.k_end = 64;
  element.k_block_sum = 3.25;
  element.terms = {{33, 0x12, 0x34, 5.5}, {40, 0x56, 0x78, -4.5}};
  element.models = {{"m1", 0xc000}, {"m2", 0x3f80}, {"m3", 0xc000}, {"m4", 0x4040}};
  r.elements.push_back(element);
  r.budget = BudgetSummary{};
  r.budget->checked = 16;
  r.budget->within = 15;
  r.budget->median = 0.01234;
  r.gates.assign(gates().size(), false);
  r.gates[1] = true;
  Diagnosis d;
  d.mismatches = 9;
  d.right = 8;
  d.tried = 44;
  d.causes = {{"one", "text of one", 7, 6}};
  r.diagnosis = d;
  return r;
}

}  // namespace

TEST_CASE("verify: a report in which no two numbers are alike, word for word", "[verify]") {
  std::string gates_text = fmt::format(
      "  shipped gates that would pass this output: {}\n  shipped gates that would reject it:",
      gates()[1].name);
  for (std::size_t i = 0; i < gates().size(); ++i)
    if (i != 1) gates_text += fmt::format(" {}", gates()[i].name);
  const std::string element =
      "  first mismatch: row 1 column 2: expected 0x3f80 (1), got 0xc000 (-2), 77 ulp\n";
  const std::string budget =
      "    exact 1.0625, budget 0.875 = quantization 0.5 + accumulation 0.25 + output rounding "
      "0.125\n";
  const std::string block =
      "    K-block [32, 64), nearest to the difference, sums to 3.25; largest:  k 33 0x12 x 0x34 = "
      "5.5  k 40 0x56 x 0x78 = -4.5\n";
  const std::string models =
      "    models that give this output: m1 m3\n"
      "      m2 0x3f80 (1)\n"
      "      m4 0x4040 (3)\n";
  const std::string special = "    a NaN or an infinity takes part\n";
  const std::string whole =
      "mismatch: 3 of 35 outputs differ in bits (8.571 %) [5, 7] bf16, against the subject; check: "
      "budget\n"
      "  11 outputs have other bits within the allowance of the activation (not counted)\n"
      "  13 NaN outputs have other NaN bits (not counted)\n"
      "  map, one character per tile of 1 x 1 (. none, 1-9 tenths wrong, # all):\n"
      "    .......\n"
      "    .#.....\n"
      "    .......\n"
      "    .......\n"
      "    .......\n"
      "  cause: one: text of one (7 of 9 sampled mismatches; would change 6 of 8 right ones)\n"
      "  ULP of bf16:  0: 30  1: 29  2: 28  3-4: 27  9-16: 26  NaN: 25  (toward zero 23, away 22)\n"
      "  ULP of FP8 (E4M3's significand):  2147483649-4294967296: 21  (toward zero 18, away 17)\n"
      "  relative L2 0.125  SQNR 18.5 dB  cosine 0.875  calc_diff 0.0625  bias -0.25\n"
      "  max abs 96 at [1, 2]  max rel 1.5 at [2, 6]\n"
      "  2 pairs with a NaN or an infinity in only one of the two\n" +
      element + budget + block + models +
      "  15 of 16 examined mismatches (the largest, and evenly spread ones) are within the budget "
      "of the exact result (median budget: 0.0123 of the result)\n" +
      gates_text + "\n";
  CHECK(describe(made_report()) == whole);
  // One part is changed at a time.
  const auto changed = [&](const auto& change, const std::string& from, const std::string& to) {
    VerifyReport report = made_report();
    change(report);
    std::string expected = whole;
    REQUIRE(expected.find(from) != std::string::npos);
    expected.replace(expected.find(from), from.size(), to);
    CHECK(describe(report) == expected);
  };
  changed([](VerifyReport& r) { r.within_activation = 0; },
          "  11 outputs have other bits within the allowance of the activation (not counted)\n",
          "");
  changed([](VerifyReport& r) { r.comparison.nan_payloads = 0; },
          "  13 NaN outputs have other NaN bits (not counted)\n", "");
  changed([](VerifyReport& r) { r.comparison.ulp.nan_mismatches = 0; }, "  NaN: 25", "");
  changed([](VerifyReport& r) { r.comparison.fp8.nan_mismatches = 1; }, ": 21  (",
          ": 21  NaN: 1  (");
  changed([](VerifyReport& r) { r.comparison.values.non_finite_mismatches = 0; },
          "  2 pairs with a NaN or an infinity in only one of the two\n", "");
  changed([](VerifyReport& r) { r.elements[0].mismatch.ulp = kNanDistance; }, "77 ulp",
          "NaN on one side");
  changed([](VerifyReport& r) { r.elements[0].budget->special = true; }, budget, special);
  changed([](VerifyReport& r) { r.elements[0].k_end = 32; }, block, "");
  changed([](VerifyReport& r) { r.elements[0].budget.reset(); }, budget + block + models, "");
  changed([](VerifyReport& r) { r.elements[0].models.clear(); }, models,
          "    models that give this output: none\n");
  VerifyReport bitwise = made_report();
  bitwise.check = find_check("bitwise");
  CHECK(describe(bitwise).find("15 of 16 examined mismatches are within the budget") !=
        std::string::npos);
  VerifyReport right = made_report();
  right.verdict = Verdict::pass;
  right.comparison.bit_mismatches = 0;
  CHECK(describe(right) ==
        "pass: all 35 outputs have the golden bits [5, 7] bf16, against the subject; check: "
        "budget\n"
        "  11 outputs have other bits within the allowance of the activation (not counted)\n"
        "  13 NaN outputs have other NaN bits (not counted)\n");
}

TEST_CASE("verify: the power of a check, by classes, and as a table, word for word", "[verify]") {
  PowerReport p;
  p.checks = {find_check("bitwise"), find_check("budget")};
  p.rows = 3;
  p.columns = 4;
  const auto fault = [&](const char* name, FaultClass kind, double rate,
                         const std::vector<bool>& detected, bool applies = true) {
    FaultOutcome one;
    one.name = name;
    one.text = fmt::format("text of {}", name);
    one.kind = kind;
    one.applies = applies;
    one.reason = fmt::format("reason of {}", name);
    one.mismatch_rate = rate;
    one.detected = detected;
    p.faults.push_back(one);
  };
  CHECK(describe(p, 1) == "  power of budget: no fault applies, on 3 x 4 outputs\n");
  fault("zeros", FaultClass::output, 1.0, {true, true});
  fault("gain", FaultClass::output, 0.25, {true, false});
  fault("swapped_scales", FaultClass::operands, 0.0, {}, false);
  fault("accumulator", FaultClass::rounding, 0.03125, {false, false});
  CHECK(describe(p, 0) ==
        "  power of bitwise: 2 of 3 applicable faults detected (output 2 of 2, rounding 0 of 1), "
        "on 3 x 4 outputs\n"
        "  missed: accumulator (text of accumulator): reason of accumulator\n");
  CHECK(describe(p, 1) ==
        "  power of budget: 1 of 3 applicable faults detected (output 1 of 2, rounding 0 of 1), "
        "on 3 x 4 outputs\n"
        "  missed: gain (text of gain): reason of gain\n"
        "  cannot see: accumulator (text of accumulator): reason of accumulator\n");
  CHECK(describe_faults(p) ==
        "fault           changed  bitwise  budget\n"
        "zeros           100.00%  detected  detected\n"
        "gain             25.00%  detected  MISSED\n"
        "swapped_scales  does not apply: reason of swapped_scales\n"
        "accumulator       3.12%  MISSED   MISSED\n");
  fault("terms", FaultClass::operands, 0.5, {true, true});
  CHECK(describe(p, 0) ==
        "  power of bitwise: 3 of 4 applicable faults detected (output 2 of 2, operands 1 of 1, "
        "rounding 0 of 1), on 3 x 4 outputs\n"
        "  missed: accumulator (text of accumulator): reason of accumulator\n");
}
