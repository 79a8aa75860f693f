#include "emulated_model.hpp"

#include <fmt/format.h>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

bool covers(const AccumulatorModel& m) {
  return m.kind == AccumulationKind::fused_dot_product &&
         m.product_exponent == ProductExponent::stored &&
         m.alignment_fraction_bits <= kMaxAlignmentBits &&
         (m.rounding == RoundingMode::toward_zero || m.rounding == RoundingMode::nearest_even);
}

bool covers(FormatId id) {
  const Format& f = format(id);
  return f.has_sign && f.mantissa_bits <= 10 &&
         (f.specials == SpecialValues::ieee || f.specials == SpecialValues::nan_only);
}

}  // namespace

bool can_emulate(const AccumulatorModel& model, FormatId a, FormatId b) {
  return covers(model) && covers(a) && covers(b);
}

EmulatedModel emulated_model(const AccumulatorModel& m) {
  require(covers(m), "model",
          fmt::format("a fused dot product with alignment_fraction_bits <= {}, rounded toward zero "
                      "or to nearest even",
                      kMaxAlignmentBits),
          fmt::format("kind {}, alignment_fraction_bits {}, rounding {}", to_string(m.kind),
                      m.alignment_fraction_bits, to_string(m.rounding)));
  const bool half = m.output_format == FormatId::f16;
  const bool stored_half = half && m.half_c_exponent == HalfCExponent::stored;
  return {m.terms,
          m.alignment_fraction_bits,
          m.output_fraction_bits,
          m.rounding == RoundingMode::nearest_even,
          half,
          m.min_alignment_exponent,
          format(stored_half ? FormatId::f16 : FormatId::f32).min_exponent(),
          m.zero_sign == ZeroSign::positive};
}

EmulatedFormat emulated_format(FormatId id) {
  const Format& f = format(id);
  require(covers(id), "format", "e4m3fn, e5m2, f16, bf16 or tf32", f.name);
  return {f.exponent_bits, f.mantissa_bits, f.bias, f.has_infinity(), f.storage_bits};
}

}  // namespace fp8lab::cuda
