#pragma once
// AdamW once more, independent of the library's: element by element, whole
// tensors at a time, with the arithmetic type as a parameter. With float it is
// the bit reference, with double the oracle.

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "training/optim/adamw.hpp"

namespace fp8lab {

/// `x` as a state of this format gives it back (no groups).
template <class Real>
std::vector<Real> stored(const StateFormat& f, const std::vector<Real>& x) {
  if (f.format == FormatId::f32) return x;
  const Format& format = fp8lab::format(f.format);
  double scale = 1.0;
  if (f.scaling == StateScaling::tensor) {
    double amax = 0.0;
    for (const Real value : x) amax = std::max(amax, std::abs(static_cast<double>(value)));
    if (amax > 0.0) scale = std::exp2(std::floor(std::log2(format.max_finite() / amax)));
  }
  const CastPolicy policy = format.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
  std::vector<Real> result;
  for (const Real value : x) {
    const auto scaled = static_cast<float>(static_cast<double>(value) * scale);
    result.push_back(static_cast<Real>(decode(format, encode(format, policy, scaled)) / scale));
  }
  return result;
}

template <class Real>
struct ReferenceAdamW {
  AdamWOptions options;
  std::vector<Real> w, m, v;
  int steps = 0;

  ReferenceAdamW(const AdamWOptions& o, const std::vector<float>& start)
      : options(o), m(start.size()), v(start.size()) {
    w = stored(o.master, std::vector<Real>(start.begin(), start.end()));
  }

  void step(const std::vector<float>& gradient, double lr) {
    ++steps;
    const std::vector<Real> g =
        stored(options.gradient, std::vector<Real>(gradient.begin(), gradient.end()));
    double power1 = 1.0;
    double power2 = 1.0;
    for (int i = 0; i < steps; ++i) {
      power1 *= static_cast<double>(options.beta1);
      power2 *= static_cast<double>(options.beta2);
    }
    const bool corrects = options.bias_correction;
    const Real size = static_cast<Real>(lr / (corrects ? 1.0 - power1 : 1.0));
    const Real root = static_cast<Real>(std::sqrt(corrects ? 1.0 - power2 : 1.0));
    const Real b1 = static_cast<Real>(options.beta1);
    const Real b2 = static_cast<Real>(options.beta2);
    const bool decoupled = options.decay == WeightDecay::decoupled;
    for (std::size_t i = 0; i < w.size(); ++i) {
      Real gi = g[i];
      if (decoupled)
        w[i] *= static_cast<Real>(1.0 - lr * options.weight_decay);
      else
        gi += static_cast<Real>(options.weight_decay) * w[i];
      m[i] = b1 * m[i] + (1 - b1) * gi;
      v[i] = b2 * v[i] + (1 - b2) * (gi * gi);
      w[i] -= size * (m[i] / (std::sqrt(v[i]) / root + static_cast<Real>(options.eps)));
    }
    w = stored(options.master, w);
    m = stored(options.m, m);
    v = stored(options.v, v);
  }
};

}  // namespace fp8lab
