#pragma once
// The product that FP8 is compared with.

#include <cstddef>
#include <span>
#include <vector>

namespace fp8lab::experiments {

/// d [m, n] of row-major a [m, k] and b [n, k], summed over k in FP64 in order.
inline std::vector<double> exact_product(std::span<const float> a, std::span<const float> b,
                                         std::size_t k) {
  std::vector<double> d;
  d.reserve(a.size() / k * (b.size() / k));
  for (std::size_t i = 0; i < a.size(); i += k)
    for (std::size_t j = 0; j < b.size(); j += k) {
      double sum = 0.0;
      for (std::size_t t = 0; t < k; ++t)
        sum += static_cast<double>(a[i + t]) * static_cast<double>(b[j + t]);
      d.push_back(sum);
    }
  return d;
}

}  // namespace fp8lab::experiments
