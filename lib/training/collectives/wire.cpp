#include "training/collectives/wire.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/scaling/backend_cast.hpp"

namespace fp8lab {
namespace {

constexpr std::uint32_t kFloatNan = 0x7fffffffU;
constexpr std::size_t kBlock = 256;  // elements that the vector paths hold at a time

/// The exact sum of two finite values of one format of at most 24 significand bits.
Exact exact_sum(const Unpacked& a, const Unpacked& b) {
  constexpr int kRoom = 38;  // 24 + 38 bits leave one for the carry
  const auto& [low, high] = a.exponent < b.exponent ? std::pair(a, b) : std::pair(b, a);
  const int distance = high.exponent - low.exponent;
  if (low.significand == 0 && high.significand == 0)
    return {.negative = low.negative && high.negative};
  const int shift = std::min(distance, kRoom);
  const int dropped = std::min(distance - shift, 63);
  const std::uint64_t h = std::uint64_t{high.significand} << shift;
  const std::uint64_t l = std::uint64_t{low.significand} >> dropped;
  const bool sticky = (l << dropped) != low.significand;
  Exact sum{.exponent = high.exponent - high.mantissa_bits - shift, .sticky = sticky};
  if (high.negative == low.negative) {
    sum.significand = h + l;
    sum.negative = high.negative;
  } else if (h >= l) {
    // What is subtracted below the last bit borrows one unit and leaves a part of it.
    sum.significand = h - l - (sticky ? 1 : 0);
    sum.negative = high.negative && h != l;
  } else {
    sum.significand = l - h;
    sum.negative = low.negative;
  }
  return sum;
}

/// Sums of all pairs of codes of an FP8 wire.
class PairTable {
 public:
  explicit PairTable(const WireFormat& wire) : entries_(1 << 16) {
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b <= a; ++b) {
        const CastResult sum = add_codes(wire, a, b);
        const auto entry = static_cast<std::uint16_t>(sum.code | (sum.overflowed ? 0x100U : 0U));
        entries_[a << 8 | b] = entry;
        entries_[b << 8 | a] = entry;
      }
  }
  std::uint64_t add(std::span<const std::byte> term, std::span<std::byte> sum) const {
    std::uint64_t overflowed = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const std::uint16_t entry = entries_[std::to_integer<std::size_t>(sum[i]) << 8 |
                                           std::to_integer<std::size_t>(term[i])];
      sum[i] = static_cast<std::byte>(entry & 0xff);
      overflowed += entry >> 8;
    }
    return overflowed;
  }

 private:
  std::vector<std::uint16_t> entries_;
};

const PairTable& pair_table(const WireFormat& wire) {
  static const PairTable kE4m3(kWireFormats[0]);
  static const PairTable kE5m2(kWireFormats[1]);
  return wire.format == FormatId::e5m2 ? kE5m2 : kE4m3;
}

/// The NaN that GPUs give; x86 would hand on one operand's payload.
float canonical(float x) { return std::isnan(x) ? std::bit_cast<float>(kFloatNan) : x; }

void load(const WireFormat& wire, std::span<const std::byte> in, std::span<float> out) {
  if (wire.format == FormatId::f32) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  const std::span<const float> values = decode_table(wire.format);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, &in[i * wire.bytes], wire.bytes);
    out[i] = values[code];
  }
}

void store(const WireFormat& wire, std::span<const float> in, std::span<std::byte> out) {
  if (wire.format == FormatId::f32) {
    std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  std::array<std::uint16_t, kBlock> codes;
  encode(in, std::span(codes).first(in.size()), {.format = wire.format, .policy = wire.policy});
  std::memcpy(out.data(), codes.data(), out.size());
}

/// Calls block(first, count) over [0, elements).
template <typename Block>
void for_blocks(std::size_t elements, Block block) {
  for (std::size_t first = 0; first < elements; first += kBlock)
    block(first, std::min(kBlock, elements - first));
}

/// Sums of two 8- or 11-bit significands, rounded to binary32 and then to their
/// own format, are rounded once in effect: 24 >= 2 * 11 + 2.
std::uint64_t add_wide(const WireFormat& wire, std::span<const std::byte> term,
                       std::span<std::byte> sum) {
  std::uint64_t overflowed = 0;
  std::array<float, kBlock> a;
  std::array<float, kBlock> b;
  for_blocks(sum.size() / wire.bytes, [&](std::size_t first, std::size_t count) {
    const std::span<std::byte> out = sum.subspan(first * wire.bytes, count * wire.bytes);
    load(wire, out, std::span(a).first(count));
    load(wire, term.subspan(first * wire.bytes, count * wire.bytes), std::span(b).first(count));
    std::size_t finite = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isfinite(a[i]) && std::isfinite(b[i])) ++finite;
      a[i] = canonical(a[i] + b[i]);
    }
    store(wire, std::span(a).first(count), out);
    load(wire, out, std::span(b).first(count));
    // Finite operands make no NaN, and no finite sum has another source.
    const auto still = std::count_if(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(count),
                                     [](float x) { return std::isfinite(x); });
    overflowed += finite - static_cast<std::size_t>(still);
  });
  return overflowed;
}

