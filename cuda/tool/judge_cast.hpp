#pragma once
// Every input of one conversion, compared with the library. Whether a chip or a simulation converts
// does not matter here.

#include <cstdint>
#include <functional>
#include <vector>

#include "cast_table.hpp"
#include "tool/parts.hpp"

namespace fp8lab::cuda {

/// The results for the codes first, first + 1, ...; both numbers are even.
using RunCast = std::function<std::vector<std::uint16_t>(std::uint64_t first, std::uint64_t count)>;

/// Converts every input, `chunk` (even) at a time; the first 20 that differ are printed. The row's
/// note names a rounding of the library that explains all of them, if there is one.
CheckRow judge_cast(const CastInstruction& cast, const RunCast& run,
                    std::uint64_t chunk = std::uint64_t{1} << 27);

}  // namespace fp8lab::cuda
