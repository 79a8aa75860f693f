#include "fp8lab/product/epilogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

constexpr std::array kActivations{Activation::none,  Activation::relu,      Activation::leaky_relu,
                                  Activation::gelu,  Activation::gelu_tanh, Activation::silu,
                                  Activation::swiglu};
constexpr std::array<std::string_view, kActivations.size()> kNames{
    "none", "relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "swiglu"};

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

/// (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)), without the cancellation near -1.
double gelu_tanh(double x) {
  const double z = std::sqrt(2.0 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * z));
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

float activated(const Epilogue& e, float v) {
  if (std::isnan(v)) return v;
  if (e.activation == Activation::leaky_relu) return v > 0.0F ? v : v * e.slope;
  return static_cast<float>(activation_value(e, v));
}

/// The unit in the last place of binary32 at x; 0 for what is not finite.
double ulp_at(double x) {
  if (!std::isfinite(x)) return 0.0;
  constexpr int kLeast = -126;
  const int exponent = x == 0.0 ? kLeast : std::max(std::ilogb(x), kLeast);
  return std::ldexp(1.0, exponent - 23);
}

/// How far activation(v) = w may be off.
double reach_of(const Epilogue& e, float v, float w) {
  const bool cancels = e.activation == Activation::gelu || e.activation == Activation::gelu_tanh;
  return static_cast<double>(e.activation_ulps) * ulp_at(cancels ? v : w);
}

void require_length(std::string_view name, std::span<const float> values, std::int64_t expected,
                    std::string_view shape) {
  require(values.empty() || static_cast<std::int64_t>(values.size()) == expected, name,
          fmt::format("{} = [{}]", shape, expected), fmt::format("[{}]", values.size()));
}

void require_finite(std::string_view name, float x) {
  require(std::isfinite(x), name, "a finite number", fmt::format("{}", x));
}

/// One row of sums becomes one row of values.
class RowOfOutput {
 public:
  RowOfOutput(const Epilogue& e, std::int64_t n) : e_(e), n_(n) {}

  void finish(const float* sums, std::int64_t row, float* values, double* reach,
              float& amax) const {
    const std::int64_t columns = e_.gated() ? n_ / 2 : n_;
    for (std::int64_t j = 0; j < columns; ++j) {
      const float v = before_activation(e_, sums[j], row, j, n_);
      float w = activated(e_, v);
      double off = reach == nullptr ? 0.0 : reach_of(e_, v, w);
      if (e_.gated()) {
        const float up = before_activation(e_, sums[columns + j], row, columns + j, n_);
        w *= up;
        // One rounding may fall the other way, too.
        if (reach != nullptr) off = off * std::abs(static_cast<double>(up)) + ulp_at(w);
      }
      if (std::isfinite(w)) amax = std::max(amax, std::abs(w));
      values[j] = canonical(e_.output_scale ? w * *e_.output_scale : w);
      if (reach == nullptr) continue;
      if (e_.output_scale)
        off = off * std::abs(static_cast<double>(*e_.output_scale)) + ulp_at(values[j]);
      reach[j] = std::isfinite(off) ? off : 0.0;
    }
  }

 private:
  const Epilogue& e_;
  std::int64_t n_;
};

}  // namespace

std::span<const Activation> activations() { return kActivations; }

std::string_view to_string(Activation activation) {
  return kNames[static_cast<std::size_t>(activation)];
}

Activation find_activation(std::string_view name) {
  for (const Activation one : kActivations)
    if (to_string(one) == name) return one;
  throw Error("activation", fmt::format("one of {}", fmt::join(kNames, ", ")),
              fmt::format("'{}'", name));
}

double activation_value(const Epilogue& e, double v) {
  const FloatEnvironment environment;
  switch (e.activation) {
    case Activation::relu:
      return v > 0.0 ? v : 0.0;
    case Activation::leaky_relu:
      return v > 0.0 ? v : v * static_cast<double>(e.slope);
    case Activation::gelu:
      return gelu(v);
    case Activation::gelu_tanh:
      return gelu_tanh(v);
    case Activation::silu:
    case Activation::swiglu:
      return silu(v);
    case Activation::none:
      break;
  }
  return v;
}