void require_scale(std::string_view name, float scale) {
  require(std::isfinite(scale) && scale > 0.0F, name, "a positive, finite number",
          fmt::format("{}", scale));
}

void require_bytes(const WireFormat& wire, std::string_view name, std::size_t elements,
                   std::size_t bytes) {
  require(bytes == elements * wire.bytes, name,
          fmt::format("{} for {} of {}", counted(elements * wire.bytes, "byte"),
                      counted(elements, "element"), wire.name),
          fmt::format("{}", bytes));
}

WireCounts to_f32(std::span<const float> x, float scale, std::span<std::byte> out) {
  WireCounts counts;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float y = canonical(x[i] * scale);
    if (std::isinf(y)) ++counts.overflowed;
    if (y == 0.0F && x[i] != 0.0F) ++counts.underflowed;
    std::memcpy(&out[i * sizeof y], &y, sizeof y);
  }
  return counts;
}

}  // namespace

const WireFormat& find_wire_format(std::string_view name) {
  const FormatId id = find_format(name).id;
  std::vector<std::string_view> names;
  for (const WireFormat& wire : kWireFormats) {
    if (wire.format == id) return wire;
    names.push_back(wire.name);
  }
  throw Error("wire", fmt::format("one of {}", fmt::join(names, ", ")), fmt::format("'{}'", name));
}

CastResult add_codes(const WireFormat& wire, std::uint32_t a, std::uint32_t b) {
  const Format& f = format(wire.format);
  const Format& wide = format(wire.sum_format);
  const Unpacked x = unpack(f, a);
  const Unpacked y = unpack(f, b);
  if (x.is_finite() && y.is_finite()) {
    const CastResult sum = round_and_pack(wide, kNvidiaNosat, exact_sum(x, y));
    CastResult result = cast(f, wire.policy, unpack(wide, sum.code));
    result.overflowed = result.overflowed || sum.overflowed;
    result.inexact = result.inexact || sum.inexact;
    return result;
  }
  Unpacked special = x.is_finite() ? y : x;
  const bool opposite = !x.is_finite() && !y.is_finite() && x.negative != y.negative;
  if (x.value_class == ValueClass::nan || y.value_class == ValueClass::nan || opposite)
    special = {.value_class = ValueClass::nan};
  CastResult result = cast(f, wire.policy, special);
  result.overflowed = false;
  return result;
}

std::uint64_t add_on_wire(const WireFormat& wire, std::span<const std::byte> term,
                          std::span<std::byte> sum) {
  const FloatEnvironment environment;
  require_bytes(wire, "term", sum.size() / wire.bytes, term.size());
  require_bytes(wire, "sum", sum.size() / wire.bytes, sum.size());
  return wire.bytes == 1 ? pair_table(wire).add(term, sum) : add_wide(wire, term, sum);
}

WireCounts to_wire(const WireFormat& wire, std::span<const float> x, float scale,
                   std::span<std::byte> out, const Backend& backend) {
  const FloatEnvironment environment;
  require_scale("scale", scale);
  require_bytes(wire, "out", x.size(), out.size());
  if (wire.format == FormatId::f32) return to_f32(x, scale, out);
  const EncodeOptions options{.format = wire.format,
                              .policy = wire.policy,
                              .scale = scale,
                              .statistics = GatherStatistics::all};
  EncodeStatistics statistics;
  if (wire.bytes == 1) {
    const std::span codes(reinterpret_cast<std::uint8_t*>(out.data()), out.size());
    statistics = encode(x, codes, options);
    recast_on(backend, wire.format, wire.policy, x, {scale}, false, codes);
  } else {
    std::vector<std::uint16_t> codes(x.size());
    statistics = encode(x, codes, options);
    if (!codes.empty()) std::memcpy(out.data(), codes.data(), out.size());
  }
  return {statistics.overflowed, statistics.underflowed};
}

void from_wire(const WireFormat& wire, std::span<const std::byte> in, float inverse_scale,
               std::span<float> out) {
  const FloatEnvironment environment;
  require_scale("inverse_scale", inverse_scale);
  require_bytes(wire, "in", out.size(), in.size());
  load(wire, in, out);
  for (float& x : out) x *= inverse_scale;
}

}  // namespace fp8lab
