#include "pictures/running_sum.hpp"

#include <cmath>

#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::explorer {

void RunningSum::add(std::span<const Unpacked> a, std::span<const Unpacked> b) {
  partial_ = dot_product(model_, a, b, partial_);
  terms_ += static_cast<std::int64_t>(a.size());
  if (interval_ == 0 || terms_ < interval_) return;
  promoted_ = canonical(promoted_ + partial_);
  partial_ = 0.0F;
  terms_ = 0;
}

void ExactSum::add(std::span<const Unpacked> a, std::span<const Unpacked> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint64_t product = std::uint64_t{a[i].significand} * b[i].significand;
    if (product == 0) continue;
    sum_.add(a[i].negative != b[i].negative, product,
             a[i].exponent - a[i].mantissa_bits + b[i].exponent - b[i].mantissa_bits);
  }
}

float RunningSum::value() const {
  return interval_ == 0 ? partial_ : canonical(promoted_ + partial_);
}

double ExactSum::value() const {
  const Exact x = sum_.value();
  const double magnitude = std::ldexp(static_cast<double>(x.significand), x.exponent);
  return x.negative ? -magnitude : magnitude;
}

}  // namespace fp8lab::explorer
