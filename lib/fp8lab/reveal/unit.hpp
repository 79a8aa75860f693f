#pragma once
// Finds the parameters of an unknown unit from outputs, as Hawkeye does. Probes of few terms at all
// distances of exponents show the bits of aligned terms and of sums, their rounding, and the lowest
// exponent of an alignment. All units of the library's kinds, with all values of their parameters,
// are compared with the outputs. Those that give every bit remain.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/reveal/kernel.hpp"
#include "fp8lab/reveal/order.hpp"
#include "fp8lab/reveal/structure.hpp"

namespace fp8lab {

/// Probes in the last two steps of a kernel's first chain, so that no later step rounds their sum.
struct UnitProbes {
  std::vector<Probe> probes;
  std::vector<std::int64_t> places;  ///< the last steps of the first chain; the rest is zero
  /// Probes with a large product in every step that they use, so that a lower limit has no effect.
  std::size_t high = 0;  ///< these are the first `high` probes
};
UnitProbes unit_probes(const ProbeShape& shape, const SumStructure& structure,
                       const OrderScale& scale, std::uint64_t seed);

/// A unit, and the format to which the kernel rounds its sums (f32: no rounding).
struct UnitCandidate {
  AccumulatorModel model;
  FormatId rounded_to = FormatId::f32;
  /// For a unit without a lower limit of alignment: the highest limit with the same outputs.
  std::optional<int> limits_up_to{};
};

/// The units that give all outputs of the probes. `output`: the format of the kernel's outputs.
std::vector<UnitCandidate> units_of(const ProbeShape& shape, const SumStructure& structure,
                                    const UnitProbes& probes, std::span<const float> outputs,
                                    FormatId output);

/// `value` rounded to `rounded_to`, to nearest even; overflow gives infinity.
float rounded_output(FormatId rounded_to, float value);

}  // namespace fp8lab
