#pragma once
// The cast to FP8 of Triton's interpreter (TRITON_INTERPRET=1), which is not the one of its
// compiled kernels: a carry into the exponent is lost, and nothing saturates.

#include <cstdint>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Whether the interpreter has such a cast: E4M3 and E5M2, of either kind.
bool is_cast_of_triton_interpreter(FormatId to);

/// The code that `x.to(tl.float8e4nv)` (`float8e5`, `float8e4b8`, `float8e5b16`) of a float32 has
/// in the interpreter. The significand is cut to M bits, and the first bit below them is added:
/// half rounds away from zero.
///
/// - A carry out of the significand is or-ed into the exponent field: 127 = 1.98 * 2^6 has the odd
///   field 13 and becomes 64; 252 has an even one and becomes 256, which is right.
/// - The field is limited to 0 ... all ones, the significand stays: 512 becomes 256 in E4M3, and
///   what saturates elsewhere becomes NaN or a smaller number.
/// - Below the smallest normal number the rounded significand is shifted and cut.
/// - A binary32 subnormal has the bits of its own significand, not 0.
///
/// Read in `_convert_float` of triton/runtime/interpreter.py (Triton 3.9.0) and compared with it.
/// Throws `Error` for a format that is not one of these.
std::uint32_t triton_interpreter_code(const Format& to, float x);

}  // namespace fp8lab
