#include "fp8lab/verify/verify.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/gates.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

Operand output_of(const Product& product, const std::vector<std::byte>& codes) {
  return {"got",
          {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
          nullptr};
}

VerifyReport verify_codes(const Product& product, const std::vector<std::byte>& codes,
                          const VerifyOptions& options = {}) {
  return verify(product, output_of(product, codes), options);
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  return cast_output(values, {});
}

const FaultOutcome& fault(const PowerReport& power, const std::string& name) {
  for (const FaultOutcome& one : power.faults)
    if (one.name == name) return one;
  FAIL("no fault " << name);
  return power.faults.front();
}

std::string first_cause(const VerifyReport& report) {
  if (!report.diagnosis || report.diagnosis->causes.empty()) return "none";
  return report.diagnosis->causes.front().name;
}

}  // namespace

TEST_CASE("verify: the golden output passes, one changed bit does not", "[verify]") {
  for (const FormatId output :
       {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::e4m3fn, FormatId::e5m2}) {
    const RandomProduct random({.promotion_interval = 128, .output = default_output(output)},
                               {.tiles_a = {24}, .tiles_b = {20}});
    std::vector<std::byte> codes = golden_output(random.product);
    const VerifyReport right = verify_codes(random.product, codes);
    INFO(format(output).name << "\n" << describe(right));
    CHECK(right.verdict == Verdict::pass);
    CHECK(right.power.has_value());
    const auto width = static_cast<std::size_t>(format(output).storage_bits / 8);
    codes[(7 * 20 + 3) * width] ^= std::byte{1};
    const VerifyReport wrong = verify_codes(random.product, codes);
    CHECK(wrong.verdict == Verdict::mismatch);
    CHECK(wrong.comparison.bit_mismatches == 1);
    REQUIRE(wrong.elements.size() == 1);
    CHECK(wrong.elements[0].row == 7);
    CHECK(wrong.elements[0].column == 3);
    CHECK(wrong.elements[0].terms.size() == 4);
    CHECK_THAT(describe(wrong), contains("row 7 column 3"));
  }
}

TEST_CASE("verify: the golden model is among the models of an element", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {});
  std::vector<float> d = compute(random.product);
  const Product other =
      with_accumulator(random.product, find_instruction_model("sm100.mma.e4m3").accumulator);
  const VerifyReport report = verify_codes(random.product, bytes_of(compute(other)));
  REQUIRE_FALSE(report.elements.empty());
  const ElementReport& element = report.elements[0];
  bool own = false;
  bool named = false;
  for (const ModelAnswer& answer : element.models) {
    own |= answer.model == "sm90.wgmma.e4m3" && answer.code == element.mismatch.expected;
    named |= answer.model == "sm100.mma.e4m3" && answer.code == element.mismatch.got;
  }
  CHECK(own);
  CHECK(named);
  CHECK(first_cause(report) == "accumulator_sm90.mma.e4m3");
}

TEST_CASE("verify: every fault that is made is diagnosed as itself", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}});
  const Product& p = random.product;
  const auto cause_of = [&](const std::optional<Product>& wrong) {
    return first_cause(verify_codes(p, golden_output(*wrong)));
  };
  CHECK(cause_of(without_scales(p, Side::a)) == "missing_scale_a");
  CHECK(cause_of(without_scales(p, Side::b)) == "missing_scale_b");
  CHECK(cause_of(without_scales(p, Side::both)) == "missing_scale_a_and_b");
  CHECK(cause_of(with_doubled_scales(p, Side::b)) == "doubled_scale_b");
  CHECK(cause_of(with_transposed_scales(p, Side::a)) == "wrong_scale_axis_a");
  CHECK(cause_of(with_power_of_two_scales(p, Side::both)) ==
        "e8m0_scale_a_and_b_without_requantizing");
  CHECK(cause_of(with_swapped_scales(p)) == "swapped_scales");
  CHECK(cause_of(with_transposed_b(p)) == "transposed_b");
  CHECK(cause_of(with_fnuz_codes(p)) == "fnuz_inputs");
  CHECK(cause_of(without_terms(p, 384, 512)) == "dropped_last_k_tile");
  CHECK(first_cause(verify_codes(p, bytes_of(*compute_missing_promotion(p)))) ==
        "missing_promotion");
  CHECK(first_cause(verify_codes(p, bytes_of(*compute_split_k(p, 2)))) == "split_k_2");
}

