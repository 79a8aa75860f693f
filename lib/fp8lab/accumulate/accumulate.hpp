#pragma once
// The scalar reference of every accumulation model. Integer arithmetic alone
// decides bits; special values follow one documented rule for all models.
//
// Special values (every model; on hardware *assumed* unless a recording in
// tests/golden says otherwise):
// - a NaN operand or c, Inf x 0, or infinities of both signs: NaN 0x7fffffff;
// - otherwise any infinity (operand product or c): Inf of that sign;
// - an exact sum of zero, also of negative zeros only: +0; a sum that rounds to zero
//   keeps its sign;
// - a finite sum too large for binary32 (FP16 output: for FP16): Inf of its sign;
// - subnormal operands and c take part with the smallest normal exponent,
//   unnormalised; results below the smallest normal number are multiples of
//   2^(-126 - output_fraction_bits), of FP16 output of 2^-24.

#include <cstdint>
#include <span>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/scales.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// c + a . b under `model`: the operands in order, `model.terms` at a time.
///
/// a, b: k operands each. c, result: binary32 (FP16 output: an FP16 value held
/// in binary32; c is rounded to FP16, nearest even, before the first step).
/// Throws `Error` if the lengths differ, the model is out of range, or an operand is
/// a number that the model does not take (`takes_formats`).
float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c = 0.0F);

/// The same on storage codes of two formats (8-bit codes for all formats of at
/// most 8 bits). A convenience for tests and small problems.
float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, float c = 0.0F);

/// The same of a unit that applies block scales itself, one of A and one of B for every
/// `scales.block` terms (`AccumulatorUnit::takes_scales` says which it takes). Empty scales
/// are 1. Throws `Error` for scales of another format, block or number.
float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, const BlockScales& scales, float c = 0.0F);
float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, const BlockScales& scales, float c = 0.0F);

/// The NaN that every model returns.
inline constexpr std::uint32_t kCanonicalNan = 0x7fffffff;

}  // namespace fp8lab
