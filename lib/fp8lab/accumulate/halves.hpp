#pragma once
// FP8 instructions that a compiler builds from FP16 ones, for chips that do not have them:
// the half to which each term goes, and the FP16 number that each operand becomes.

#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The term at position `place` in the order in which the halves of an instruction take
/// its `terms` terms (a multiple of 4): first those with k mod 4 < 2, then the others.
constexpr int term_of_halves(int place, int terms) {
  const int half = place / (terms / 2);
  const int within = place % (terms / 2);
  return within / 2 * 4 + half * 2 + within % 2;
}

/// The fused dot product that computes each half of an instruction.
AccumulatorModel step_of_halves(const AccumulatorModel& model);

/// The same value as an FP16 operand: subnormals of E4M3 become normal numbers.
/// Throws `Error` that names `argument` for a value that FP16 cannot represent.
Unpacked as_half(const Unpacked& x, std::string_view argument);

/// Whether the format is stored in 8 bits and all its values are FP16 values.
bool fits_half(const Format& f);

}  // namespace fp8lab
