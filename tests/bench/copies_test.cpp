#include "fp8lab/bench/copies.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "catch.hpp"

using namespace fp8lab::bench;

TEST_CASE("the copies write every element, the same for any kind and thread count", "[bench]") {
  constexpr std::size_t kCount = 640;
  alignas(64) std::array<float, kCount> in;
  for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i * i) + 0.25f;
  alignas(64) std::array<std::uint8_t, kCount> first;
  narrowing_copy(CopyKind::plain, in, first, 1);
  for (const CopyKind kind : {CopyKind::plain, CopyKind::non_temporal, CopyKind::prefetched}) {
    for (const int threads : {1, 3}) {
      INFO(to_string(kind) << ", threads " << threads);
      alignas(64) std::array<std::uint8_t, kCount> narrow{};
      narrowing_copy(kind, in, narrow, threads);
      CHECK(narrow == first);
      alignas(64) std::array<float, kCount> wide;
      std::memset(wide.data(), 0xff, sizeof wide);
      widening_copy(kind, first, wide, threads);
      // All ones are a NaN: whatever was not written is one still.
      for (std::size_t i = 0; i < kCount; i += 64)
        CHECK(std::memcmp(&wide[i], "\xff\xff\xff\xff", 4) != 0);
    }
  }
}

TEST_CASE("copies refuse memory that they cannot stream to", "[bench]") {
  alignas(64) std::array<float, 128> in{};
  alignas(64) std::array<std::uint8_t, 128> out{};
  CHECK_THROWS_WITH(narrowing_copy(CopyKind::plain, in, std::span(out).first(64), 1),
                    contains("out: expected as many elements as in"));
  CHECK_THROWS_WITH(
      narrowing_copy(CopyKind::plain, std::span(in).subspan(1, 64), std::span(out).first(64), 1),
      contains("begins on 64 bytes"));
}
