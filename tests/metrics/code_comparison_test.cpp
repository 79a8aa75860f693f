#include "fp8lab/metrics/code_comparison.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

struct Pair {
  std::vector<float> expected;
  std::vector<float> got;

  [[nodiscard]] std::span<const std::byte> expected_bytes() const {
    return std::as_bytes(std::span(expected));
  }
  [[nodiscard]] std::span<const std::byte> got_bytes() const {
    return std::as_bytes(std::span(got));
  }
};

/// Every third element is off by up to a few per cent; some are zeros or of either sign.
Pair random_pair(std::size_t count) {
  const RandomStream random(5, "code_comparison");
  Pair pair;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(random.normal(2 * i));
    pair.expected.push_back(i % 17 == 0 ? 0.0F : x);
    const auto error = static_cast<float>(0.05 * random.uniform(2 * i + 1));
    pair.got.push_back(i % 3 == 0 ? x * (1.0F + error) : pair.expected.back());
  }
  return pair;
}

CodeComparison compare_floats(const Pair& pair, CodeComparisonOptions options = {}) {
  return compare_codes(format(FormatId::f32), pair.expected_bytes(), pair.got_bytes(),
                       std::move(options));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("code comparison: the numbers are those of compare and ulp_histogram", "[metrics]") {
  const Pair pair = random_pair(200'001);
  const CodeComparison c = compare_floats(pair, {.tolerances = {{0.01, 0.001}}, .threads = 2});
  const Comparison expected = compare(std::span<const float>(pair.expected), pair.got);
  CHECK(c.values.count == expected.count);
  CHECK(c.values.mismatches == expected.mismatches);
  CHECK(std::abs(c.values.relative_l2 / expected.relative_l2 - 1.0) < 1e-12);
  CHECK(std::abs(c.values.sqnr_db - expected.sqnr_db) < 1e-9);
  CHECK(std::abs(c.values.cosine - expected.cosine) < 1e-12);
  CHECK(std::abs(c.values.calc_diff - expected.calc_diff) < 1e-12);
  CHECK(std::abs(c.values.mean_signed_relative - expected.mean_signed_relative) < 1e-12);
  CHECK(c.values.max_absolute == expected.max_absolute);
  CHECK(c.values.max_absolute_index == expected.max_absolute_index);
  CHECK(c.values.max_relative == expected.max_relative);
  CHECK(c.values.max_relative_index == expected.max_relative_index);
  const UlpHistogram ulp = ulp_histogram(std::span<const float>(pair.expected), pair.got);
  CHECK(c.ulp.counts == ulp.counts);
  CHECK(c.ulp.max_index == ulp.max_index);
  CHECK(c.ulp.toward_zero == ulp.toward_zero);
  CHECK(c.ulp.away_from_zero == ulp.away_from_zero);
  CHECK(static_cast<double>(c.far[0]) / 200'001.0 ==
        mismatch_rate(pair.expected, pair.got, 0.01, 0.001));
  double distance = 0.0;
  double magnitude = 0.0;
  for (std::size_t i = 0; i < pair.got.size(); ++i) {
    distance += std::abs(double{pair.got[i]} - double{pair.expected[i]});
    magnitude += std::abs(double{pair.expected[i]});
  }
  CHECK(std::abs(c.mean_absolute_relative / (distance / magnitude) - 1.0) < 1e-12);
}

TEST_CASE("code comparison: neither threads nor parts change what is counted", "[metrics]") {
  const Pair pair = random_pair(150'000);
  const CodeComparison one = compare_floats(pair, {.threads = 1});
  const CodeComparison four = compare_floats(pair, {.threads = 4});
  CHECK(one.values.relative_l2 == four.values.relative_l2);
  CHECK(one.values.cosine == four.values.cosine);
  MismatchMap map = make_map(300, 500, 8);
  CodeComparer parts(format(FormatId::f32), {.map = &map});
  for (std::size_t begin = 0; begin < 150'000 * 4; begin += 4 * 70'000) {
    const std::size_t size = std::min<std::size_t>(4 * 70'000, 150'000 * 4 - begin);
    parts.add(pair.expected_bytes().subspan(begin, size), pair.got_bytes().subspan(begin, size));
  }
  const CodeComparison c = parts.finish();
  CHECK(c.bit_mismatches == one.bit_mismatches);
  CHECK(c.first->index == one.first->index);
  CHECK(c.worst->index == one.worst->index);
  CHECK(c.worst->ulp == one.ulp.max_distance);
  CHECK(c.values.max_relative_index == one.values.max_relative_index);
  CHECK(map.rows <= 8);
  CHECK(map.columns <= 8);
  CHECK(std::accumulate(map.counts.begin(), map.counts.end(), std::uint64_t{0}) ==
        c.bit_mismatches);
}

TEST_CASE("code comparison: a mismatch is counted in its own tile", "[metrics]") {
  Pair pair{std::vector<float>(100 * 70, 1.0F), std::vector<float>(100 * 70, 1.0F)};
  pair.got[42 * 70 + 69] = 2.0F;
  MismatchMap map = make_map(100, 70, 32);
  const CodeComparison c = compare_floats(pair, {.map = &map});
  CHECK(c.first->index == 42 * 70 + 69);
  const std::int64_t tile = 42 / map.tile_rows * map.columns + 69 / map.tile_columns;
  CHECK(map.counts[static_cast<std::size_t>(tile)] == 1);
}

TEST_CASE("code comparison: each tile of a map has its own mismatches", "[metrics]") {
  const Pair pair = random_pair(150'000);
  for (const auto& [rows, columns, most] :
       {std::array{300, 500, 8}, std::array{500, 300, 32}, std::array{1, 150'000, 7},
        std::array{150'000, 1, 1000}, std::array{75'000, 2, 1}}) {
    MismatchMap map = make_map(rows, columns, most);
    INFO("[" << rows << ", " << columns << "], at most " << most << " tiles a side");
    // The least power of two that gives no more tiles.
    CHECK((map.rows - 1) * map.tile_rows < rows);
    CHECK(map.rows * map.tile_rows >= rows);
    CHECK((map.columns - 1) * map.tile_columns < columns);
    CHECK(map.columns * map.tile_columns >= columns);
    CHECK((map.rows <= most && map.columns <= most));
    CHECK((map.tile_rows == 1 || 2 * map.rows > most));
    CHECK((map.tile_columns == 1 || 2 * map.columns > most));
    std::vector<std::uint64_t> expected(map.counts.size());
    for (std::int64_t i = 0; i < 150'000; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (std::bit_cast<std::uint32_t>(pair.expected[at]) ==
          std::bit_cast<std::uint32_t>(pair.got[at]))
        continue;
      const std::int64_t tile =
          i / columns / map.tile_rows * map.columns + i % columns / map.tile_columns;
      ++expected[static_cast<std::size_t>(tile)];
    }
    (void)compare_floats(pair, {.map = &map, .threads = 3});
    CHECK((map.counts == expected));
  }
}

TEST_CASE("code comparison: of equal errors in many chunks the first is named", "[metrics]") {
  Pair pair{std::vector<float>(200'000, 1.0F), std::vector<float>(200'000, 1.0F)};
  pair.got[5] = 1.25F;
  pair.got[70'000] = 1.5F;
  pair.got[140'000] = 1.5F;
  pair.got[150'000] = 0.75F;
  for (const std::size_t i : {std::size_t{66'000}, std::size_t{199'999}}) {
    pair.expected[i] = kNan;
    pair.got[i] = std::bit_cast<float>(0x7fffffffu);
  }
  const CodeComparisonOptions options{
      .tolerances = {{0.25, 0.0}, {0.0, 0.5}, {0.125, 0.125}, {0.0, 0.249}}};
  const CodeComparison c = compare_floats(pair, options);
  CHECK(c.values.count == 200'000);
  CHECK(c.bit_mismatches == 4);
  CHECK(c.values.mismatches == 4);
  CHECK(c.nan_payloads == 2);
  CHECK(c.first->index == 5);
  CHECK(c.first->expected == 0x3f800000u);
  CHECK(c.first->got == 0x3fa00000u);
  CHECK(c.first->ulp == 0x200000u);
  CHECK(c.worst->index == 70'000);
  CHECK(c.worst->ulp == 0x400000u);
  CHECK(c.values.max_absolute == 0.5);
  CHECK(c.values.max_absolute_index == 70'000);
  CHECK(c.values.max_relative == 0.5);
  CHECK(c.values.max_relative_index == 70'000);
  for (const UlpHistogram* h : {&c.ulp, &c.fp8}) {
    CHECK(h->total == 200'000);
    CHECK(h->counts[0] == 199'996);
    CHECK(h->max_index == 70'000);
    CHECK(h->away_from_zero == 3);
    CHECK(h->toward_zero == 1);
    CHECK(h->nan_mismatches == 0);
  }
  CHECK(c.ulp.max_distance == 0x400000u);
  CHECK(c.fp8.max_distance == 4);  // eighths
  CHECK(c.fp8.counts[UlpHistogram::bin_of(2)] == 1);
  CHECK(c.fp8.counts[UlpHistogram::bin_of(4)] == 3);  // 0.75 is four sixteenths below
  CHECK(c.far == std::vector<std::uint64_t>{2, 0, 2, 4});

  pair.expected[150'000] = std::numeric_limits<float>::infinity();
  pair.got[80'000] = kNan;
  const CodeComparison wrong = compare_floats(pair, options);
  CHECK(wrong.values.non_finite_mismatches == 2);
  CHECK(wrong.values.max_absolute_index == 80'000);
  CHECK(wrong.values.max_relative_index == 80'000);
  CHECK(wrong.worst->index == 80'000);
  CHECK(wrong.ulp.nan_mismatches == 1);
  CHECK(wrong.fp8.nan_mismatches == 1);
  CHECK(wrong.far == std::vector<std::uint64_t>{4, 2, 4, 5});
}

TEST_CASE("code comparison: special values", "[metrics]") {
  const float other_nan = std::bit_cast<float>(0x7fffffffu);
  const CodeComparison same =
      compare_floats({{kNan, kInfinity, 0.0F, 1.0F}, {other_nan, kInfinity, -0.0F, 1.0F}});
  CHECK(same.nan_payloads == 1);
  CHECK(same.bit_mismatches == 1);  // -0 for +0
  CHECK(same.values.mismatches == 0);
  CHECK(same.first->index == 2);
  const CodeComparison wrong = compare_floats({{1.0F, kNan, 2.0F}, {1.5F, 3.0F, kInfinity}});
  CHECK(wrong.values.non_finite_mismatches == 2);
  CHECK(std::isnan(wrong.values.cosine));
  CHECK(wrong.values.max_absolute_index == 1);
  CHECK(wrong.worst->index == 1);
  CHECK(wrong.worst->ulp == kNanDistance);
  CHECK(wrong.ulp.nan_mismatches == 1);
  const CodeComparison negated = compare_floats({{1.0F, -2.0F}, {-1.0F, 2.0F}});
  CHECK(negated.bit_mismatches == 2);
  CHECK(negated.ulp.away_from_zero == 0);  // as far from it as before
  CHECK(negated.ulp.toward_zero == 0);
}

TEST_CASE("code comparison: no figure comes from outputs without a finite pair", "[metrics]") {
  for (const float value : {kNan, kInfinity, -kInfinity})
    for (const float got : {value, std::isnan(value) ? -kNan : value}) {
      const CodeComparison c = compare_floats({{value, value}, {got, value}});
      INFO("value " << value << ", NaN with another code: " << c.nan_payloads);
      CHECK(c.bitwise());
      CHECK(c.values.mismatches == 0);
      CHECK(c.values.non_finite_mismatches == 0);
      for (const double figure : {c.values.relative_l2, c.values.sqnr_db, c.values.cosine,
                                  c.values.calc_diff, c.values.max_absolute, c.values.max_relative,
                                  c.values.mean_signed_relative, c.mean_absolute_relative})
        CHECK(std::isnan(figure));
    }
  // One finite pair in any chunk is enough, equal or not.
  Pair late{std::vector<float>(200'000, kNan), std::vector<float>(200'000, kNan)};
  CHECK(std::isnan(compare_floats(late).values.relative_l2));
  late.expected[150'000] = late.got[150'000] = 0.0F;
  CHECK(compare_floats(late).values.relative_l2 == 0.0);
  late.got[150'000] = -0.0F;
  CHECK(compare_floats(late).values.relative_l2 == 0.0);
  CHECK(compare_floats({{kNan, 1.0F}, {kNan, 1.5F}}).values.relative_l2 == 0.5);
  CHECK(compare_floats({}).values.relative_l2 == 0.0);
}

TEST_CASE("code comparison: FP8 distances ignore what FP8 cannot see", "[metrics]") {
  // 1.0 and 1.06 round to the same three bits; 1.0 and 1.2 are two steps of 1/8 apart.
  const CodeComparison c =
      compare_floats({{1.0F, 1.0F, 1000.0F, -1.0F}, {1.06F, 1.2F, 1000.0F, 1.0F}});
  CHECK(c.fp8.counts[0] == 2);
  CHECK(c.fp8.counts[UlpHistogram::bin_of(2)] == 1);
  CHECK(c.ulp.counts[0] == 1);
}

TEST_CASE("code comparison: codes of 8 and 16 bits", "[metrics]") {
  const std::vector<std::uint8_t> codes{0x38, 0x7e, 0x00, 0x80};
  const std::vector<std::uint8_t> others{0x39, 0x7e, 0x80, 0x80};
  const CodeComparison c = compare_codes(format(FormatId::e4m3fn), std::as_bytes(std::span(codes)),
                                         std::as_bytes(std::span(others)));
  CHECK(c.bit_mismatches == 2);
  CHECK(c.values.mismatches == 1);
  CHECK(c.values.max_absolute == 0.125);
  const std::vector<std::uint16_t> half{0x3f80};
  CHECK(compare_codes(format(FormatId::bf16), std::as_bytes(std::span(half)),
                      std::as_bytes(std::span(half)))
            .bitwise());
  CHECK_THROWS_WITH(compare_codes(format(FormatId::f32), std::as_bytes(std::span(half)),
                                  std::as_bytes(std::span(half))),
                    contains("whole elements"));
  CHECK_THROWS_AS(compare_codes(format(FormatId::f32), std::as_bytes(std::span(half)), {}), Error);
}

TEST_CASE("code comparison: random codes of every format against a count in FP64", "[metrics]") {
  const RandomStream random(31, "test/codes");
  const auto steps_of_four_bits = [](double x) {
    // The place among numbers of four significant bits: eight a binade.
    if (x == 0.0) return std::int64_t{0};
    int exponent = 0;
    const double fraction = std::frexp(std::abs(x), &exponent);
    const auto steps = static_cast<std::int64_t>(std::nearbyint(fraction * 16.0)) + 8 * exponent;
    return x < 0.0 ? -steps - 8000 : steps + 8000;
  };
  for (const Format& f : kFormats) {
    if (f.storage_bits != 8 && f.storage_bits != 16 && f.id != FormatId::f32) continue;
    if (decode(f, 0) != 0.0) continue;  // scales alone
    const auto width = static_cast<std::size_t>(f.storage_bits / 8);
    constexpr std::size_t kCount = 66'011;  // more than a chunk
    std::vector<std::byte> expected(kCount * width);
    std::vector<std::byte> got(kCount * width);
    std::vector<std::uint32_t> x(kCount);
    std::vector<std::uint32_t> y(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::uint32_t mask = f.magnitude_mask() | f.sign_mask();
      const auto finite = [&](std::uint32_t code) {
        // Numbers that binary32 holds as normal ones: the FP8 distance counts these.
        const double value = decode(f, code & mask);
        const bool usual = std::isfinite(value) && (value == 0.0 || std::abs(value) > 0x1p-120);
        return usual && std::abs(value) < 0x1p120 ? code & mask : 0U;
      };
      x[i] = finite(random.bits32(2 * i));
      y[i] = i % 3 == 0   ? finite(random.bits32(2 * i + 1))
             : i % 3 == 1 ? finite(x[i] + 1 + random.bits32(2 * i + 1) % 5)
                          : x[i];
      for (std::size_t b = 0; b < width; ++b) {
        expected[i * width + b] = static_cast<std::byte>(x[i] >> (8 * b));
        got[i * width + b] = static_cast<std::byte>(y[i] >> (8 * b));
      }
    }
    CodeComparison want;
    want.far.assign(2, 0);
    std::uint64_t worst = 0;
    std::size_t worst_at = kCount;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double a = decode(f, x[i]);
      const double b = decode(f, y[i]);
      const std::uint64_t distance = ulp_distance(f, x[i], y[i]);
      const std::int64_t coarse = steps_of_four_bits(b) - steps_of_four_bits(a);
      ++want.ulp.counts[UlpHistogram::bin_of(distance)];
      if ((a > 0.0 && b > 0.0) || (a < 0.0 && b < 0.0)) {
        const auto size = static_cast<std::uint64_t>(coarse < 0 ? -coarse : coarse);
        ++want.fp8.counts[UlpHistogram::bin_of(size)];
      } else if (a == 0.0 && b == 0.0) {
        ++want.fp8.counts[0];
      }
      if (x[i] == y[i]) continue;
      ++want.bit_mismatches;
      want.values.mismatches += a != b ? 1U : 0U;
      want.ulp.toward_zero += std::abs(b) < std::abs(a) ? 1U : 0U;
      want.ulp.away_from_zero += std::abs(b) > std::abs(a) ? 1U : 0U;
      if (distance > worst || worst_at == kCount) {
        worst = distance;
        worst_at = i;
      }
      want.values.max_absolute = std::max(want.values.max_absolute, std::abs(b - a));
      want.far[0] += std::abs(b - a) > 0.125 * std::abs(a) + 0.001 ? 1U : 0U;
      want.far[1] += std::abs(b - a) > 0.5 * std::abs(a) ? 1U : 0U;
    }
    const CodeComparison c =
        compare_codes(f, expected, got, {.tolerances = {{0.125, 0.001}, {0.5, 0.0}}, .threads = 2});
    CAPTURE(f.name);
    CHECK(c.bit_mismatches == want.bit_mismatches);
    CHECK(c.values.mismatches == want.values.mismatches);
    CHECK(c.values.count == kCount);
    CHECK(c.ulp.counts == want.ulp.counts);
    CHECK(c.ulp.toward_zero == want.ulp.toward_zero);
    CHECK(c.ulp.away_from_zero == want.ulp.away_from_zero);
    CHECK(c.values.max_absolute == want.values.max_absolute);
    CHECK(c.far == want.far);
    REQUIRE(c.worst);
    CHECK(c.worst->index == static_cast<std::int64_t>(worst_at));
    CHECK(c.worst->expected == x[worst_at]);
    CHECK(c.worst->got == y[worst_at]);
    // Pairs across zero, which are far apart, are in no bin of the count above.
    std::uint64_t across = 0;
    for (std::size_t bin = 0; bin < UlpHistogram::kBins; ++bin) {
      CAPTURE(bin);
      CHECK(c.fp8.counts[bin] >= want.fp8.counts[bin]);
      across += c.fp8.counts[bin] - want.fp8.counts[bin];
      if (bin < 6) CHECK(c.fp8.counts[bin] == want.fp8.counts[bin]);
    }
    CHECK(across < kCount / 2);
  }
}

TEST_CASE("code comparison: more chunks than are compared at once", "[metrics]") {
  // 64 chunks of 2^16 elements are one round.
  constexpr std::size_t kRound = std::size_t{1} << 22;
  constexpr std::size_t kCount = 2 * kRound + 70'000;
  std::vector<std::uint8_t> expected(kCount, 0x38);  // ones
  std::vector<std::uint8_t> got = expected;
  const std::vector<std::size_t> places{
      kRound - 1,     kRound,     kRound + 65'536,     kRound + 65'539,
      2 * kRound - 1, 2 * kRound, 2 * kRound + 65'535, 2 * kRound + 65'536,
      kCount - 1};
  // 1 to 9 steps of an eighth above 1, the largest in the middle.
  for (std::size_t i = 0; i < places.size(); ++i)
    got[places[i]] = static_cast<std::uint8_t>(0x38 + 1 + (i * 5 + 3) % 9);
  const std::size_t largest = places[3];
  REQUIRE(got[largest] == 0x38 + 1 + 0);
  got[largest] = 0x38 + 16;
  MismatchMap map = make_map(1, static_cast<std::int64_t>(kCount), 200);
  const auto bytes = [](const std::vector<std::uint8_t>& codes) {
    return std::as_bytes(std::span(codes));
  };
  CodeComparer comparer(format(FormatId::e4m3fn), {.map = &map, .threads = 2});
  // One part ends inside the first round, the other has all others.
  constexpr std::size_t kFirst = kRound - 5;
  comparer.add(bytes(expected).first(kFirst), bytes(got).first(kFirst));
  comparer.add(bytes(expected).subspan(kFirst), bytes(got).subspan(kFirst));
  const CodeComparison parts = comparer.finish();
  const CodeComparison whole =
      compare_codes(format(FormatId::e4m3fn), bytes(expected), bytes(got), {.threads = 1});
  double squares = 0.0;
  double distances = 0.0;
  double sums = 0.0;
  std::vector<std::uint64_t> tiles(map.counts.size());
  for (const std::size_t place : places) {
    const double y = decode(format(FormatId::e4m3fn), got[place]);
    squares += (y - 1.0) * (y - 1.0);
    distances += y - 1.0;
    sums += y * y - 1.0;
    ++tiles[place / static_cast<std::size_t>(map.tile_columns)];
  }
  for (const CodeComparison* c : {&parts, &whole}) {
    CHECK(c->values.count == kCount);
    CHECK(c->bit_mismatches == places.size());
    CHECK(c->values.mismatches == places.size());
    CHECK(c->first->index == static_cast<std::int64_t>(places[0]));
    CHECK(c->worst->index == static_cast<std::int64_t>(largest));
    CHECK(c->worst->ulp == 16);
    CHECK(c->values.max_absolute == 3.0);
    CHECK(c->values.max_absolute_index == largest);
    CHECK(c->values.max_relative_index == largest);
    CHECK(c->ulp.max_index == largest);
    CHECK(c->ulp.total == kCount);
    CHECK(c->ulp.counts[0] == kCount - places.size());
    CHECK(c->ulp.away_from_zero == places.size());
    // All sums are of whole sixty-fourths: exact.
    CHECK(c->values.relative_l2 == std::sqrt(squares) / std::sqrt(static_cast<double>(kCount)));
    CHECK(c->mean_absolute_relative == distances / static_cast<double>(kCount));
    CHECK(c->values.mean_signed_relative == distances / static_cast<double>(kCount));
    const double yy = static_cast<double>(kCount) + sums;
    CHECK(c->values.cosine == (static_cast<double>(kCount) + distances) /
                                  (std::sqrt(static_cast<double>(kCount)) * std::sqrt(yy)));
  }
  CHECK(map.counts == tiles);
}

TEST_CASE("code comparison: figures of odd tensors are those of compare", "[metrics]") {
  const std::vector<float> odd{0.0F,     -0.0F,     1.0F,       -2.0F, 0x1p-149F,
                               0x1p100F, kInfinity, -kInfinity, kNan};
  const auto same = [](double got, double want) {
    return got == want || (std::isnan(got) && std::isnan(want)) ||
           std::abs(got - want) <= 1e-12 * std::abs(want);
  };
  // All tensors of up to two of these against all others, in one part and in two.
  std::vector<std::vector<float>> tensors{{}};
  for (std::size_t size = 1; size <= 2; ++size)
    for (std::size_t i = 0, count = size == 1 ? 9 : 81; i < count; ++i)
      tensors.push_back(size == 1 ? std::vector<float>{odd[i]}
                                  : std::vector<float>{odd[i / 9], odd[i % 9]});
  std::size_t wrong = 0;
  for (const std::vector<float>& x : tensors)
    for (const std::vector<float>& y : tensors) {
      if (x.size() != y.size()) continue;
      const Comparison want = compare(std::span<const float>(x), std::span<const float>(y));
      CodeComparer parts(format(FormatId::f32), {.threads = 1});
      for (std::size_t i = 0; i < x.size(); ++i)
        parts.add(std::as_bytes(std::span(x).subspan(i, 1)),
                  std::as_bytes(std::span(y).subspan(i, 1)));
      for (const CodeComparison& one : {compare_floats({x, y}, {.threads = 1}), parts.finish()}) {
        const Comparison& got = one.values;
        const bool fits = got.count == want.count && got.mismatches == want.mismatches &&
                          got.non_finite_mismatches == want.non_finite_mismatches &&
                          same(got.relative_l2, want.relative_l2) &&
                          same(got.sqnr_db, want.sqnr_db) && same(got.cosine, want.cosine) &&
                          same(got.calc_diff, want.calc_diff) &&
                          same(got.max_absolute, want.max_absolute) &&
                          got.max_absolute_index == want.max_absolute_index &&
                          same(got.max_relative, want.max_relative) &&
                          got.max_relative_index == want.max_relative_index &&
                          same(got.mean_signed_relative, want.mean_signed_relative);
        if (fits || ++wrong > 5) continue;
        for (std::size_t i = 0; i < x.size(); ++i) UNSCOPED_INFO(x[i] << " against " << y[i]);
        CHECK(fits);
      }
    }
  CHECK(wrong == 0);
}

TEST_CASE("code comparison: the first output that is not finite may be the very first",
          "[metrics]") {
  for (const std::size_t first : {std::size_t{0}, std::size_t{7}, std::size_t{66'000}}) {
    Pair pair{std::vector<float>(140'000, 1.0F), std::vector<float>(140'000, 1.0F)};
    for (const std::size_t at : {first, std::size_t{70'000}, std::size_t{139'999}})
      pair.got[at] = kNan;
    const CodeComparison c = compare_floats(pair);
    INFO("first at " << first);
    CHECK(c.values.non_finite_mismatches == 3);
    CHECK(c.values.max_absolute_index == first);
    CHECK(c.values.max_relative_index == first);
    CHECK(c.first->index == static_cast<std::int64_t>(first));
  }
}
