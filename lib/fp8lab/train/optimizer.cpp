#include "fp8lab/train/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fp8lab/core/error.hpp"

namespace fp8lab::train {
namespace {

constexpr const char* kSteps = "optimizer.steps";

/// Power by repeated multiplication: the same bits for every C library.
double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (std::int64_t i = 0; i < exponent; ++i) result *= base;
  return result;
}

const TensorView& find(std::span<const NamedTensor> tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  require(found != tensors.end(), name, "a tensor of the checkpoint", "none");
  return found->tensor;
}

void copy_from(std::span<const NamedTensor> tensors, const std::string& name,
               std::vector<float>& to) {
  const TensorView& from = find(tensors, name);
  require(from.type == ElementType::f32 && from.bytes.size() == to.size() * sizeof(float), name,
          fmt::format("{} binary32 values", to.size()), fmt::format("{} bytes", from.bytes.size()));
  std::memcpy(to.data(), from.bytes.data(), from.bytes.size());
}

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, std::span<const OptimizedTensor> tensors)
    : options_(options) {
  for (const OptimizedTensor& t : tensors) {
    State s{t.name, t.shape, t.decays, {t.values.begin(), t.values.end()}, {}, {}};
    s.m.resize(s.w.size());
    s.v.resize(s.w.size());
    states_.push_back(std::move(s));
  }
}

void Optimizer::step(std::span<const std::span<const float>> gradients, double lr, int threads) {
  require(gradients.size() == states_.size(), "gradients", fmt::format("{}", states_.size()),
          fmt::format("{}", gradients.size()));
  ++steps_;
  const auto beta1 = static_cast<double>(options_.beta1);
  const auto beta2 = static_cast<double>(options_.beta2);
  const auto step_size = static_cast<float>(lr / (1.0 - power(beta1, steps_)));
  const auto root = static_cast<float>(std::sqrt(1.0 - power(beta2, steps_)));
  const auto shrunk = static_cast<float>(1.0 - lr * options_.weight_decay);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& s = states_[i];
    const std::span<const float> g = gradients[i];
    require(g.size() == s.w.size(), s.name, fmt::format("{} gradients", s.w.size()),
            fmt::format("{}", g.size()));
    const float keep = s.decays ? shrunk : 1.0F;
    const auto count = static_cast<std::int64_t>(g.size());
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t e = 0; e < count; ++e) {
      const auto j = static_cast<std::size_t>(e);
      s.m[j] = options_.beta1 * s.m[j] + (1.0F - options_.beta1) * g[j];
      s.v[j] = options_.beta2 * s.v[j] + (1.0F - options_.beta2) * (g[j] * g[j]);
      s.w[j] = s.w[j] * keep - step_size * (s.m[j] / (std::sqrt(s.v[j]) / root + options_.eps));
    }
  }
}

void Optimizer::copy_weights(std::size_t i, std::span<float> out) const {
  std::copy(states_[i].w.begin(), states_[i].w.end(), out.begin());
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  for (const State& s : states_) {
    all.push_back({s.name + ".master", view_of<float>(ElementType::f32, s.shape, s.w)});
    all.push_back({s.name + ".m", view_of<float>(ElementType::f32, s.shape, s.m)});
    all.push_back({s.name + ".v", view_of<float>(ElementType::f32, s.shape, s.v)});
  }
  all.push_back({kSteps, view_of<std::int64_t>(ElementType::i64, {}, {&steps_, 1})});
  return all;
}

void Optimizer::restore(std::span<const NamedTensor> tensors) {
  for (State& s : states_) {
    copy_from(tensors, s.name + ".master", s.w);
    copy_from(tensors, s.name + ".m", s.m);
    copy_from(tensors, s.name + ".v", s.v);
  }
  const TensorView& steps = find(tensors, kSteps);
  require(steps.bytes.size() == sizeof steps_, kSteps, "one 64-bit integer",
          fmt::format("{} bytes", steps.bytes.size()));
  std::memcpy(&steps_, steps.bytes.data(), sizeof steps_);
}

}  // namespace fp8lab::train
