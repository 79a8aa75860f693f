// Kernels that sum products in a way of their own, for `reveal`.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/reveal/reveal.hpp"

namespace fp8lab::test {

using Sum = std::function<float(const std::vector<float>&)>;

/// A kernel of E4M3 codes whose every output is `sum` of its products, which are exact.
inline ProbeKernel kernel_of(const Sum& sum) {
  return [sum](const ProbeCalls& calls) {
    const std::span<const float> values = decode_table(FormatId::e4m3fn);
    const auto value = [&](const std::vector<std::byte>& codes, std::int64_t at) {
      return values[static_cast<std::size_t>(codes[static_cast<std::size_t>(at)])];
    };
    ProbeOutputs out;
    for (std::int64_t call = 0; call < calls.calls; ++call)
      for (std::int64_t i = 0; i < calls.m; ++i)
        for (std::int64_t j = 0; j < calls.n; ++j) {
          std::vector<float> products;
          for (std::int64_t k = 0; k < calls.k; ++k)
            products.push_back(value(calls.a, (call * calls.m + i) * calls.k + k) *
                               value(calls.b, (call * calls.n + j) * calls.k + k));
          out.d.push_back(sum(products));
        }
    return out;
  };
}

inline float in_order(const std::vector<float>& p) {
  float sum = 0.0F;
  for (const float one : p) sum += one;
  return sum;
}

inline float backwards(const std::vector<float>& p) {
  return in_order(std::vector<float>(p.rbegin(), p.rend()));
}

}  // namespace fp8lab::test
