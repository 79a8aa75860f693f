#pragma once
// The elements that ranks exchange, and their sum at a hop: NCCL's FP8 sum (pairs
// are added in FP16, and each sum is cast to FP8 again) and the wider wires.
// Specified in docs/specification/collectives.md; *read* in NCCL's reduce_kernel.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab {

/// One element on the wire. A hop adds two of them exactly, rounds the sum to
/// `sum_format` (nearest even, overflow gives Inf) and casts that to `format`.
struct WireFormat {
  std::string_view name;
  FormatId format;
  FormatId sum_format;
  CastPolicy policy;  ///< of casts to `format`, for inputs and sums
  std::size_t bytes;  ///< of one element
};

/// FP8 saturates, as CUDA's fp8 constructors do; the others overflow to Inf.
inline constexpr std::array<WireFormat, 5> kWireFormats{{
    {"e4m3fn", FormatId::e4m3fn, FormatId::f16, kNvidiaSatfinite, 1},
    {"e5m2", FormatId::e5m2, FormatId::f16, kNvidiaSatfinite, 1},
    {"f16", FormatId::f16, FormatId::f16, kNvidiaNosat, 2},
    {"bf16", FormatId::bf16, FormatId::bf16, kNvidiaNosat, 2},
    {"f32", FormatId::f32, FormatId::f32, kNvidiaNosat, 4},
}};

/// The wire called `name`; the names of `find_format` are accepted too. Throws `Error`.
const WireFormat& find_wire_format(std::string_view name);

/// The sum of two codes on a wire: the scalar reference, in integer arithmetic. A NaN,
/// or infinities of both signs, give the positive NaN of all ones (E4M3 0x7f, FP16
/// 0x7fff, binary32 0x7fffffff). An infinity remains one in the wider wires and
/// becomes +-max finite in E5M2, because that cast saturates. -0 + -0 is -0; any other
/// sum of zero is +0. Subnormals are kept. `overflowed` is set if both codes are finite
/// and their sum rounds to a value above max finite. The order of the codes does not
/// matter.
CastResult add_codes(const WireFormat& wire, std::uint32_t a, std::uint32_t b);

/// sum[i] = add_codes(sum[i], term[i]) for spans of elements in memory order.
/// Returns the number that overflowed. Assumes the default floating-point environment.
/// Throws `Error` for spans of different lengths or no multiple of `wire.bytes`.
std::uint64_t add_on_wire(const WireFormat& wire, std::span<const std::byte> term,
                          std::span<std::byte> sum);

/// Counts of the elements of one `to_wire`.
struct WireCounts {
  std::uint64_t overflowed = 0;   ///< rounded above max finite, and +-Inf
  std::uint64_t underflowed = 0;  ///< non-zero elements that became zero
};

/// out[i] = cast(x[i] * scale) into `wire.format`; the product is rounded to
/// binary32 first. FP8 codes come from `backend` where that has the cast, with the same bits.
/// Throws `Error` for sizes that disagree and a scale that is not positive and finite.
WireCounts to_wire(const WireFormat& wire, std::span<const float> x, float scale,
                   std::span<std::byte> out, const Backend& backend = {});

/// out[i] = value of in[i] times `inverse_scale`, rounded to binary32. Throws
/// `Error` for sizes that disagree and a scale that is not positive and finite.
void from_wire(const WireFormat& wire, std::span<const std::byte> in, float inverse_scale,
               std::span<float> out);

}  // namespace fp8lab
