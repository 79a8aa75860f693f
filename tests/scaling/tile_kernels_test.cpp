#include "fp8lab/scaling/tile_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

using namespace fp8lab;
using scaling_detail::TileKernels;

namespace {

constexpr std::int32_t kInfinity = 0x7f800000;

/// Amaxes where rules change: each power of two, each product of one with a format's largest
/// number, the floors in use, and their neighbours. Of other binary32 numbers some of each
/// exponent.
std::vector<std::int32_t> amaxes_at_limits(const Format& f, float floor) {
  std::set<std::int32_t> found{0, 1, 2, kInfinity, kInfinity + 1, 0x7fffffff};
  const auto add = [&](double x) {
    const auto bits = std::bit_cast<std::int32_t>(static_cast<float>(x));
    for (std::int32_t at = bits - 2; at <= bits + 2; ++at)
      if (at >= 0 && at <= kInfinity) found.insert(at);
  };
  for (int exponent = -150; exponent < 128; ++exponent) {
    add(std::ldexp(1.0, exponent));
    add(std::ldexp(f.max_finite(), exponent));
  }
  for (const float x : {floor, 1e-4F, 1e-12F, std::numeric_limits<float>::max()}) add(x);
  for (std::int32_t at = 0; at < kInfinity; at += 0x0012d687) found.insert(at);
  return {found.begin(), found.end()};
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// The first tile whose scales are not those of `TileScaler`; nothing if there is none.
std::string other_scales(const TileKernels& kernels, const ScaleOptions& options) {
  std::vector<std::int32_t> largest = amaxes_at_limits(format(options.format), options.amax_floor);
  const std::size_t count = largest.size();
  largest.resize(count + scaling_detail::kScalePadding);
  std::vector<float> scale(largest.size());
  std::vector<float> inverse(largest.size());
  std::vector<std::uint8_t> e8m0(largest.size());
  kernels.scales(options, largest.data(), count, {scale.data(), inverse.data(), e8m0.data()});
  const TileScaler scaler(options);
  for (std::size_t i = 0; i < count; ++i) {
    const auto amax = std::bit_cast<float>(largest[i]);
    TileScale expected;
    scaler({&amax, 1}, {&expected, 1});
    if (!same(scale[i], expected.scale) || !same(inverse[i], expected.inverse_scale) ||
        (is_mx(options.rule) && e8m0[i] != expected.e8m0))
      return fmt::format("amax {:08x} has {:a} / {:a} / {}, expected {:a} / {:a} / {}", largest[i],
                         scale[i], inverse[i], e8m0[i], expected.scale, expected.inverse_scale,
                         expected.e8m0);
  }
  return {};
}

/// Values of both signs and all sizes, with NaN, infinities and zeros between them.
std::vector<float> values_of(std::size_t count, std::uint64_t seed) {
  const RandomStream random(seed, "tile kernels");
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = random.bits64(i);
    auto bits = static_cast<std::uint32_t>(draw >> 32);
    if (draw % 16 == 0) bits &= 0x80000000U;
    if (draw % 16 == 1) bits = (bits & 0x80000003U) | 0x7f800000U;
    x[i] = std::bit_cast<float>(bits);
  }
  return x;
}

std::int32_t larger_of(std::int32_t old, float x, bool ignore_nan) {
  const auto bits = std::bit_cast<std::int32_t>(x) & 0x7fffffff;
  return ignore_nan && bits > kInfinity ? old : std::max(old, bits);
}

}  // namespace

TEST_CASE("tile kernels: scales at the limits of each rule are those of one tile", "[scaling]") {
  for (const Target target : available_targets()) {
    const TileKernels& kernels = scaling_detail::tile_kernels(target);
    for (const ScaleRuleTraits& one : kScaleRules) {
      const ScaleRule rule = one.rule;
      if (!scaling_detail::has_kernel(rule)) continue;
      for (const FormatId id :
           {FormatId::e4m3fn, FormatId::e5m2, FormatId::e2m1, FormatId::e2m3, FormatId::e3m2}) {
        if (!is_mx(rule) && format(id).storage_bits != 8) continue;
        for (const bool power_of_two : {false, true}) {
          if (power_of_two && !has_power_of_two(rule)) continue;
          for (const float floor : {0.0F, 1e-12F, 1e-5F, 1e-4F, 0.5F}) {
            if (floor > 0.0F && !has_amax_floor(rule)) continue;
            const ScaleOptions options{
                .rule = rule, .format = id, .power_of_two = power_of_two, .amax_floor = floor};
            INFO(fmt::format("{}: {} of {}, power of two {}, floor {:a}", to_string(target),
                             to_string(rule), format(id).name, power_of_two, floor));
            CHECK(other_scales(kernels, options) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("tile kernels: amaxes of any count keep what was larger before", "[scaling]") {
  for (const Target target : available_targets()) {
    const TileKernels& kernels = scaling_detail::tile_kernels(target);
    for (std::size_t count = 1; count <= 70; ++count)
      for (const bool ignore_nan : {false, true}) {
        const std::vector<float> x = values_of(count, count);
        const std::vector<float> before = values_of(count, 1000 + count);
        std::vector<std::int32_t> old(count);
        for (std::size_t i = 0; i < count; ++i) old[i] = larger_of(0, before[i], ignore_nan);
        INFO(fmt::format("{}: {} elements, NaN ignored: {}", to_string(target), count, ignore_nan));
        std::vector<std::int32_t> expected = old;
        for (std::size_t i = 0; i < count; ++i) expected[i] = larger_of(old[i], x[i], ignore_nan);
        std::vector<std::int32_t> got = old;
        kernels.element_amax(x.data(), count, ignore_nan, 0, got.data());
        CHECK(got == expected);
        for (const std::size_t block : std::array<std::size_t, 7>{1, 3, 16, 20, 32, 64, 100}) {
          const std::size_t tiles = (count + block - 1) / block;
          expected.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(tiles));
          got = expected;
          for (std::size_t i = 0; i < count; ++i)
            expected[i / block] = larger_of(expected[i / block], x[i], ignore_nan);
          kernels.amax(x.data(), count, block, ignore_nan, 0, got.data());
          INFO("tiles of " << block);
          CHECK(got == expected);
        }
      }
  }
}

TEST_CASE("tile kernels: any count of numbers is rounded to BF16, in place too", "[scaling]") {
  for (const Target target : available_targets()) {
    const TileKernels& kernels = scaling_detail::tile_kernels(target);
    for (std::size_t count = 1; count <= 70; ++count) {
      std::vector<float> x = values_of(count, 77 * count);
      if (count > 4) {
        x[0] = 0x1.01p0F;    // a tie: to even, down
        x[1] = 0x1.03p0F;    // up
        x[2] = 0x1.ffp127F;  // to infinity
        x[3] = -0x1p-149F;   // to -0
      }
      std::vector<float> got(count);
      kernels.round_to_bf16(x.data(), count, got.data());
      for (std::size_t i = 0; i < count; ++i) {
        INFO(fmt::format("{}: {} of {}: {:a} becomes {:a}", to_string(target), i, count, x[i],
                         got[i]));
        CHECK(same(got[i], rounded_to_bf16(x[i])));
      }
      kernels.round_to_bf16(x.data(), count, x.data());
      for (std::size_t i = 0; i < count; ++i) CHECK(same(x[i], got[i]));
      if (count <= 4) continue;
      CHECK(got[0] == 1.0F);
      CHECK(got[1] == 0x1.04p0F);
      CHECK(std::isinf(got[2]));
      CHECK((got[3] == 0.0F && std::signbit(got[3])));
    }
  }
}
