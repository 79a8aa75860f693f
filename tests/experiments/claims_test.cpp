#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "claims/claim.hpp"
#include "claims/recorded.hpp"
#include "claims/seeded_runs.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

TEST_CASE("every claim of the naive-FP8 tutorial is there exactly once", "[experiments]") {
  for (const std::string id : {"F1", "F1a", "F2", "F2a", "F3", "F4", "F4a", "F4b", "F4c", "L1",
                               "L2", "L3", "L4", "L5", "L6", "L7", "L8"}) {
    INFO(id);
    CHECK(std::count_if(all_claims().begin(), all_claims().end(),
                        [&](const Claim& claim) { return claim.id == id; }) == 1);
    CHECK(find_claim(id).id == id);
  }
}

TEST_CASE("every claim says what it claims, how it is measured and judged", "[experiments]") {
  std::vector<std::string_view> ids;
  for (const Claim& claim : all_claims()) {
    INFO(claim.id);
    CHECK_FALSE(claim.source.empty());
    CHECK_FALSE(claim.statement.empty());
    CHECK(claim.line > 0);
    CHECK(claim.words.size() > 10);
    CHECK_FALSE(claim.setup.empty());
    CHECK(contains("holds").match(std::string(claim.criterion)));
    CHECK(claim.judge != nullptr);
    CHECK_FALSE(to_string(claim.basis).empty());
    CHECK(std::find(ids.begin(), ids.end(), claim.id) == ids.end());
    ids.push_back(claim.id);
  }
}

TEST_CASE("a claim without words of its source is refused", "[experiments]") {
  CHECK(find_quotation("F1b").words.find("flushes to zero") != std::string_view::npos);
  CHECK_THROWS_WITH(find_quotation("Z9"), contains("quotations.cpp") && contains("'Z9'"));
}

TEST_CASE("claims about a chip rest on bits that only one reading gives", "[experiments]") {
  CHECK(recorded_rows().header.at("gpu").starts_with("NVIDIA H200"));
  const Measurement flush = measure(find_claim("F1b"), {});
  CHECK(flush.verdict == Verdict::does_not_hold);
  CHECK(value_of(flush.values, "rows") - value_of(flush.values, "explained_flushed") == 6.0);
  const auto judged = [&](double kept, double flushed) {
    return find_claim("F1b").judge(std::vector<MeasuredValue>{
        {"rows", "1", 13.0}, {"explained_kept", "1", kept}, {"explained_flushed", "1", flushed}});
  };
  CHECK(judged(7.0, 13.0) == Verdict::holds);
  CHECK(judged(13.0, 13.0) == Verdict::cannot_tell);
  const Measurement rounded = measure(find_claim("F4e"), {});
  CHECK(value_of(rounded.values, "explained_exact") == value_of(rounded.values, "rows"));
  CHECK(value_of(rounded.values, "largest_off_rounded") >
        100.0 * value_of(rounded.values, "largest_off_exact"));
}

TEST_CASE("an unknown claim is named with those that may be meant", "[experiments]") {
  CHECK_THROWS_WITH(find_claim("Z9"), contains("'Z9'") && contains("did you mean L9"));
}

TEST_CASE("a claim whose measurement is not finite is refused", "[experiments]") {
  const Claim broken{"X1",
                     "",
                     "",
                     "",
                     "",
                     [](const ClaimContext&) {
                       return Measurement{"", {{"ratio", "1", 0.0 / 0.0}}};
                     },
                     [](Values) { return Verdict::holds; }};
  CHECK_THROWS_WITH(measure(broken, {}), contains("claim X1: ratio"));
}

TEST_CASE("claims about installed systems rest on what these did", "[experiments]") {
  CHECK(recorded("rowwise_scales").system.starts_with("torchao "));
  CHECK_THROWS_WITH(recorded("columnwise_scales"), contains("'columnwise_scales'"));
  // One scale for the tensor would be what the claim says.
  const Claim& s8 = find_claim("S8");
  CHECK(s8.basis == Basis::recorded);
  CHECK(s8.judge(std::vector<MeasuredValue>{{"scales", "1", 1.0}}) == Verdict::holds);
  CHECK(measure(s8, {}).verdict == Verdict::holds_with_correction);
  CHECK(value_of(measure(s8, {}).values, "scales") == recorded("rowwise_scales").value);
  // A zero amax counts as 1e-12 there: the scale is 448 over it, as binary32 has it.
  const Measurement s4 = measure(find_claim("S4"), {});
  CHECK(value_of(s4.values, "torchao") == static_cast<double>(448.0F / 1e-12F));
  CHECK_THAT(s4.figure, contains(std::string(recorded("zero_amax_scale").system)) &&
                            contains("tensorwise one 4.48e+14"));
}

TEST_CASE("the first listings, run as they are written, do not do what they are for",
          "[experiments]") {
  const Measurement linear = measure(find_claim("L9"), {.seed = 3});
  CHECK(value_of(linear.values, "operands_in_e4m3") < 0.01);
  CHECK(value_of(linear.values, "error_as_written") < 1e-6);  // nothing is quantized
  CHECK(value_of(linear.values, "error_in_e4m3") > 0.03);
  const Measurement product = measure(find_claim("L10"), {.seed = 3});
  CHECK(value_of(product.values, "outputs_changed") == 0.0);
  CHECK(value_of(product.values, "error_in_tiles") > 0.03);
  const Measurement warmup = measure(find_claim("L11"), {.seed = 3});
  CHECK(value_of(warmup.values, "mu_differs") == 0.0);
  CHECK(value_of(warmup.values, "halved_in_warmup") > 0.0);
}

