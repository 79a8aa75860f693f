#pragma once
// From the library's models and formats to what the device's emulator takes.

#include <fmt/format.h>

#include "emulated_core.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {

/// Sums of an alignment of more bits could leave 64-bit integers.
inline constexpr int kMaxAlignmentBits = 30;

inline bool can_emulate(const AccumulatorModel& m) {
  return m.kind == AccumulationKind::fused_dot_product &&
         m.product_exponent == ProductExponent::stored &&
         m.alignment_fraction_bits <= kMaxAlignmentBits &&
         (m.rounding == RoundingMode::toward_zero || m.rounding == RoundingMode::nearest_even);
}

inline bool can_emulate(FormatId id) {
  const Format& f = format(id);
  return f.has_sign && f.storage_bits <= 32 && f.mantissa_bits <= 10 &&
         (f.specials == SpecialValues::ieee || f.specials == SpecialValues::nan_only);
}

inline bool can_emulate(const AccumulatorModel& m, FormatId a, FormatId b) {
  return can_emulate(m) && can_emulate(a) && can_emulate(b);
}

/// Throws `Error` for a model that the device's emulator does not cover.
inline EmulatedModel emulated_model(const AccumulatorModel& m) {
  require(can_emulate(m), "model",
          fmt::format("a fused dot product with alignment_fraction_bits <= {}, rounded toward zero "
                      "or to nearest even",
                      kMaxAlignmentBits),
          fmt::format("alignment_fraction_bits {}, rounding {}", m.alignment_fraction_bits,
                      to_string(m.rounding)));
  return {m.terms, m.alignment_fraction_bits, m.output_fraction_bits,
          m.rounding == RoundingMode::nearest_even, m.output_format == FormatId::f16};
}

/// Throws `Error` for a format that the device's emulator does not cover.
inline EmulatedFormat emulated_format(FormatId id) {
  const Format& f = format(id);
  require(can_emulate(id), "format", "e4m3fn, e5m2, f16, bf16 or tf32", f.name);
  return {f.exponent_bits, f.mantissa_bits, f.bias, f.has_infinity(), f.storage_bits};
}

}  // namespace fp8lab::cuda