TEST_CASE("verify: tiles that moved are named unless more than half are copies of right ones",
          "[verify]") {
  constexpr std::int64_t kTile = 64;
  // The cause that is named where tile i of the upper of two rows of tiles holds what belongs to
  // tile sources[i].
  const auto cause_of = [&](const std::vector<std::int64_t>& sources) {
    const auto columns = static_cast<std::int64_t>(sources.size()) * kTile;
    const RandomProduct random({}, {.shape = {2 * kTile, columns, 64}});
    const std::vector<std::byte> golden = golden_output(random.product);
    std::vector<std::byte> got = golden;
    const std::size_t width = golden.size() / static_cast<std::size_t>(2 * kTile * columns);
    for (std::int64_t row = 0; row < kTile; ++row)
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const auto at = [&](std::int64_t tile) {
          return static_cast<std::size_t>(row * columns + tile * kTile) * width;
        };
        std::memcpy(&got[at(static_cast<std::int64_t>(i))], &golden[at(sources[i])], kTile * width);
      }
    return first_cause(verify_codes(random.product, got));
  };
  constexpr const char* kName = "tiles_64x64_exchanged";
  CHECK(cause_of({0, 2, 1, 3, 4}) == kName);
  CHECK(cause_of({0, 2, 1, 0, 0}) == kName);  // two of four are copies
  CHECK(cause_of({0, 2, 1, 0, 0, 0}) != kName);
}

TEST_CASE("verify: lines that moved by one distance are a shift, copies of right lines too",
          "[verify]") {
  constexpr std::int64_t kLines = 24;
  // The cause that is named where line `to` of the output holds what belongs to line `from`.
  using Move = std::pair<std::int64_t, std::int64_t>;
  const auto cause_of = [&](bool rows, const std::vector<Move>& moves) {
    const RandomProduct random({}, {.shape = {kLines, kLines, 64}});
    const std::vector<float> golden = compute(random.product);
    std::vector<float> got = golden;
    for (const auto& [to, from] : moves)
      for (std::int64_t i = 0; i < kLines; ++i) {
        const auto at = [&](std::int64_t line) {
          return static_cast<std::size_t>(rows ? line * kLines + i : i * kLines + line);
        };
        got[at(to)] = golden[at(from)];
      }
    return first_cause(verify_codes(random.product, bytes_of(got)));
  };
  for (const bool rows : {true, false}) {
    const std::string name = rows ? "rows" : "columns";
    INFO(name);
    // The lines that were copied are right themselves: all, some, none but the first.
    CHECK(cause_of(rows, {{3, 2}, {9, 8}, {17, 16}}) == name + "_shifted_1");
    CHECK(cause_of(rows, {{3, 5}, {9, 11}}) == name + "_shifted_-2");
    CHECK(cause_of(rows, {{3, 2}, {4, 3}, {9, 8}, {10, 9}}) == name + "_shifted_1");
    CHECK(cause_of(rows, {{3, 2}, {4, 3}, {5, 4}, {6, 5}}) == name + "_shifted_1");
    // Moved by more distances than one they are exchanged, but not where most are copies.
    CHECK(cause_of(rows, {{3, 9}, {9, 3}}) == name + "_exchanged");
    CHECK(cause_of(rows, {{3, 9}, {9, 3}, {15, 1}, {20, 2}}) == name + "_exchanged");
    CHECK(cause_of(rows, {{3, 9}, {9, 3}, {15, 1}, {20, 2}, {22, 0}}) != name + "_exchanged");
    CHECK(cause_of(rows, {{3, 2}, {9, 7}}) != name + "_exchanged");
    CHECK(cause_of(rows, {{3, 2}}) != name + "_shifted_1");
  }
}

TEST_CASE("verify: FNUZ for FN and the reverse are named", "[verify]") {
  for (const bool fnuz : {false, true}) {
    RandomProduct random({.model = "exact"}, {});
    Product& p = random.product;
    if (fnuz) p = *with_fnuz_codes(p);
    p.output = default_output(fnuz ? FormatId::e4m3fnuz : FormatId::e4m3fn);
    INFO(format(p.output.format).name);
    const std::vector<std::byte> golden = golden_output(p);
    CHECK(verify_codes(p, golden).comparison.bitwise());
    CHECK(first_cause(verify_codes(p, golden_output(*with_fnuz_codes(p)))) == "fnuz_inputs");
    OutputCast other = p.output;
    other.format = *fnuz_counterpart(other.format);
    CHECK(first_cause(verify_codes(p, cast_output(compute(p), other))) ==
          (fnuz ? "fn_output" : "fnuz_output"));
  }
}

