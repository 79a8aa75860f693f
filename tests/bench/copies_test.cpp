#include "apps/bench/copies.hpp"

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/target.hpp"

using namespace fp8lab::bench;

namespace {

/// Binary32 lanes of the target's vectors; 0: none.
std::size_t lanes() {
  switch (fp8lab::current_target()) {
    case fp8lab::Target::avx512:
      return 16;
    case fp8lab::Target::avx2:
      return 8;
    case fp8lab::Target::neon:
      return 4;
    default:
      return 0;
  }
}

/// What a copy writes: four vectors combined by exclusive or, or the upper bytes.
std::vector<std::uint8_t> narrowed(std::span<const float> in) {
  const std::size_t width = lanes();
  std::vector<std::uint8_t> out(in.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t block = width == 0 ? i : i / (4 * width) * (4 * width) + i / 4 % width;
    std::uint32_t word = 0;
    for (std::size_t part = 0; part < (width == 0 ? 1U : 4U); ++part)
      word ^= std::bit_cast<std::uint32_t>(in[block + part * width]);
    out[i] = static_cast<std::uint8_t>(word >> (width == 0 ? 24 : 8 * (i % 4)));
  }
  return out;
}

/// Each vector four times, or each byte as an upper one.
std::vector<std::uint32_t> widened(std::span<const std::uint8_t> in) {
  const std::size_t width = lanes();
  std::vector<std::uint32_t> out(in.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (width == 0) {
      out[i] = std::uint32_t{in[i]} << 24;
      continue;
    }
    const std::size_t at = i / (4 * width) * (4 * width) + 4 * (i % width);
    std::memcpy(&out[i], &in[at], 4);
  }
  return out;
}

}  // namespace

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

TEST_CASE("the copies write mixtures of what they read, each element at its place", "[bench]") {
  for (const std::size_t count : {std::size_t{64}, std::size_t{448}}) {
    alignas(64) std::array<float, 448> in;
    alignas(64) std::array<std::uint8_t, 448> bytes;
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = std::bit_cast<float>(
          static_cast<std::uint32_t>(0x3f123457U + 0x01050b3dU * (i % 97) + i));
      bytes[i] = static_cast<std::uint8_t>(37 * i + i / 256 + 11);
    }
    const std::span<const float> floats = std::span(in).first(count);
    const std::span<const std::uint8_t> codes = std::span(bytes).first(count);
    for (const CopyKind kind : {CopyKind::plain, CopyKind::non_temporal, CopyKind::prefetched})
      for (const int threads : {1, 2, 5, 9}) {
        INFO(to_string(kind) << ", threads " << threads << ", " << count << " elements");
        alignas(64) std::array<std::uint8_t, 448> narrow{};
        narrowing_copy(kind, floats, std::span(narrow).first(count), threads);
        CHECK(std::vector<std::uint8_t>(narrow.begin(), narrow.begin() + count) ==
              narrowed(floats));
        alignas(64) std::array<float, 448> wide{};
        widening_copy(kind, codes, std::span(wide).first(count), threads);
        const std::vector<std::uint32_t> expected = widened(codes);
        CHECK(std::memcmp(wide.data(), expected.data(), 4 * count) == 0);
        // Nothing behind the end.
        for (std::size_t i = count; i < 448; ++i) REQUIRE((narrow[i] == 0 && wide[i] == 0.0F));
      }
  }
}

TEST_CASE("the copies without vectors write every element too", "[bench]") {
  if (fp8lab::current_target() == fp8lab::Target::scalar) return;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "FP8LAB_TARGET=scalar '" + self + "' 'the copies write*' > /dev/null";
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("copies refuse sizes that are no multiple of 64, and either end off its place",
          "[bench]") {
  alignas(64) std::array<float, 192> floats{};
  alignas(64) std::array<std::uint8_t, 192> bytes{};
  for (const std::size_t count : {1U, 32U, 63U, 65U, 96U}) {
    const std::string message =
        "out: expected as many elements as in, a multiple of 64, got " + std::to_string(count);
    CHECK_THROWS_WITH(narrowing_copy(CopyKind::plain, std::span(floats).first(count),
                                     std::span(bytes).first(count), 1),
                      message);
    CHECK_THROWS_WITH(widening_copy(CopyKind::plain, std::span(bytes).first(count),
                                    std::span(floats).first(count), 1),
                      message);
  }
  const std::string off = "in, out: expected memory that begins on 64 bytes, got other memory";
  CHECK_THROWS_WITH(narrowing_copy(CopyKind::plain, std::span(floats).first(64),
                                   std::span(bytes).subspan(32, 64), 1),
                    off);
  CHECK_THROWS_WITH(widening_copy(CopyKind::plain, std::span(bytes).subspan(32, 64),
                                  std::span(floats).first(64), 1),
                    off);
  CHECK_THROWS_WITH(widening_copy(CopyKind::plain, std::span(bytes).first(64),
                                  std::span(floats).subspan(8, 64), 1),
                    off);
}

TEST_CASE("copies have names, and the clock is a processor's", "[bench]") {
  CHECK(to_string(CopyKind::plain) == "plain");
  CHECK(to_string(CopyKind::non_temporal) == "non-temporal");
  CHECK(to_string(CopyKind::prefetched) == "prefetched");
  const double clock = measure_clock();
  CHECK(clock > 0.5);
  CHECK(clock < 10.0);
}
