#pragma once
// Tensors for the tests of recipes, and what of quantized ones is compared.

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::test {

inline std::vector<float> log_normal(std::int64_t size, std::uint64_t seed = 1) {
  const RandomStream random(seed, "quantize_test");
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(random.normal(2 * i) * std::exp(2.0 * random.normal(2 * i + 1)));
  return x;
}

inline bool same(const QuantizedTensor& a, const QuantizedTensor& b) {
  return a.codes == b.codes && a.scales == b.scales && a.inverse_scales == b.inverse_scales &&
         a.e8m0 == b.e8m0 && a.row_block == b.row_block && a.k_block == b.k_block;
}

/// Every kind of binary32 value, large and small tiles next to each other.
inline std::vector<float> any_bits(std::int64_t size) {
  const RandomStream random(3, "quantize_test bits");
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::bit_cast<float>(random.bits32(i));
    if (i % 4096 < 2048) x[i] = static_cast<float>(random.normal(i));
    if (i % 4096 < 512) x[i] = 0.0F * x[i];
  }
  return x;
}

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float value : values) words.push_back(bits_of(value));
  return words;
}

inline bool is_calibrated(const Recipe& recipe) {
  return recipe.source == ScaleSource::calibration || recipe.source == ScaleSource::momentum;
}

}  // namespace fp8lab::test
