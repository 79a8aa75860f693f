// Draws against Philox4x32-10's published answers, and each kind of draw against its formula.

#include "fp8lab/core/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "catch.hpp"

using namespace fp8lab;

TEST_CASE("random: blocks are Philox4x32-10 of index, stream and seed", "[core][random]") {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  // Random123's kat_vectors.
  CHECK(RandomStream(0, std::uint64_t{0}).block(0) ==
        Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(RandomStream(kOnes, kOnes).block(kOnes) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(RandomStream(0x299f31d0a4093822, std::uint64_t{0x0370734413198a2e})
            .block(0x85a308d3243f6a88) == Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a stream's number is FNV-1a of its name", "[core][random]") {
  CHECK(RandomStream::hash("") == 0xcbf29ce484222325);
  CHECK(RandomStream::hash("a") == 0xaf63dc4c8601ec8c);
  CHECK(RandomStream::hash("foobar") == 0x85944171f73967e8);
  CHECK(RandomStream::hash("\xc3") == (0xcbf29ce484222325 ^ 0xc3) * 0x100000001b3);
  const RandomStream named(7, "foobar");
  CHECK(named.seed() == 7);
  CHECK(named.stream() == 0x85944171f73967e8);
}

TEST_CASE("random: words of all widths are those of the blocks in order", "[core][random]") {
  const RandomStream random(3, "words");
  for (std::uint64_t i = 0; i < 40; ++i) {
    INFO("draw " << i);
    CHECK(random.bits32(i) == random.block(i / 4)[i % 4]);
    const std::uint64_t low = random.bits32(2 * i);
    const std::uint64_t high = random.bits32(2 * i + 1);
    CHECK(random.bits64(i) == (high << 32 | low));
    CHECK(random.uniform(i) == std::ldexp(static_cast<double>(random.bits64(i) >> 11), -53));
  }
}

TEST_CASE("random: integers below a bound are shares of 64 bits", "[core][random]") {
  const RandomStream random(5, "below");
  for (std::uint64_t i = 0; i < 64; ++i) {
    INFO("draw " << i);
    CHECK(random.below(i, 1) == 0);
    CHECK(random.below(i, std::uint64_t{1} << 63) == random.bits64(i) >> 1);
    CHECK(random.below(i, std::uint64_t{1} << 20) == random.bits64(i) >> 44);
    CHECK(random.below(i, ~std::uint64_t{0}) <= random.bits64(i));
    const auto expected = static_cast<std::uint64_t>(
        std::floor(static_cast<long double>(random.bits64(i)) * 1000.0L / 0x1p64L));
    CHECK(random.below(i, 1000) == expected);
  }
  std::set<std::uint64_t> found;
  for (std::uint64_t i = 0; i < 200; ++i) found.insert(random.below(i, 7));
  CHECK(found == std::set<std::uint64_t>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("random: normals are cosine and sine of pairs, and t their quotients", "[core][random]") {
  const RandomStream random(11, "normal");
  const RandomStream chi(11, random.stream() ^ 0x9e3779b97f4a7c15);
  const auto near = [](double got, double want) {
    INFO(got << ", expected " << want);
    CHECK(std::abs(got - want) <= 1e-12 * std::max(1.0, std::abs(want)));
  };
  for (std::uint64_t i = 0; i < 50; ++i) {
    INFO("draw " << i);
    const std::uint64_t first = i - i % 2;
    const double u = random.uniform(first) + 0x1p-53;  // in (0, 1]
    const double radius = std::sqrt(-2.0 * std::log(u));
    const double angle = 2.0 * std::numbers::pi * random.uniform(first + 1);
    near(random.normal(i), radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    for (const int freedom : {1, 2, 3, 5}) {
      double sum = 0.0;
      for (int j = 0; j < freedom; ++j)
        sum += std::pow(
            chi.normal(i * static_cast<std::uint64_t>(freedom) + static_cast<std::uint64_t>(j)), 2);
      near(random.student_t(i, freedom), random.normal(i) / std::sqrt(sum / freedom));
    }
  }
}
