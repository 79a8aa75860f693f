#include "fp8lab/cast/triton_interpreter.hpp"

#include <algorithm>
#include <bit>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr int kBias = 127;
constexpr int kFraction = 23;  // bits of a binary32 significand
constexpr std::uint32_t kFractionMask = (std::uint32_t{1} << kFraction) - 1;

}  // namespace

bool is_cast_of_triton_interpreter(FormatId to) {
  return to == FormatId::e4m3fn || to == FormatId::e5m2 || to == FormatId::e4m3fnuz ||
         to == FormatId::e5m2fnuz;
}

std::uint32_t triton_interpreter_code(const Format& to, float x) {
  require(is_cast_of_triton_interpreter(to.id), "format", "e4m3fn, e5m2 or a FNUZ form of them",
          to.name);
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto stored = static_cast<int>(bits >> kFraction & 0xff);
  std::uint32_t significand = bits & kFractionMask;
  int exponent = stored;
  if (stored == 0 && significand == 0) {
    exponent = kBias - to.bias;
  } else if (stored == 0) {
    const int leading = std::countl_zero(significand) - (31 - kFraction);
    exponent = 1 - leading;
    significand = significand << leading & kFractionMask;
  }
  const int most = (1 << to.exponent_bits) - 1;
  const int field = std::clamp(exponent - kBias + to.bias, 0, most);
  const int cut = kFraction - to.mantissa_bits;
  std::uint32_t kept = (significand >> cut) + (significand >> (cut - 1) & 1);
  if (field == 0 && stored != 0) {
    const int shift = to.min_exponent() - (stored - kBias);
    kept = shift > to.mantissa_bits
               ? kept >> std::min(shift, 31)
               : kept >> shift | std::uint32_t{1} << (to.mantissa_bits - shift);
  }
  const bool unsigned_zero = to.specials == SpecialValues::fnuz && field == 0 && kept == 0;
  const std::uint32_t sign = unsigned_zero ? 0 : (bits >> 31) * to.sign_mask();
  return sign | static_cast<std::uint32_t>(field) << to.mantissa_bits | kept;
}

}  // namespace fp8lab