TEST_CASE("verify: subnormal operands flushed are named", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.data = Data::finite});
  const VerifyReport report =
      verify_codes(random.product, golden_output(*with_flushed_inputs(random.product)));
  CHECK(first_cause(report) == "flushed_input_subnormals");
}

TEST_CASE("power: what a check sees and what it misses", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {80, 600, 512}});
  const PowerReport report = power(random.product, all_checks());
  CHECK(report.rows == 64);
  CHECK(report.columns == 512);
  for (const FaultOutcome& one : report.faults) {
    INFO(one.name << ": " << one.reason);
    if (one.applies) CHECK(one.detected[0]);
  }
  CHECK(report.undetected(0) == nullptr);
  CHECK_FALSE(fault(report, "swapped_scales").applies);
  const auto seen = [&](const std::string& name, std::string_view check) {
    for (std::size_t i = 0; i < report.checks.size(); ++i)
      if (report.checks[i].name() == check)
        return static_cast<bool>(fault(report, name).detected[i]);
    return false;
  };
  CHECK_FALSE(seen("gain_0.72", "flashinfer.bmm"));
  CHECK(seen("gain_0.72", "deepgemm"));
  CHECK(seen("gain_0.72", "budget"));
  CHECK(seen("zeros", "flashinfer.bmm"));
  CHECK_FALSE(seen("accumulator", "deepgemm"));
  CHECK(seen("dropped_k_tile", "budget"));
}

TEST_CASE("power: integers in {-1, 0, 1} cannot tell accumulators apart", "[verify]") {
  RandomProduct random({.promotion_interval = 128}, {});
  for (std::vector<std::uint8_t>* codes : {&random.a, &random.b})
    for (std::uint8_t& code : *codes)
      code = static_cast<std::uint8_t>((code & 3) == 0 ? 0 : (code & 0x80) | 0x38);
  const Product exact =
      with_accumulator(random.product, find_instruction_model("exact").accumulator);
  const VerifyReport report = verify_codes(random.product, golden_output(exact));
  CHECK(report.comparison.bitwise());
  CHECK(report.verdict == Verdict::no_power);
  CHECK_THAT(fault(*report.power, "accumulator").reason, contains("integers in {-1, 0, 1}"));
  CHECK_THAT(fault(*report.power, "missing_promotion").reason, contains("{-1, 0, 1}"));
  CHECK_THAT(describe(report), contains("no power"));
}

TEST_CASE("power: a golden output of zeros", "[verify]") {
  RandomProduct random({}, {});
  for (std::uint8_t& code : random.a) code = 0;
  const VerifyReport report = verify_codes(random.product, golden_output(random.product));
  CHECK(report.verdict == Verdict::no_power);
  CHECK_THAT(describe(report), contains("the right output is all zeros"));
}

namespace {

Product with_model(const Product& product, std::string_view name) {
  return with_accumulator(product, find_instruction_model(name).accumulator);
}

}  // namespace

TEST_CASE("budget: right outputs of any accumulator inside it pass", "[verify][budget]") {
  for (const FormatId output : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn})
    for (const RandomProduct::Options& options :
         {RandomProduct::Options{}, RandomProduct::Options{.tiles_a = {24}, .tiles_b = {1}},
          RandomProduct::Options{.tiles_a = {24, 4}, .tiles_b = {1, 4}}}) {
      const RandomProduct random({.promotion_interval = 128, .output = default_output(output)},
                                 options);
      const VerifyOptions budget{.check = find_check("budget")};
      for (const char* model : {"sm90.wgmma.e4m3", "exact", "fp32", "sm100.mma.e4m3"}) {
        const VerifyReport report =
            verify_codes(random.product, golden_output(with_model(random.product, model)), budget);
        INFO(model << " " << format(output).name << "\n" << describe(report));
        CHECK(report.verdict == Verdict::pass);
        CHECK(report.power->seen(report.power_of_check, FaultClass::operands).seen > 0);
      }
      const VerifyReport own = verify_codes(random.product, golden_output(random.product), budget);
      CHECK_THAT(describe(own), contains("power of budget: ") && contains("output 5 of 5"));
      if (output == FormatId::f32) CHECK_THAT(describe(own), contains("cannot see: accumulator"));
    }
}

