#pragma once
// The ceilings of casts: copies that move the same bytes and compute next to nothing.

#include <cstdint>
#include <span>
#include <string_view>

namespace fp8lab::bench {

enum class CopyKind : std::uint8_t {
  plain,         ///< ordinary stores
  non_temporal,  ///< stores around the caches
  prefetched,    ///< the same, reading 8 KiB ahead
};

/// Reads four bytes and writes one for each element: the traffic of an encode. What it writes
/// is a mixture of what it read. `in` and `out` have one length, a multiple of 64, and begin
/// on 64 bytes. Uses the widest vectors of the current target.
void narrowing_copy(CopyKind kind, std::span<const float> in, std::span<std::uint8_t> out,
                    int threads);

/// Reads one byte and writes four for each element: the traffic of a decode.
void widening_copy(CopyKind kind, std::span<const std::uint8_t> in, std::span<float> out,
                   int threads);

/// Clock of one core in GHz, from a chain of 64-bit multiplications of three cycles each,
/// timed in processor time.
double measure_clock();

std::string_view to_string(CopyKind kind);

}  // namespace fp8lab::bench
