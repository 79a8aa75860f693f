#pragma once
// The cast to FP8 of Triton's interpreter (TRITON_INTERPRET=1). It differs from the cast of
// compiled Triton kernels: a carry into the exponent is lost, and nothing saturates.

#include <cstdint>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Whether the interpreter has a cast to this format: E4M3 and E5M2, OCP or FNUZ.
bool is_cast_of_triton_interpreter(FormatId to);

/// The code of `x.to(tl.float8e4nv)` (`float8e5`, `float8e4b8`, `float8e5b16`) for a float32 x in
/// the interpreter. It truncates the significand to M bits and adds the first bit below them, so
/// that ties round away from zero.
///
/// - It combines a carry out of the significand with the exponent field by OR: 127 = 1.98 * 2^6
///   has the odd field 13 and becomes 64; 252 has an even field and becomes 256, which is right.
/// - It clamps the field to 0 ... all ones and keeps the significand: 512 becomes 256 in E4M3.
///   Values that saturate in other casts become NaN or smaller numbers.
/// - Below the smallest normal number it shifts the rounded significand and truncates it.
/// - A binary32 subnormal gets the bits of its significand, not 0.
///
/// Read in `_convert_float` of triton/runtime/interpreter.py (Triton 3.9.0) and compared with it.
/// Throws `Error` for a format that is not one of these.
std::uint32_t triton_interpreter_code(const Format& to, float x);

}  // namespace fp8lab
