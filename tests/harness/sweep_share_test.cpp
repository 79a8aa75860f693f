#include "sweep_share.hpp"

#include <set>

TEST_CASE("a share of a sweep has every edge of a binade and other inputs for other seeds",
          "[harness]") {
  const auto taken = [](const SweepShare& share) {
    std::set<std::uint32_t> found;
    for (std::uint32_t upper = 0; upper < 65536; ++upper)
      if (share.takes(upper)) found.insert(upper);
    return found;
  };
  CHECK(taken({1, 5}).size() == 65536);
  const auto eighth = taken({8, 5});
  CHECK(eighth.size() > 65536 / 8);
  CHECK(eighth.size() < 65536 / 6);
  for (std::uint32_t binade = 0; binade < 512; ++binade) {
    CHECK(eighth.contains(binade << 7));
    CHECK(eighth.contains(binade << 7 | 0x7f));
  }
  CHECK(taken({8, 5}) == eighth);
  CHECK(taken({8, 6}) != eighth);
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) seen.merge(taken({8, seed}));
  CHECK(seen.size() == 65536);
}

TEST_CASE("a share of a short list takes all of it where all is wanted, and over seeds",
          "[harness]") {
  const auto taken = [](const SweepShare& share, std::string_view name) {
    std::set<std::uint64_t> found;
    for (std::uint64_t i = 0; i < 300; ++i)
      if (share.takes_one_in(3, name, i)) found.insert(i);
    return found;
  };
  CHECK(taken({1, 5}, "a").size() == 300);
  CHECK(taken({128, 5}, "a").size() > 60);
  CHECK(taken({128, 5}, "a").size() < 140);
  CHECK(taken({128, 5}, "a") == taken({8, 5}, "a"));
  CHECK(taken({128, 5}, "a") != taken({128, 5}, "b"));
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) seen.merge(taken({128, seed}, "a"));
  CHECK(seen.size() == 300);
}
