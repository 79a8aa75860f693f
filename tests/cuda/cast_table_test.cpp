// The check of the chip's conversions, with a chip on the host: what it does as the table says is
// right, and what a test plants in it is found and named.

#include <bit>
#include <set>

#include "catch.hpp"
#include "cuda/tool/judge_cast.hpp"
#include "fp8lab/cast/cast.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// A chip that converts under `policy`.
RunCast simulated(const CastInstruction& one, const CastPolicy& policy) {
  return [one, policy](std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint16_t> codes;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Unpacked x = unpack(format(one.from), static_cast<std::uint32_t>(first + i));
      codes.push_back(static_cast<std::uint16_t>(cast(format(one.to), policy, x).code));
    }
    return codes;
  };
}

const CastInstruction& find(std::string_view name) {
  for (const CastInstruction& one : narrow_casts())
    if (one.name == name) return one;
  FAIL("no " << name);
  return narrow_casts().front();
}

}  // namespace

TEST_CASE("a conversion as the table has it passes, in chunks that do not divide it", "[cuda]") {
  std::set<std::string_view> names;
  for (const CastInstruction& one : narrow_casts()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    if (one.from == FormatId::f32) continue;  // 2^32 inputs: on a chip
    const CheckRow row = judge_cast(one, simulated(one, one.policy), 1000);
    CHECK(row.mismatches == 0);
    CHECK(row.cases == one.inputs());
    CHECK(row.note.empty());
  }
}

TEST_CASE("another rounding and another overflow are found and named", "[cuda]") {
  const CastInstruction& down = find("cvt.rz.satfinite.ue8m0x2.bf16x2");
  CastPolicy up = down.policy;
  up.rounding = RoundingMode::upward;
  const CheckRow rounded = judge_cast(down, simulated(down, up));
  // All BF16 numbers of both signs that are no power of two, up to the largest: 254 * 127 normals,
  // and the subnormals above 2^-127; the last binade rounds up to 2^127.
  CHECK(rounded.mismatches > 60'000);
  CHECK_THAT(rounded.note, contains("nvidia_satfinite with upward"));

  const CastInstruction& open = find("cvt.rp.ue8m0x2.bf16x2");
  CastPolicy saturating = open.policy;
  saturating.overflow = OverflowPolicy::saturate;
  saturating.infinity = InfinityPolicy::saturate;
  const CheckRow saturated = judge_cast(open, simulated(open, saturating));
  // 127 numbers above 2^127 and infinity, of both signs.
  CHECK(saturated.mismatches == 256);
  CHECK_THAT(saturated.note, contains("nvidia_satfinite with upward"));
}

TEST_CASE("a result that no rounding gives is told as such", "[cuda]") {
  const CastInstruction& widened = find("cvt.rn.f16x2.e3m2x2");
  const RunCast right = simulated(widened, widened.policy);
  const CheckRow row = judge_cast(widened, [&](std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint16_t> codes = right(first, count);
    std::swap(codes[2], codes[3]);
    return codes;
  });
  CHECK(row.mismatches == 2);
  CHECK_THAT(row.note, contains("no rounding of the library explains them"));
}
