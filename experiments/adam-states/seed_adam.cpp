#include "adam-states/seed_adam.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 3> kNames{"as written", "codes read as values",
                                                 "scale read back"};
constexpr float kBeta1 = 0.9F;
constexpr float kOneMinusBeta1 = static_cast<float>(1.0 - 0.9);
constexpr float kBeta2 = 0.95F;
constexpr float kOneMinusBeta2 = static_cast<float>(1.0 - 0.95);

float half(float x) { return static_cast<float>(round_trip(format(FormatId::f16), kMlDtypes, x)); }

/// FP8Tensor.quantize: codes as values, and their scale.
struct Fp8Tensor {
  std::vector<float> data;
  float scale = 1.0F;
};

Fp8Tensor quantize_as_listed(const std::vector<float>& x) {
  Fp8Tensor q;
  q.scale = 448.0F / std::max(amax(x, false), 1e-12F);
  for (const float value : x)
    q.data.push_back(
        static_cast<float>(round_trip(format(FormatId::e4m3fn), kMlDtypes, value * q.scale)));
  return q;
}

}  // namespace

std::string_view to_string(SeedAdamVariant variant) {
  return kNames[static_cast<std::size_t>(variant)];
}

SeedAdam::SeedAdam(SeedAdamVariant variant, const std::vector<float>& weights, float lr)
    : variant_(variant), lr_(lr), m_(weights.size()), v_(weights.size()) {
  for (const float w : weights) weights_.push_back(half(w));
}

void SeedAdam::step(const std::vector<float>& gradient) {
  require(!m_is_object_, "s['m'].float()", "a tensor",
          "an FP8Tensor, which has no float(): the listing ends in its second step");
  const Fp8Tensor grad = quantize_as_listed(gradient);
  std::vector<float> m(m_.size());
  for (std::size_t i = 0; i < m.size(); ++i)
    m[i] = kBeta1 * (m_[i] / m_scale_) + kOneMinusBeta1 * (grad.data[i] / grad.scale);
  Fp8Tensor stored = quantize_as_listed(m);
  m_ = std::move(stored.data);
  if (variant_ == SeedAdamVariant::scale_read_back) m_scale_ = stored.scale;
  m_is_object_ = variant_ == SeedAdamVariant::as_written;
  for (std::size_t i = 0; i < m.size(); ++i) {
    const float g = grad.data[i] / grad.scale;
    const float v = kBeta2 * v_[i] + kOneMinusBeta2 * (g * g);
    v_[i] = half(v);
    const float update = half(m[i] / (std::sqrt(v) + 1e-8F));
    const float moved = half(weights_[i] - half(lr_ * update));
    lost_ += update != 0.0F && moved == weights_[i] ? 1 : 0;
    ++updates_;
    weights_[i] = moved;
  }
}

double SeedAdam::lost_share() const {
  return updates_ == 0 ? 0.0 : static_cast<double>(lost_) / static_cast<double>(updates_);
}

}  // namespace fp8lab::experiments