TEST_CASE("budget: wrong outputs fail, and the cause is sought outside of the budget",
          "[verify][budget]") {
  const RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}});
  const VerifyOptions budget{.check = find_check("budget")};
  // A kernel with another accumulator, whose every bit is allowed to differ, and a mistake.
  const Product p = with_model(random.product, "exact");
  const auto report_of = [&](const Product& wrong) {
    return verify_codes(random.product, golden_output(wrong), budget);
  };
  for (const auto& [wrong, name] :
       {std::pair{*without_scales(p, Side::a), "missing_scale_a"},
        std::pair{*with_transposed_scales(p, Side::b), "wrong_scale_axis_b"},
        std::pair{*with_transposed_b(p), "transposed_b"},
        std::pair{without_terms(p, 384, 512), "dropped_last_k_tile"}}) {
    const VerifyReport report = report_of(wrong);
    INFO(name << "\n" << describe(report));
    CHECK(report.verdict == Verdict::mismatch);
    CHECK(first_cause(report) == name);
  }
  // A NaN tile: nothing that differs inside of the budget is called its cause.
  std::vector<float> d = compute(p);
  for (std::size_t i = 3; i < 6; ++i)
    for (std::size_t j = 4; j < 9; ++j) d[i * 20 + j] = std::nanf("");
  const VerifyReport nan = verify_codes(random.product, bytes_of(d), budget);
  INFO(describe(nan));
  CHECK(nan.verdict == Verdict::mismatch);
  CHECK(nan.budget->outside.size() == 15);
  CHECK(first_cause(nan) == "none");
  CHECK(nan.diagnosis->mismatches == 15);
}

TEST_CASE("budget: few elements far off among many that are allowed to differ are found",
          "[verify][budget]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {256, 512, 512}});
  std::vector<float> d = compute(with_model(random.product, "exact"));
  const VerifyOptions budget{.check = find_check("budget")};
  CHECK(verify_codes(random.product, bytes_of(d), budget).verdict == Verdict::pass);
  d[100 * 512 + 77] *= 1.25F;
  const VerifyReport report = verify_codes(random.product, bytes_of(d), budget);
  CHECK(report.verdict == Verdict::mismatch);
  CHECK(report.budget->outside == std::vector<std::int64_t>{100 * 512 + 77});
}

TEST_CASE("power: a gate passes on what it can see", "[verify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {80, 200, 512}});
  const VerifyOptions deepgemm{.check = find_check("deepgemm")};
  const std::vector<std::byte> codes = golden_output(with_model(random.product, "exact"));
  const VerifyReport report = verify_codes(random.product, codes, deepgemm);
  CHECK(report.verdict == Verdict::pass);
  CHECK_THAT(describe(report), contains("cannot see: accumulator"));
  CHECK(report.power->undetected(report.power_of_check) != nullptr);
  // Of outputs that a tolerance swallows it sees nothing.
  RandomProduct tiny({.promotion_interval = 128}, {});
  for (std::uint8_t& code : tiny.a) code = 1;  // 2^-9
  for (std::uint8_t& code : tiny.b) code = 1;
  const VerifyReport blind =
      verify_codes(tiny.product, golden_output(tiny.product), {.check = find_check("torchao")});
  CHECK(blind.verdict == Verdict::no_power);
  CHECK_THAT(describe(blind), contains("missed: zeros"));
}

TEST_CASE("verify: wrong regions are found and described", "[verify][regions]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {96, 160, 512}});
  const std::vector<float> golden = compute(random.product);
  const auto report_of = [&](const auto& change, const char* check = "bitwise") {
    std::vector<float> d = golden;
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 32; ++j) change(d[(32 + i) * 160 + 100 + j], i, j);
    return verify_codes(random.product, bytes_of(d), {.check = find_check(check)});
  };
  const std::string place = "rows 32-47, columns 100-131: ";
  for (const char* check : {"bitwise", "budget"}) {
    const VerifyReport zeros = report_of([](float& x, auto, auto) { x = 0.0F; }, check);
    CHECK_THAT(describe(zeros), contains("region: " + place + "all zero"));
    REQUIRE(zeros.regions.size() == 1);
    CHECK(zeros.regions[0].content == RegionContent::zeros);
    CHECK(
        describe(report_of([](float& x, auto, auto) { x = std::nanf(""); }, check).regions.at(0)) ==
        place + "all NaN");
  }
  CHECK(describe(report_of([](float& x, auto, auto) { x = 7.5F; }).regions.at(0)) ==
        place + "one value everywhere");
  CHECK(describe(report_of([&](float& x, std::size_t i, std::size_t j) {
                   x = golden[(48 + i) * 160 + 20 + j];
                 }).regions.at(0)) == place + "a copy of rows 48-63, columns 20-51");
  // Causes are tried in the region alone: the rest is right.
  const std::vector<float> dropped = compute(without_terms(random.product, 384, 512));
  const VerifyReport last = report_of(
      [&](float& x, std::size_t i, std::size_t j) { x = dropped[(32 + i) * 160 + 100 + j]; });
  CHECK_THAT(describe(last.regions.at(0)),
             contains(place) && contains("cause: dropped_last_k_tile"));
  // Half of N with another accumulator: not every element there differs.
  std::vector<float> half = golden;
  const std::vector<float> exact = compute(with_model(random.product, "exact"));
  for (std::size_t i = 0; i < half.size(); ++i)
    if (i % 160 >= 80) half[i] = exact[i];
  const VerifyReport of_half = verify_codes(random.product, bytes_of(half));
  CHECK_THAT(describe(of_half.regions.at(0)),
             contains("columns 80-159: ") && contains("cause: accumulator_"));
  // One wrong element, or ones strewn about, are no regions.
  std::vector<float> strewn = golden;
  for (std::size_t i = 0; i < strewn.size(); i += 97) strewn[i] = 0.0F;
  CHECK(verify_codes(random.product, bytes_of(strewn)).regions.empty());
  strewn = golden;
  strewn[5] = 0.0F;
  CHECK(verify_codes(random.product, bytes_of(strewn)).regions.empty());
}

