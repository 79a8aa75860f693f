// The order of what `identify` finds: hypotheses that are equally good in the order tried, and
// those that are right on a sample by what they give beyond it.

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Every hypothesis as a search tries it, and what it gives of a product.
struct Tried {
  std::vector<NamedAccumulator> accumulators;
  std::vector<OutputRounding> roundings;
  std::vector<Accumulation> ways;

  explicit Tried(const Product& product, bool zeros_show, std::span<const std::string> more = {})
      : accumulators(accumulators_for(product.problem, more, zeros_show)),
        roundings(output_roundings(product.output.format)),
        ways(accumulations(product.problem, accumulators)) {}

  [[nodiscard]] std::size_t size() const { return ways.size() * roundings.size(); }
  [[nodiscard]] Explanation at(std::size_t i) const {
    const Accumulation& how = ways[i / roundings.size()];
    return {accumulators[how.accumulator].names,
            how.promotion_interval,
            how.scale_order,
            how.split_k,
            roundings[i % roundings.size()].name,
            how.c_enters};
  }
  /// The codes that all roundings of one way give.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> codes(const Product& product,
                                                              std::size_t way) const {
    const std::vector<float> sums = sums_of(product, ways[way], accumulators, 1);
    const std::vector<float> d = result_of(product, ways[way], accumulators, sums);
    std::vector<std::vector<std::uint32_t>> all;
    for (const OutputRounding& one : roundings) all.push_back(round_output(d, one));
    return all;
  }
};

std::string text_of_members(const std::vector<Explanation>& members) {
  std::string text;
  for (const Explanation& one : members) text += describe(one, false) + "\n";
  return text;
}

}  // namespace

TEST_CASE("identify: of hypotheses that are all wrong the first ones tried are kept",
          "[identify]") {
  // 3 x 2 outputs: 64 are kept of those on two rows, and 16 of these on all.
  const RandomProduct random({}, {.shape = {3, 2, 128}, .data = Data::wide});
  const std::vector<float> got(6, 1e30F);
  const Identification found = identify(random.product, std::as_bytes(std::span(got)), 1);
  const Tried tried(random.product, false);
  CHECK(found.tried == tried.size());
  std::set<std::string> expected;
  for (std::size_t i = 0; i < 16; ++i) expected.insert(describe(tried.at(i), false));
  std::set<std::string> kept;
  std::size_t last = 0;
  for (std::size_t c = 0; c < found.ranking.size(); ++c) {
    const ExplanationClass& one = found.ranking[c];
    CHECK(one.matches == 0);
    CHECK(one.compared == 6);
    std::size_t before = 0;
    for (std::size_t m = 0; m < one.members.size(); ++m) {
      kept.insert(describe(one.members[m], false));
      std::size_t place = 0;
      while (place < tried.size() && !(tried.at(place) == one.members[m])) ++place;
      if (m == 0) CHECK((c == 0 || place > last));
      if (m == 0) last = place;
      if (m > 0) CHECK(place > before);
      before = place;
    }
  }
  CHECK(kept == expected);
}

