#include "fp8lab/verify/epilogue_budget.hpp"

#include <algorithm>
#include <cmath>

namespace fp8lab {
namespace {

constexpr double kSteepest = 1.13;  // of GELU's slope; SiLU's is below 1.1

void round_once(BoundedSum& x) {
  x.error += (std::abs(x.value) + x.error) * kFloatStep + kTiny;
  x.check_range(FormatId::f32);
}

void multiply(BoundedSum& x, double by) {
  x.value *= by;
  x.error *= std::abs(by);
}

double slope_bound(const Epilogue& e) {
  if (is_transcendental(e.activation)) return kSteepest;
  if (e.activation == Activation::leaky_relu)
    return std::max(1.0, std::abs(static_cast<double>(e.slope)));
  return 1.0;
}

}  // namespace

BoundedSum bounded_before_activation(const Epilogue& e, BoundedSum x, std::int64_t row,
                                     std::int64_t column, std::int64_t n) {
  const auto scale = [&](double by) {
    multiply(x, by);
    round_once(x);
  };
  if (!e.row_scales.empty()) scale(e.row_scales[static_cast<std::size_t>(row)]);
  if (!e.column_scales.empty()) scale(e.column_scales[static_cast<std::size_t>(column)]);
  if (!e.bias.empty() || e.alpha != 1.0F) {
    multiply(x, e.alpha);
    if (!e.bias.empty()) x.value += e.bias[static_cast<std::size_t>(column)];
    round_once(x);
  }
  if (e.c != nullptr) {
    x.value += static_cast<double>(e.beta) * static_cast<double>(e.c[row * n + column]);
    round_once(x);
  }
  return x;
}

BoundedSum bounded_activation(const Epilogue& e, const BoundedSum& v, const BoundedSum* up) {
  BoundedSum w = v;
  w.value = activation_value(e, v.value);
  w.error = v.error * slope_bound(e);
  if (e.activation != Activation::none) round_once(w);
  if (is_transcendental(e.activation)) {
    // A unit in the last place is at most two steps.
    const double unit =
        2.0 * kFloatStep * std::max(std::abs(v.value) + v.error, std::abs(w.value) + w.error);
    w.error += static_cast<double>(e.activation_ulps) * unit + kTiny;
  }
  if (up != nullptr) {
    w.error = w.error * (std::abs(up->value) + up->error) + std::abs(w.value) * up->error;
    w.value *= up->value;
    w.overflows |= up->overflows;
    round_once(w);
  }
  if (e.output_scale) {
    multiply(w, *e.output_scale);
    round_once(w);
  }
  return w;
}

}  // namespace fp8lab
