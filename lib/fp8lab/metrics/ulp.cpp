#include "fp8lab/metrics/ulp.hpp"

#include <fmt/format.h>

#include <bit>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

/// Codes in the order of their values: -0 and +0 are both 0.
std::int64_t rank_of(const Format& f, std::uint32_t code) {
  const auto magnitude = static_cast<std::int64_t>(code & f.magnitude_mask());
  return (code & f.sign_mask()) != 0 ? -magnitude : magnitude;
}

std::uint64_t magnitude_of(std::int64_t rank) {
  return static_cast<std::uint64_t>(rank < 0 ? -rank : rank);
}

bool is_nan(const Format& f, std::uint32_t code) {
  return unpack(f, code).value_class == ValueClass::nan;
}

template <typename Element, typename CodeOf>
UlpHistogram build(const Format& f, std::span<const Element> reference,
                   std::span<const Element> actual, CodeOf code_of) {
  require(reference.size() == actual.size(), "actual",
          fmt::format("{} elements, as the reference", reference.size()),
          fmt::format("{}", actual.size()));
  UlpHistogram h;
  h.total = reference.size();
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const std::uint32_t expected = code_of(reference[i]);
    const std::uint32_t got = code_of(actual[i]);
    const std::uint64_t distance = ulp_distance(f, expected, got);
    if (distance == kNanDistance) {
      ++h.nan_mismatches;
      continue;
    }
    ++h.counts[UlpHistogram::bin_of(distance)];
    if (distance > h.max_distance) {
      h.max_distance = distance;
      h.max_index = i;
    }
    if (distance == 0) continue;
    const std::uint64_t before = magnitude_of(rank_of(f, expected));
    const std::uint64_t after = magnitude_of(rank_of(f, got));
    h.toward_zero += after < before ? 1 : 0;
    h.away_from_zero += after > before ? 1 : 0;
  }
  return h;
}

}  // namespace

std::uint64_t ulp_distance(const Format& f, std::uint32_t a, std::uint32_t b) {
  const bool a_nan = is_nan(f, a);
  const bool b_nan = is_nan(f, b);
  if (a_nan || b_nan) return a_nan && b_nan ? 0 : kNanDistance;
  return magnitude_of(rank_of(f, a) - rank_of(f, b));
}

UlpHistogram ulp_histogram(const Format& f, std::span<const std::uint8_t> reference,
                           std::span<const std::uint8_t> actual) {
  require(f.storage_bits == 8, "format", "an 8-bit format", f.name);
  return build(f, reference, actual, [](std::uint8_t code) { return std::uint32_t{code}; });
}

UlpHistogram ulp_histogram(std::span<const float> reference, std::span<const float> actual) {
  return build(format(FormatId::f32), reference, actual,
               [](float x) { return std::bit_cast<std::uint32_t>(x); });
}

}  // namespace fp8lab
