// Caches of K and V: codes and scales by hand, and what attention loses.

#include "fp8lab/attention/kv_cache.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "message_of.hpp"

namespace fp8lab::kv_cache_test {
namespace {

std::vector<float> normal_values(const char* name, std::size_t count, double size) {
  const RandomStream stream(31, name);
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(size * stream.normal(i)));
  return values;
}

}  // namespace

TEST_CASE("kv cache: codes and scales of each rule", "[attention]") {
  // Two heads of one row: amaxes 2 and 896.
  const std::vector<float> values{1.0F, -2.0F, 448.0F, 896.0F};
  const auto made = [&](const char* rule) {
    const AttentionTensor t = cached_tensor(values, 2, 1, 2, find_cache_rule(rule));
    CHECK(t.values == values);
    std::vector<float> all(t.operand.inverse_scales.begin(), t.operand.inverse_scales.end());
    for (const float value : dequantize(t.operand)) all.push_back(value);
    return all;
  };
  using Floats = std::vector<float>;
  CHECK(made("e4m3.head") == Floats{2.0F / 448.0F, 2.0F, 1.0F, -2.0F, 448.0F, 896.0F});
  CHECK(made("e4m3.tensor") == Floats{2.0F, 2.0F, 1.0F, -2.0F, 448.0F, 896.0F});
  CHECK(made("e4m3.one") == Floats{1.0F, 1.0F, 1.0F, -2.0F, 448.0F, 448.0F});
  CHECK(made("e5m2.one") == Floats{1.0F, 1.0F, 1.0F, -2.0F, 448.0F, 896.0F});
  CHECK(made("e5m2.tensor")[0] == 896.0F / 57344.0F);
  CHECK(made("e5m2.head")[0] == 2.0F / 57344.0F);
  const std::vector<float> zeros(4, 0.0F);
  CHECK(cached_tensor(zeros, 2, 1, 2, find_cache_rule("e5m2.head")).operand.inverse_scales[1] ==
        1.0F);
  CHECK_THROWS_WITH(find_cache_rule("fp8"),
                    "`kv_cache`: expected one of e4m3.head, e4m3.tensor, e4m3.one, e5m2.head, "
                    "e5m2.tensor, e5m2.one, nvfp4, got 'fp8'");
  CHECK_THROWS_WITH(cached_tensor({1.0F, std::numeric_limits<float>::infinity()}, 1, 1, 2,
                                  find_cache_rule("e4m3.one")),
                    "values: expected finite numbers, got inf");
  CHECK_THROWS_WITH(cached_tensor(zeros, 2, 1, 3, find_cache_rule("e4m3.one")),
                    "values: expected [2, 1, 3] values, got 4");
}

TEST_CASE("kv cache: NVFP4 holds blocks of 16 under scales of their own", "[attention]") {
  // Amaxes of the blocks: 2688 = 6 * 448 and 6. Both are read under the scale 2688 / 448 = 6.
  std::vector<float> values;
  for (const float unit : {448.0F, 1.0F})
    for (const float code : {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, 0.2F, 0.3F, 5.1F,
                             -0.5F, -1.0F, -2.0F, -4.0F, -6.0F})
      values.push_back(unit * code);
  const AttentionTensor t = cached_tensor(values, 1, 1, 32, find_cache_rule("nvfp4"));
  CHECK(t.values == values);
  CHECK(t.operand.format == FormatId::e4m3fn);
  CHECK(t.operand.inverse_scales[0] == 6.0F);
  // E2M1 rounds 0.2 to 0, 0.3 to 0.5 and 5.1 to 6; then E4M3 rounds code * scale / 6.
  const std::vector<float> held{0.0F, 0.5F, 1.0F, 1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                0.0F, 0.5F, 6.0F, -0.5F, -1.0F, -2.0F, -4.0F, -6.0F};
  const std::vector<float> read = dequantize(t.operand);
  for (std::size_t i = 0; i < read.size(); ++i) {
    const float unit = i < 16 ? 448.0F : 1.0F;
    const double under = static_cast<double>(unit * held[i % 16] / 6.0F);
    INFO("value " << i);
    CHECK(static_cast<double>(read[i]) ==
          6.0 * static_cast<double>(round_trip(format(FormatId::e4m3fn), kNvidiaSatfinite,
                                               static_cast<float>(under))));
  }
}