std::string describe(const Epilogue& e) {
  std::vector<std::string> parts;
  if (!e.row_scales.empty()) parts.emplace_back("row scales");
  if (!e.column_scales.empty()) parts.emplace_back("column scales");
  if (e.alpha != 1.0F) parts.push_back(fmt::format("alpha {}", e.alpha));
  if (!e.bias.empty()) parts.emplace_back("bias");
  if (e.c != nullptr) parts.push_back(fmt::format("beta {}", e.beta));
  if (e.activation != Activation::none) parts.emplace_back(to_string(e.activation));
  if (e.activation == Activation::leaky_relu) parts.back() += fmt::format(" {}", e.slope);
  if (is_transcendental(e.activation))
    parts.back() += fmt::format(" (within {} ulp)", e.activation_ulps);
  if (e.output_scale) parts.push_back(fmt::format("output scale {}", *e.output_scale));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_transcendental(Activation activation) { return activation >= Activation::gelu; }

bool Epilogue::empty() const {
  return alpha == 1.0F && row_scales.empty() && column_scales.empty() && bias.empty() &&
         c == nullptr && activation == Activation::none && !output_scale;
}

void validate(const Epilogue& e, std::int64_t m, std::int64_t n) {
  require_length("row_scales", e.row_scales, m, "[m]");
  require_length("column_scales", e.column_scales, n, "[n]");
  require_length("bias", e.bias, n, "[n]");
  require_finite("alpha", e.alpha);
  require_finite("beta", e.beta);
  require_finite("slope", e.slope);
  if (e.output_scale) require_finite("output_scale", *e.output_scale);
  require(e.activation_ulps >= 0.0F && e.activation_ulps <= 1048576.0F, "activation_ulps",
          "0 to 2^20", fmt::format("{}", e.activation_ulps));
  require(!e.gated() || n % 2 == 0, "activation",
          "an even number of columns for swiglu: gates, then the columns that they multiply",
          fmt::format("n = {}", n));
}

float before_activation(const Epilogue& e, float sum, std::int64_t row, std::int64_t column,
                        std::int64_t n) {
  const FloatEnvironment environment;
  const auto i = static_cast<std::size_t>(row);
  const auto j = static_cast<std::size_t>(column);
  float t = sum;
  if (!e.row_scales.empty()) t *= e.row_scales[i];
  if (!e.column_scales.empty()) t *= e.column_scales[j];
  if (!e.bias.empty())
    t = std::fma(e.alpha, t, e.bias[j]);
  else if (e.alpha != 1.0F)
    t *= e.alpha;
  if (e.c != nullptr) t = std::fma(e.beta, e.c[row * n + column], t);
  return canonical(t);
}

Finished finish(const Epilogue& e, std::vector<float> sums, std::int64_t m, std::int64_t n,
                bool with_reach, int threads) {
  const FloatEnvironment environment;
  Finished result;
  if (e.empty()) {
    for (const float w : sums)
      if (std::isfinite(w)) result.amax = std::max(result.amax, std::abs(w));
    result.values = std::move(sums);
    return result;
  }
  const std::int64_t columns = e.gated() ? n / 2 : n;
  const auto size = static_cast<std::size_t>(m * columns);
  result.values.resize(size);
  const bool reaching = with_reach && is_transcendental(e.activation);
  if (reaching) result.reach.resize(size);
  std::vector<float> amax(static_cast<std::size_t>(m), 0.0F);
  const RowOfOutput row_of_output(e, n);
  parallel_for(m, team_size(threads), [&](std::int64_t i) {
    row_of_output.finish(sums.data() + i * n, i, result.values.data() + i * columns,
                         reaching ? result.reach.data() + i * columns : nullptr,
                         amax[static_cast<std::size_t>(i)]);
  });
  for (const float one : amax) result.amax = std::max(result.amax, one);
  return result;
}

}  // namespace fp8lab