TEST_CASE("verify: C in another place is named", "[verify]") {
  RandomProduct random({.promotion_interval = 128, .c_enters = CPlacement::accumulator},
                       {.with_c = true});
  for (float& x : random.c) x *= 1000.0F;
  Product wrong = random.product;
  wrong.problem.c = random.product.problem.c;
  for (const CPlacement place : {CPlacement::promoted_sum, CPlacement::epilogue}) {
    wrong.problem.c_enters = place;
    CHECK(first_cause(verify_codes(random.product, golden_output(wrong))) ==
          "c_in_" + std::string(to_string(place)));
  }
  wrong.problem.c = nullptr;
  CHECK(first_cause(verify_codes(random.product, golden_output(wrong))) == "missing_c");
}

TEST_CASE("verify: NaN in a golden output that matches is told", "[verify]") {
  RandomProduct random({}, {});
  random.a[3] = 0x7f;
  const VerifyReport report = verify_codes(random.product, golden_output(random.product));
  CHECK(report.comparison.bitwise());
  CHECK(describe(report.non_finite) == "A has 1 NaN; the golden output has 20 NaN; got has 20 NaN");
}

TEST_CASE("gates: their limits", "[verify]") {
  CHECK(gates().size() == 8);
  CHECK(find_gate("deepgemm").limit == 1e-3);
  CHECK_THROWS_WITH(find_gate("rtol"), contains("flashinfer.bmm"));
  CHECK_THROWS_WITH(find_check("rtol"), contains("bitwise, budget"));
  const std::vector<float> golden(100, 1.0F);
  const auto passing = [&](float factor) {
    std::vector<float> got(100, factor);
    const CodeComparison c = compare_codes(format(FormatId::f32), std::as_bytes(std::span(golden)),
                                           std::as_bytes(std::span(got)),
                                           {.tolerances = gate_tolerances(FormatId::f32)});
    std::string names;
    for (std::size_t i = 0; i < gates().size(); ++i)
      if (gate_passes(i, c)) names += std::string(gates()[i].name) + " ";
    return names;
  };
  CHECK(passing(1.0F).size() > 80);
  CHECK(passing(1.003F) ==
        "deepgemm vllm.scaled_mm transformer_engine torchao flashinfer.bmm flashinfer.groupwise ");
  CHECK(passing(1.015F) ==
        "deepgemm vllm.scaled_mm transformer_engine flashinfer.bmm "
        "flashinfer.groupwise ");
  CHECK(passing(1.18F) == "vllm.scaled_mm transformer_engine flashinfer.bmm ");
  CHECK(passing(0.72F) == "vllm.scaled_mm flashinfer.bmm ");
  CHECK(passing(std::nanf("")).empty());
}

TEST_CASE("verify: outputs of another shape or type are refused", "[verify]") {
  const RandomProduct random({}, {});
  const std::vector<std::byte> codes = golden_output(random.product);
  Operand got{"got", {ElementType::f32, {20, 24}, codes}, nullptr};
  CHECK_THROWS_WITH(verify(random.product, got), contains("shape [24, 20]"));
  got = {"got", {ElementType::u32, {24, 20}, codes}, nullptr};
  CHECK_THROWS_WITH(verify(random.product, got), contains("f32 elements"));
  got = {"got", {ElementType::f32, {24, 20}, codes, true}, nullptr};
  const VerifyReport turned = verify(random.product, got);  // the same numbers in another order
  CHECK(turned.comparison.bit_mismatches > 0);
}
