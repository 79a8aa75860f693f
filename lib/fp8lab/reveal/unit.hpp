#pragma once
// The parameters of an unknown unit from outside, as Hawkeye finds them: probes of few terms at
// every distance of exponents show how many bits aligned terms keep, how many a sum keeps, which
// way both are cut, and below which exponent nothing is aligned. All units of the library's kinds
// with all values of their parameters are compared with the outputs; who gives every bit stays.

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

/// Probes that fill the last two steps of a kernel's first chain: no later step cuts their sum.
struct UnitProbes {
  std::vector<Probe> probes;
  std::vector<std::int64_t> places;  ///< the last steps of the first chain: all others are zero
  /// Probes in whose every used step a large product stands: no lower limit of alignment matters.
  std::size_t high = 0;  ///< the first so many
};
UnitProbes unit_probes(const ProbeShape& shape, const SumStructure& structure,
                       const OrderScale& scale, std::uint64_t seed);

/// A unit, and the format to which the kernel rounds its sums (f32: as they are).
struct UnitCandidate {
  AccumulatorModel model;
  FormatId rounded_to = FormatId::f32;
  /// Of a unit without a lower limit of alignment: the highest limit that gives the same outputs.
  std::optional<int> limits_up_to{};
};

/// What gives all outputs of the probes. `output` is the format of the kernel's outputs.
std::vector<UnitCandidate> units_of(const ProbeShape& shape, const SumStructure& structure,
                                    const UnitProbes& probes, std::span<const float> outputs,
                                    FormatId output);

/// A value of `rounded_to`, nearest even, overflow to infinity.
float rounded_output(FormatId rounded_to, float value);

}  // namespace fp8lab
