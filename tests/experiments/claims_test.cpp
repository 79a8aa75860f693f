#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "claims/claim.hpp"
#include "claims/recorded.hpp"
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
    CHECK_FALSE(claim.setup.empty());
    CHECK(contains("holds").match(std::string(claim.criterion)));
    CHECK(claim.judge != nullptr);
    CHECK_FALSE(to_string(claim.basis).empty());
    CHECK(std::find(ids.begin(), ids.end(), claim.id) == ids.end());
    ids.push_back(claim.id);
  }
}

TEST_CASE("an unknown claim is named with the known ones", "[experiments]") {
  CHECK_THROWS_WITH(find_claim("Z9"), contains("'Z9'") && contains("F4b"));
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
  CHECK(measure(s8, {}).verdict == Verdict::does_not_hold);
  CHECK(value_of(measure(s8, {}).values, "scales") == recorded("rowwise_scales").value);
  // A zero amax counts as 1e-12 there: the scale is 448 over it, as binary32 has it.
  const Measurement s4 = measure(find_claim("S4"), {});
  CHECK(value_of(s4.values, "torchao") == static_cast<double>(448.0F / 1e-12F));
  CHECK_THAT(s4.figure, contains(std::string(recorded("zero_amax_scale").system)) &&
                            contains("tensorwise scale 4.48e+14"));
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
      {"F4a", does_not_hold},        {"F4b", holds},
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
