#include "fp8lab/accumulate/halves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

AccumulatorModel step_of_halves(const AccumulatorModel& model) {
  AccumulatorModel step = model;
  step.kind = AccumulationKind::fused_dot_product;
  step.terms = model.terms / 2;
  return step;
}

Unpacked as_half(const Unpacked& x, std::string_view argument) {
  if (x.significand == 0 || !x.is_finite()) return x;
  const Format& half = format(FormatId::f16);
  const int unit = x.exponent - x.mantissa_bits;  // of the significand's last bit
  const int leading = unit + static_cast<int>(std::bit_width(x.significand)) - 1;
  const int exponent = std::max(leading, half.min_exponent());
  const int half_unit = exponent - half.mantissa_bits;
  const int lost = std::max(half_unit - unit, 0);
  const bool kept = lost < 32 && x.significand >> lost << lost == x.significand;
  if (!kept || exponent > half.bias)
    throw Error(argument, "values that FP16 has",
                fmt::format("{}{} * 2^{}", x.negative ? "-" : "", x.significand, unit));
  Unpacked y = x;
  y.significand = unit >= half_unit ? x.significand << (unit - half_unit) : x.significand >> lost;
  y.exponent = static_cast<std::int16_t>(exponent);
  y.mantissa_bits = static_cast<std::int8_t>(half.mantissa_bits);
  y.value_class = leading < half.min_exponent() ? ValueClass::subnormal : ValueClass::normal;
  return y;
}

bool fits_half(const Format& f) {
  const Format& half = format(FormatId::f16);
  const int largest = static_cast<int>(f.max_finite_code() >> f.mantissa_bits) - f.bias;
  return f.storage_bits == 8 && f.mantissa_bits <= half.mantissa_bits && largest <= half.bias &&
         f.min_exponent() - f.mantissa_bits >= half.min_exponent() - half.mantissa_bits;
}

}  // namespace fp8lab