TEST_CASE("claims measure the same with one thread and two", "[experiments][repeats]") {
  for (const char* id : {"F4", "F4a", "F4c", "L4", "L5"}) {
    const Measurement one = measure(find_claim(id), {.seed = 5, .threads = 1});
    const Measurement two = measure(find_claim(id), {.seed = 5, .threads = 2});
    INFO(id);
    CHECK(one.figure == two.figure);
    CHECK(one.verdict == two.verdict);
    REQUIRE(one.values.size() == two.values.size());
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      INFO(one.values[i].name);
      CHECK(one.values[i].value == two.values[i].value);
    }
  }
}

TEST_CASE("verdicts of the naive-FP8 tutorial stay as measured for other seeds",
          "[experiments][slow]") {
  using enum Verdict;
  const std::vector<std::pair<const char*, Verdict>> expected{
      {"F1", holds_with_correction}, {"F1a", holds_with_correction},
      {"F2", does_not_hold},         {"F2a", holds},
      {"F3", holds_with_correction}, {"F4", holds_with_correction},
      {"F4a", does_not_hold},        {"F4b", holds_with_correction},
      {"F4c", does_not_hold},        {"L1", does_not_hold},
      {"L2", holds_with_correction}, {"L3", does_not_hold},
      {"L4", does_not_hold},         {"L5", does_not_hold},
      {"L6", does_not_hold},         {"L7", does_not_hold},
      {"L8", holds_with_correction}};
  const auto seed = GENERATE(std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3});
  for (const auto& [id, verdict] : expected) {
    const Measurement measured = measure(find_claim(id), {.seed = seed, .threads = 2});
    INFO(id << ", seed " << seed << ": " << measured.figure);
    CHECK(to_string(measured.verdict) == to_string(verdict));
  }
}

TEST_CASE("claims: a run leaves where its gap over 25 steps stays above the band",
          "[experiments]") {
  const auto left = [](const std::vector<double>& gaps, double band) {
    const std::vector<double> reference(gaps.size(), 2.0);
    std::vector<double> run;
    for (const double gap : gaps) run.push_back(2.0 + gap);
    return leaving_step(run, reference, band);
  };
  std::vector<double> gaps(60, 0.0);
  CHECK(left(gaps, 0.0) == -1);  // not above it
  for (std::size_t i = 10; i < gaps.size(); ++i) gaps[i] = 1.0;
  // Steps 0 to 24 are the first mean: 15 of them are above.
  CHECK(left(gaps, 0.5) == 24);
  CHECK(left(gaps, 0.6) == 25);
  CHECK(left(gaps, 0.96) == 34);
  CHECK(left(gaps, 0.95) == 33);
  CHECK(left(gaps, 1.0) == -1);
  // A run that comes back has not left, and one that leaves again left then.
  for (std::size_t i = 30; i < 50; ++i) gaps[i] = -1.0;
  CHECK(left(gaps, 0.5) == -1);
  gaps.resize(80, 1.0);
  CHECK(left(gaps, 0.5) == 68);
  gaps.resize(90, -1.0);
  CHECK(left(gaps, 0.5) == -1);
  // One that breaks off left there, or where its mean went up before.
  std::vector<double> broken(60, 0.0);
  broken[7] = std::nan("");
  CHECK(left(broken, 0.5) == 7);
  broken = std::vector<double>(60, 1.0);
  broken[40] = std::numeric_limits<double>::infinity();
  CHECK(left(broken, 0.5) == 24);
  CHECK(left(broken, 1.0) == 40);
  CHECK(left(std::vector<double>(24, 1.0), 0.5) == -1);
  CHECK(left(std::vector<double>(25, 1.0), 0.5) == 24);
}

TEST_CASE("claims: a run counts its verdicts and names what does not hold", "[experiments]") {
  const std::vector<Claim> claims{
      {"X1", "paper", "first", "s1", "c1", nullptr, nullptr, Basis::arithmetic},
      {"X2", "guide", "second.", "s2", "c2", nullptr, nullptr, Basis::recorded},
      {"X3", "page", "third", "s3", "c3", nullptr, nullptr}};
  std::vector<MeasuredClaim> measured;
  const auto add = [&](std::size_t claim, Verdict verdict, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i)
      measured.push_back({&claims[claim], {"f", {{"v", "nats", 0.5}, {"w", "%", 7.0}}, verdict}});
  };
  add(2, Verdict::holds, 3);
  add(2, Verdict::holds_with_correction, 4);
  add(0, Verdict::does_not_hold, 1);
  add(1, Verdict::does_not_hold, 1);
  add(2, Verdict::cannot_tell, 5);
  const Results results = claim_results(measured);
  REQUIRE(results.findings.size() == 3);
  CHECK(results.findings[0] ==
        "Of 14 claims 3 hold, 4 hold with a correction, 2 do not hold, and 5 cannot be decided "
        "here.");
  CHECK(results.findings[1] == "X1 does not hold: first.");
  CHECK(results.findings[2] == "X2 does not hold: second.");
  REQUIRE(results.tables.size() == 2);
  CHECK(results.tables[0].rows().size() == 14);
  const std::string verdicts = results.tables[0].csv();
  CHECK_THAT(verdicts, contains("\nX1,first,paper,0,,s1,c1,f,arithmetic,does not hold\n"));
  CHECK_THAT(verdicts, contains("\nX2,second.,guide,0,,s2,c2,f,recorded,does not hold\n"));
  CHECK_THAT(verdicts, contains("\nX3,third,page,0,,s3,c3,f,measured,cannot tell\n"));
  CHECK(results.tables[1].rows().size() == 28);
  CHECK_THAT(results.tables[1].csv(), contains("\nX1,v,nats,0.5\nX1,w,%,7.0\n"));
}
