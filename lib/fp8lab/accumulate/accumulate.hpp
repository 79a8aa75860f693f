#pragma once
// The scalar reference of every accumulation model. Integer arithmetic decides
// every bit. Special values follow one rule for all models.
//
// Special values (every model; on hardware *assumed* unless a recording in
// tests/golden says otherwise):
// - a NaN operand or c, Inf x 0, or infinities of both signs: NaN 0x7fffffff;
// - otherwise any infinity (operand product or c): Inf of that sign;
// - an exact sum of zero, also of negative zeros only: +0; a sum that rounds to zero
//   keeps its sign, or is +0 (`AccumulatorModel::zero_sign`);
// - a finite sum that is too large for binary32 (for FP16 with FP16 output): Inf of its sign;
// - subnormal operands and a subnormal c take part with the smallest normal exponent
//   and are not normalized; results below the smallest normal number are multiples of
//   2^(-126 - output_fraction_bits), or of 2^-24 with FP16 output.

#include <cstdint>
#include <span>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/scales.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// c + a . b under `model`. It takes the operands in order, `model.terms` at a time.
///
/// a, b: k operands each. c and the result are binary32. With FP16 output the result is
/// an FP16 value in binary32, and c is rounded to FP16, to nearest even, before the first
/// step. Throws `Error` if the lengths differ, a field of the model is out of range, or
/// the model does not accept the value of an operand (`takes_formats`).
float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c = 0.0F);

/// The same for storage codes of two formats, one code per element. A convenience for
/// tests and small problems.
float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, float c = 0.0F);

/// The same for a unit that applies block scales: one scale of A and one of B for every
/// `scales.block` terms (`AccumulatorUnit::takes_scales`). If `scales` is empty, all are 1.
/// Throws `Error` for scales of a format, block or number that the unit does not accept.
float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, const BlockScales& scales, float c = 0.0F);
float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, const BlockScales& scales, float c = 0.0F);

/// The NaN that every model returns.
inline constexpr std::uint32_t kCanonicalNan = 0x7fffffff;

}  // namespace fp8lab
