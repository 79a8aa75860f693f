// The check of casts with stochastic rounding, with a chip on the host: the random bits and the
// rule that a test plants in it are named, and results that no random bits may give are counted.

#include <set>

#include "catch.hpp"
#include "cuda/tool/judge_rounding.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

constexpr std::size_t kInputs = 4096;

/// A chip that takes these bits for its elements.
RunStochastic simulated(const StochasticCast& cast, const std::vector<RandomBits>& bits) {
  return [&cast, bits](const std::vector<StochasticInput>& inputs) {
    const int size = cast.elements == 2 ? 16 : cast.to == FormatId::e2m1 ? 4 : 8;
    std::vector<std::uint32_t> words;
    for (const StochasticInput& input : inputs) {
      std::uint32_t word = 0;
      for (int e = 0; e < cast.elements; ++e) {
        const auto at = static_cast<std::size_t>(e);
        word = word << size | rounded(cast, input.values[at], input.random, bits[at]);
      }
      words.push_back(word);
    }
    return words;
  };
}

std::vector<RandomBits> some_bits(const StochasticCast& cast, UpRule rule) {
  std::vector<RandomBits> bits;
  for (int e = 0; e < cast.elements; ++e)
    bits.push_back(cast.elements == 2 ? RandomBits{16 - 16 * e, 13, false, rule}
                                      : RandomBits{24 - 8 * e, 8, false, rule});
  return bits;
}

}  // namespace

TEST_CASE("the random bits and the rule of a simulated cast are named", "[cuda]") {
  const auto rule = GENERATE(UpRule::sum_carries, UpRule::fraction_above);
  std::set<std::string_view> names;
  for (const StochasticCast& cast : stochastic_casts()) {
    CHECK(names.insert(cast.name).second);
    const std::vector<RandomBits> bits = some_bits(cast, rule);
    const CheckRow row = judge_rounding(cast, simulated(cast, bits), 1, kInputs);
    INFO(cast.name << ": " << row.note);
    CHECK(row.mismatches == 0);
    CHECK(row.problem.empty());
    CHECK(row.cases == 3 * kInputs * static_cast<std::uint64_t>(cast.elements));
    std::string note;
    for (std::size_t e = 0; e < bits.size(); ++e)
      note += (e == 0 ? "element " : "; element ") + std::to_string(e) + ": " + to_string(bits[e]);
    CHECK(row.note == note);
  }
}

TEST_CASE("shared and reversed random bits are named", "[cuda]") {
  const StochasticCast& cast = stochastic_casts().front();
  const std::vector<RandomBits> bits{{0, 16, false, UpRule::sum_carries},
                                     {0, 16, true, UpRule::sum_carries},
                                     {16, 16, false, UpRule::sum_carries},
                                     {20, 5, true, UpRule::fraction_above}};
  const CheckRow row = judge_rounding(cast, simulated(cast, bits), 1, kInputs);
  INFO(row.note);
  CHECK(row.problem.empty());
  CHECK_THAT(row.note, contains("bits 0 to 15 reversed, added"));
  CHECK_THAT(row.note, contains("bits 20 to 24 reversed, up where"));
}

TEST_CASE("results that no random bits may give are mismatches", "[cuda]") {
  const StochasticCast& cast = stochastic_casts().front();
  const RunStochastic right = simulated(cast, some_bits(cast, UpRule::sum_carries));
  SECTION("one bit of one code") {
    int once = 0;
    const CheckRow row = judge_rounding(
        cast,
        [&](const std::vector<StochasticInput>& inputs) {
          std::vector<std::uint32_t> words = right(inputs);
          if (once++ == 0) words[7] ^= 4;
          return words;
        },
        1, kInputs);
    CHECK(row.mismatches == 1);
  }
  SECTION("another order of elements") {
    const CheckRow row = judge_rounding(
        cast,
        [&](const std::vector<StochasticInput>& inputs) {
          std::vector<std::uint32_t> words = right(inputs);
          for (std::uint32_t& word : words) word = word << 16 | word >> 16;
          return words;
        },
        1, kInputs);
    CHECK(row.mismatches > kInputs);
  }
}

TEST_CASE("random bits that no tried rule takes are a problem of the row", "[cuda]") {
  const StochasticCast& cast = stochastic_casts().front();
  const std::vector<RandomBits> bits = some_bits(cast, UpRule::sum_carries);
  const CheckRow row = judge_rounding(
      cast,
      [&](std::vector<StochasticInput> inputs) {
        for (StochasticInput& input : inputs) input.random *= 2654435761u;
        return simulated(cast, bits)(inputs);
      },
      1, kInputs);
  CHECK(row.mismatches == 0);
  CHECK(row.problem == "random bits not explained");
}
