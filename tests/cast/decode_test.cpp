#include <cstring>

#include "cast_cases.hpp"
#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<float> expect_decoded(std::span<const std::uint8_t> in, FormatId id, float inverse) {
  const Format& f = format(id);
  std::vector<float> values;
  for (const std::uint8_t code : in)
    values.push_back(static_cast<float>(decode(f, code & ((1u << f.code_bits()) - 1))) * inverse);
  return values;
}

}  // namespace

TEST_CASE("every code of every format decodes as the reference does", "[cast][decode]") {
  std::vector<std::uint8_t> in(256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i);
  for (const FormatId id : byte_formats()) {
    for (const float inverse : {1.0f, 0.37f, 1.0f / 3.0f, 0x1p-120f, 0x1p-140f, 0x1p113f, 0x1p120f,
                                std::numeric_limits<float>::max()}) {
      const std::vector<float> expected = expect_decoded(in, id, inverse);
      for (const Target target : available_targets()) {
        std::vector<float> out(in.size());
        decode(in, out, {.format = id, .inverse_scale = inverse, .target = target});
        INFO(format(id).name << " on " << to_string(target) << ", inverse scale " << inverse);
        CHECK(bits_of(out) == bits_of(expected));
      }
    }
  }
}

TEST_CASE("any length and alignment decodes the same and touches nothing else", "[cast][decode]") {
  std::vector<std::uint8_t> in(400);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 37 + 11);
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2fnuz, FormatId::e8m0fnu}) {
    const std::vector<float> expected = expect_decoded(in, id, 0.7f);
    for (const Target target : available_targets()) {
      for (std::size_t length = 0; length <= 150; ++length) {
        const std::size_t offset = length % 67;
        std::vector<float> out(length + 140, 123.0f);
        decode(std::span(in).subspan(offset, length), std::span(out).subspan(offset, length),
               {.format = id, .inverse_scale = 0.7f, .target = target});
        std::vector<float> wanted(out.size(), 123.0f);
        for (std::size_t i = offset; i < offset + length; ++i) wanted[i] = expected[i];
        INFO(format(id).name << " on " << to_string(target) << " length " << length);
        REQUIRE(bits_of(out) == bits_of(wanted));
      }
    }
  }
}

TEST_CASE("decoding too large for the caches is the same for any thread count", "[cast][decode]") {
  constexpr std::size_t kCount = (std::size_t{1} << 20) + 77;
  const RandomStream stream(3, "codes");
  std::vector<std::uint8_t> in(kCount);
  for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<std::uint8_t>(stream.bits32(i));
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e5m2fnuz}) {
    const std::vector<float> expected = expect_decoded(in, id, 0.7f);
    for (const Target target : available_targets()) {
      for (const int threads : {1, 2, 3}) {
        std::vector<float> out(kCount + 5);
        const std::span<float> part = std::span(out).subspan(5);
        decode(in, part,
               {.format = id, .inverse_scale = 0.7f, .threads = threads, .target = target});
        INFO(format(id).name << " on " << to_string(target) << ", threads " << threads);
        CHECK(std::memcmp(part.data(), expected.data(), part.size_bytes()) == 0);
      }
    }
  }
}

TEST_CASE("bad arguments of decode are named", "[cast][decode]") {
  std::vector<std::uint8_t> in(8);
  std::vector<float> out(8);
  CHECK_THROWS_WITH(decode(in, std::span(out).first(7)), contains("out: expected"));
  CHECK_THROWS_WITH(decode(in, out, {.format = FormatId::f16}), contains("format: expected"));
  CHECK_THROWS_WITH(decode(in, out, {.inverse_scale = -1.0f}), contains("inverse_scale: expected"));
  decode(std::span<const std::uint8_t>(), std::span<float>());
}