TEST_CASE("kv cache: values above a calibrated scale saturate", "[attention]") {
  const std::vector<float> values{1.0F, -2.0F, 448.0F, 896.0F};
  const std::vector<float> scales{2.0F / 448.0F, 0.5F};
  const AttentionTensor t = cached_tensor(values, 2, 1, 2, find_cache_rule("e4m3.head"), scales);
  const std::vector<float> expected{1.0F, -2.0F, 224.0F, 224.0F};
  CHECK(dequantize(t.operand) == expected);
  CHECK(t.values == values);
  const std::vector<float> one{2.0F};
  CHECK(dequantize(cached_tensor(values, 2, 1, 2, find_cache_rule("e5m2.tensor"), one).operand) ==
        std::vector<float>{1.0F, -2.0F, 448.0F, 896.0F});
  const std::vector<float> three(3, 1.0F);
  CHECK_THROWS_WITH(cached_tensor(values, 2, 1, 2, find_cache_rule("e4m3.head"), three),
                    "calibrated: expected 1 or 2 inverse scales, got 3 values");
  const std::vector<float> zero{0.0F};
  CHECK_THROWS_WITH(cached_tensor(values, 2, 1, 2, find_cache_rule("e4m3.head"), zero),
                    "calibrated: expected finite scales above 0, got 0");
  CHECK_THROWS_WITH(cached_tensor(values, 2, 1, 2, find_cache_rule("nvfp4"), one),
                    "calibrated: expected no scales with nvfp4, which has its own, got 1 value");
}

TEST_CASE("kv cache: small values are lost under a scale of 1 and one scale for unlike heads",
          "[attention]") {
  // The second head is 2^-12 times the first: below E4M3's subnormals at either scale.
  std::vector<float> k = normal_values("k", 64 * 32, 1.0);
  const std::vector<float> small = normal_values("small", 64 * 32, 0x1p-12);
  k.insert(k.end(), small.begin(), small.end());
  const auto lost = [&](const char* rule) {
    const AttentionTensor t = cached_tensor(k, 2, 64, 32, find_cache_rule(rule));
    const std::vector<float> values = dequantize(t.operand);
    return std::count(values.begin() + 64 * 32, values.end(), 0.0F);
  };
  CHECK(lost("e4m3.head") < 20);
  CHECK(lost("e4m3.one") > 2000);
  CHECK(lost("e4m3.tensor") < lost("e4m3.one"));
  CHECK(lost("e5m2.one") < 100);
}

TEST_CASE("kv cache: a row of DeepSeek-V3.2 by hand", "[attention]") {
  std::vector<float> row(576, 0.0F);
  row[0] = 448.0F;  // an amax of 448: a scale of 1
  row[1] = 1.0F;
  row[128] = 449.0F;       // BF16: 448; still 1
  row[256] = -450.0F;      // BF16: 450, over 448: 2
  row[384] = 0.0F;         // 1e-4, up to 2^-13
  row[512] = 1.00390625F;  // between two BF16 numbers: to the even one, 1
  row[575] = -3.0F;
  const std::vector<std::uint8_t> bytes = pack_deepseek_rows(row);
  REQUIRE(bytes.size() == 656);
  CHECK(bytes[0] == 0x7e);
  CHECK(bytes[1] == 0x38);
  CHECK(bytes[128] == 0x7e);
  CHECK(bytes[256] == (0x80 | 0x76));  // -225: -224
  const auto scale = [&](std::size_t i) {
    std::uint32_t word = 0;
    for (std::size_t b = 0; b < 4; ++b) word |= std::uint32_t{bytes[512 + 4 * i + b]} << (8 * b);
    return std::bit_cast<float>(word);
  };
  CHECK((scale(0) == 1.0F && scale(1) == 1.0F && scale(2) == 2.0F && scale(3) == 0x1p-13F));
  CHECK((bytes[528] == 0x80 && bytes[529] == 0x3f));
  CHECK((bytes[654] == 0x40 && bytes[655] == 0xc0));
  const std::vector<float> back = read_deepseek_rows(bytes);
  REQUIRE(back.size() == 576);
  CHECK((back[0] == 448.0F && back[1] == 1.0F && back[128] == 448.0F && back[256] == -448.0F));
  CHECK((back[384] == 0.0F && back[512] == 1.0F && back[575] == -3.0F));
}

TEST_CASE("kv cache: rows of DeepSeek-V3.2 come back within E4M3's error", "[attention]") {
  const std::vector<float> values = normal_values("latent", 576 * 9, 3.0);
  const std::vector<std::uint8_t> bytes = pack_deepseek_rows(values);
  REQUIRE(bytes.size() == 656 * 9);
  const std::vector<float> back = read_deepseek_rows(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double apart = std::abs(static_cast<double>(back[i]) - static_cast<double>(values[i]));
    const double size = std::abs(static_cast<double>(values[i]));
    // Half a step of E4M3, or of its subnormals at the largest scale here, and BF16's.
    const double limit = i % 576 < 512 ? 0.0664 * size + 0x1p-15 : 0x1p-8 * size;
    CHECK(apart <= limit);
  }
  std::vector<float> nan(576, std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_WITH(pack_deepseek_rows(nan), "values: expected finite numbers, got nan");
  CHECK_THROWS_WITH(pack_deepseek_rows(std::vector<float>(575)),
                    "values: expected rows of 576 values, got 575 values");
  CHECK_THROWS_WITH(read_deepseek_rows(std::vector<std::uint8_t>(655)),
                    "bytes: expected rows of 656 bytes, got 655 bytes");
}

}  // namespace fp8lab::kv_cache_test
