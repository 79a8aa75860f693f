#pragma once
// FP8 instructions that a chip does not have, put together from FP16 ones:
// which term goes to which half, and an operand as the FP16 number that it becomes.

#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Which term of an instruction of `terms` (a multiple of 4) stands at `place` of
/// the order in which its halves take them: those k with k mod 4 < 2, then the others.
constexpr int term_of_halves(int place, int terms) {
  const int half = place / (terms / 2);
  const int within = place % (terms / 2);
  return within / 2 * 4 + half * 2 + within % 2;
}

/// The fused dot product that each half of an instruction is.
AccumulatorModel step_of_halves(const AccumulatorModel& model);

/// The same value as an FP16 operand: E4M3's subnormals become normal numbers.
/// Throws `Error` naming `argument` for a value that FP16 does not have.
Unpacked as_half(const Unpacked& x, std::string_view argument);

/// Whether the format is stored in 8 bits and all its values are FP16 values.
bool fits_half(const Format& f);

}  // namespace fp8lab
