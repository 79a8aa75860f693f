#include "training/optim/expansion.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

constexpr float kSmallest = 1e-20F;
constexpr float kStepsOfExponent = 16.0F;
constexpr float kLargestExponent = 8.0F;

}  // namespace

float Expansion::expand(float x) const {
  const FloatEnvironment environment;
  return std::copysign(std::pow(std::abs(x) / centre, exponent), x) / inverse_scale;
}

float Expansion::contract(float code) const {
  const FloatEnvironment environment;
  const float scaled = code * inverse_scale;
  return std::copysign(std::pow(std::abs(scaled), 1.0F / exponent), scaled) * centre;
}

Expansion expansion_of(std::span<const float> group, const Format& f) {
  const FloatEnvironment environment;
  float largest = 0.0F;
  float smallest = std::numeric_limits<float>::max();
  for (const float x : group) {
    largest = std::fmax(largest, std::abs(x));
    smallest = std::fmin(smallest, std::abs(x));
  }
  largest += kSmallest;
  smallest += kSmallest;
  const auto max_finite = static_cast<float>(f.max_finite());
  const float bound = max_finite * max_finite / 2.0F;
  Expansion e;
  e.centre = std::sqrt(largest * smallest);
  const float steps =
      std::floor(std::log2(bound) / std::log2(largest / smallest) * kStepsOfExponent);
  e.exponent = std::clamp(steps / kStepsOfExponent, 1.0F / kStepsOfExponent, kLargestExponent);
  e.inverse_scale = std::pow(largest / e.centre, e.exponent) / max_finite;
  return e;
}

}  // namespace fp8lab
