#pragma once
// Which of the 2^32 binary32 inputs a sweep takes: all of them, or where FP8LAB_SWEEP_SHARE is N
// one in N, drawn anew by FP8LAB_SEED, and every edge of a binade.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"

class SweepShare {
 public:
  SweepShare() : SweepShare(number("FP8LAB_SWEEP_SHARE", 1), seed()) {
    if (share_ == 1) return;
    fmt::print("1 in {} of all inputs, FP8LAB_SEED={}\n", share_, seed_);
    (void)std::fflush(stdout);
  }
  SweepShare(std::uint64_t share, std::uint64_t seed) : share_(share), seed_(seed) {
    INFO("FP8LAB_SWEEP_SHARE");
    REQUIRE(share_ > 0);
  }

  /// Whether only a share is wanted, and a number that says which one.
  [[nodiscard]] bool is_part() const { return share_ != 1; }
  [[nodiscard]] std::uint64_t draw() const { return seed_; }
  /// Whether item `index` of `name` is taken: all are, or where a share is wanted one in `parts`
  /// is, whatever the share. For lists that are too short to take one in a thousand of.
  [[nodiscard]] bool takes_one_in(std::uint64_t parts, std::string_view name,
                                  std::uint64_t index) const {
    return share_ == 1 || fp8lab::RandomStream(seed_, std::string(name)).below(index, parts) == 0;
  }
  /// Whether the 65536 inputs with this upper half are taken.
  [[nodiscard]] bool takes(std::uint32_t upper) const {
    const std::uint32_t mantissa = upper & 0x7f;
    if (share_ == 1 || mantissa == 0 || mantissa == 0x7f) return true;
    return fp8lab::RandomStream(seed_, "sweep").bits32(upper) % share_ == 0;
  }

 private:
  static std::uint64_t number(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == '\0') return otherwise;
    std::size_t read = 0;
    const std::uint64_t value = std::stoull(text, &read);
    INFO(variable << "=" << text);
    REQUIRE(text[read] == '\0');
    return value;
  }
  static std::uint64_t seed() {
    static const std::uint64_t kSeed = number("FP8LAB_SEED", std::random_device{}());
    return kSeed;
  }

  std::uint64_t share_;
  std::uint64_t seed_;
};