TEST_CASE("identify: what is right on the sample is ranked by the whole output", "[identify]") {
  // Rows 21, 43 and 65 of 67 are in no sample of 64; all others are of ones, which tell little.
  RandomProduct random({.promotion_interval = 32}, {.shape = {67, 3, 64}, .data = Data::wide});
  for (std::size_t row = 0; row < 67; ++row)
    if (row != 21 && row != 43 && row != 65)
      std::fill_n(random.a.begin() + static_cast<std::ptrdiff_t>(row * 64), 64, std::uint8_t{0x38});
  std::fill(random.b.begin(), random.b.end(), std::uint8_t{0x38});
  // Of row 21 few bits can be lost, of row 43 more.
  for (std::size_t k = 0; k < 64; ++k) {
    random.a[21 * 64 + k] = static_cast<std::uint8_t>(0x30 + k % 24);
    random.a[43 * 64 + k] = static_cast<std::uint8_t>(k == 40 ? 0x7e : 0x08 + k % 32);
  }
  const Product sampled = take(random.product, {spread(67, 64), spread(3, 64)});
  const Tried tried(random.product, false);
  // Of an early hypothesis, so that it is among those that are computed whole.
  const std::vector<std::uint32_t> right = tried.codes(random.product, 2)[0];
  const std::span<const std::byte> golden = std::as_bytes(std::span(right));
  std::vector<std::uint32_t> right_on_sample;
  for (const std::int64_t row : spread(67, 64))
    for (std::int64_t column = 0; column < 3; ++column)
      right_on_sample.push_back(right[static_cast<std::size_t>(row * 3 + column)]);
  struct Place {
    std::uint64_t matches;
    std::size_t place;
  };
  std::vector<Place> computed;
  std::size_t good = 0;
  for (std::size_t way = 0; way < tried.ways.size(); ++way) {
    const auto on_sample = tried.codes(sampled, way);
    for (std::size_t r = 0; r < tried.roundings.size(); ++r) {
      if (on_sample[r] != right_on_sample || ++good > 32) continue;
      const std::vector<std::uint32_t> whole = tried.codes(random.product, way)[r];
      std::uint64_t matches = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) matches += whole[i] == right[i] ? 1U : 0U;
      computed.push_back({matches, way * tried.roundings.size() + r});
    }
  }
  REQUIRE(good > 33);
  const Identification found = identify(random.product, golden, 1);
  CHECK(found.explained());
  CHECK(found.beyond == good - 32);
  CHECK_FALSE(std::is_sorted(computed.begin(), computed.end(),
                             [](const Place& a, const Place& b) { return a.matches > b.matches; }));
  // Those that give all of it are one class, the others follow alone, the better ones first.
  std::vector<std::vector<Explanation>> expected(1);
  std::stable_sort(computed.begin(), computed.end(),
                   [](const Place& a, const Place& b) { return a.matches > b.matches; });
  std::vector<std::uint64_t> matches{67 * 3};
  for (const Place& one : computed) {
    if (one.matches == 67 * 3) {
      expected.front().push_back(tried.at(one.place));
      continue;
    }
    expected.push_back({tried.at(one.place)});
    matches.push_back(one.matches);
  }
  REQUIRE(expected.size() > 3);
  REQUIRE(found.ranking.size() >= expected.size());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    INFO("class " << c);
    CHECK(text_of_members(found.ranking[c].members) == text_of_members(expected[c]));
    CHECK(found.ranking[c].matches == matches[c]);
    CHECK(found.ranking[c].compared == 67 * 3);
  }
  // What was wrong on the sample stands behind them, compared on it alone.
  for (std::size_t c = expected.size(); c < found.ranking.size(); ++c) {
    CHECK(found.ranking[c].compared == 64 * 3);
    CHECK(found.ranking[c].matches < 64 * 3);
  }
}

TEST_CASE("identify: zeros of either sign make the sign of zero a question", "[identify]") {
  // Two accumulators that differ in nothing else: no two registered ones do.
  const std::string model = "sm100.mma.bf16";
  const std::vector<std::string> more{model + ":zero_sign=kept"};
  for (const FormatId id : {FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn}) {
    const RandomProduct random({.model = model, .output = default_output(id)},
                               {.shape = {2, 2, 32}});
    const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
    const auto tried_with = [&](std::uint32_t code) {
      std::vector<std::byte> got(4 * width, std::byte{0x3a});
      for (std::size_t i = 0; i < width; ++i)
        got[width + i] = static_cast<std::byte>(code >> (8 * i) & 0xffU);
      return identify(random.product, got, 1, more).tried;
    };
    INFO(format(id).name);
    const std::uint64_t plain = tried_with(format(id).max_finite_code());
    CHECK(plain == Tried(random.product, false, more).size());
    CHECK(tried_with(0) == Tried(random.product, true, more).size());
    CHECK(tried_with(format(id).sign_mask()) == Tried(random.product, true, more).size());
    CHECK(tried_with(1) == plain);
    CHECK(Tried(random.product, true, more).size() > plain);
  }
}

TEST_CASE("identify: places that separate have what was got, also where neither gives it",
          "[identify]") {
  const RandomProduct random({.promotion_interval = 64}, {.shape = {5, 3, 256}});
  std::vector<std::byte> got = golden_output(random.product);
  const Identification right = identify(random.product, got, 1);
  REQUIRE(right.separating.size() > 1);
  const SeparatingElement changed = right.separating[0];
  got[static_cast<std::size_t>(changed.row * 3 + changed.column) * 4 + 3] ^= std::byte{0x80};
  const Identification found = identify(random.product, got, 1);
  CHECK_FALSE(found.explained());
  REQUIRE_FALSE(found.separating.empty());
  bool seen = false;
  for (const SeparatingElement& at : found.separating) {
    CHECK(at.got == code_at(FormatId::f32, got, static_cast<std::size_t>(at.row * 3 + at.column)));
    CHECK(at.first != at.second);
    seen |= at.row == changed.row && at.column == changed.column && at.got != at.first;
  }
  CHECK(seen);
}
