// fmaf in place of the C library's. WebAssembly has no such instruction; musl's software adds in
// binary64 and mends the tie by looking at bit 28, which is not where a subnormal result has
// its tie: those it rounds twice. Here the exact sum is rounded once.

#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/cast/cast.hpp"

namespace {

using namespace fp8lab;

void add(KulischAccumulator& sum, const Unpacked& x) {
  if (x.significand != 0) sum.add(x.negative, x.significand, x.exponent - x.mantissa_bits);
}

}  // namespace

extern "C" float fmaf(float x, float y, float z) {
  // Zeros, infinities and NaN need no rounding: the product is exact in binary64.
  const double near = static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z);
  if (near == 0.0 || !std::isfinite(near)) return static_cast<float>(near);
  const Format& f = format(FormatId::f32);
  const Unpacked a = unpack(f, std::bit_cast<std::uint32_t>(x));
  const Unpacked b = unpack(f, std::bit_cast<std::uint32_t>(y));
  KulischAccumulator sum;
  if (const std::uint64_t product = std::uint64_t{a.significand} * b.significand; product != 0)
    sum.add(a.negative != b.negative, product,
            a.exponent - a.mantissa_bits + b.exponent - b.mantissa_bits);
  add(sum, unpack(f, std::bit_cast<std::uint32_t>(z)));
  return std::bit_cast<float>(round_and_pack(f, kNvidiaNosat, sum.value()).code);
}
