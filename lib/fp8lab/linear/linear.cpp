#include "fp8lab/linear/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/linear/products.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::train {
namespace {

FloatMatrix float_matrix(const Matrix<float>& x) { return {x.values, x.rows, x.columns}; }

/// x with column c times multipliers[c], or divided by it.
Matrix<float> with_multipliers(const Matrix<float>& x, const std::vector<float>& multipliers,
                               bool divide) {
  Matrix<float> scaled = x;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    float* row = scaled.row(r);
    for (std::size_t c = 0; c < multipliers.size(); ++c)
      row[c] *= divide ? 1.0F / multipliers[c] : multipliers[c];
  }
  return scaled;
}

/// dy with what is beyond `times` its root mean square limited to that. Where that is no number,
/// nothing is: NaN and Inf are for the cast to show.
Matrix<float> limited(const Matrix<float>& dy, double times) {
  PairwiseSum squares;
  for (const float x : dy.values) squares.add(static_cast<double>(x) * static_cast<double>(x));
  const double mean =
      squares.total() / static_cast<double>(std::max<std::size_t>(1, dy.values.size()));
  const auto most = static_cast<float>(times * std::sqrt(mean));
  Matrix<float> result = dy;
  if (!std::isfinite(most)) return result;
  for (float& x : result.values)
    if (std::abs(x) > most) x = std::copysign(most, x);
  return result;
}

}  // namespace

void LinearProducts<double>::forward(const Matrix<double>& x, const Matrix<double>& w,
                                     Matrix<double>& y, const PassContext& context) {
  x_ = x;
  multiply(x.view(), w.view(), {y.values.data(), y.columns}, {y.rows, y.columns, x.columns},
           context.threads);
}

void LinearProducts<double>::backward(const Matrix<double>& dy, const Matrix<double>& w,
                                      Matrix<double>& dx, Matrix<double>& dw,
                                      const PassContext& context) {
  multiply(dy.view(), w.transposed_view(), {dx.values.data(), dx.columns},
           {dx.rows, dx.columns, dy.columns}, context.threads);
  multiply(dy.transposed_view(), x_.transposed_view(), {dw.values.data(), dw.columns},
           {dw.rows, dw.columns, dy.rows}, context.threads);
}

LinearProducts<float>::LinearProducts(const std::string& name, LinearRecipe recipe,
                                      std::vector<float> channel_multipliers)
    : recipe_(std::move(recipe)),
      multipliers_(std::move(channel_multipliers)),
      activation_(name + ".activation", recipe_.activation, recipe_.activation_for_wgrad, "wgrad"),
      weight_(name + ".weight", recipe_.weight, recipe_.weight_for_dgrad, "dgrad"),
      gradient_(name + ".gradient", recipe_.gradient, recipe_.gradient_for_wgrad, "wgrad") {
  const double clip = recipe_.gradient_clip;
  require(std::isfinite(clip) && clip >= 0.0, "gradient_clip", "a finite number >= 0",
          fmt::format("{:g}", clip));
  require(clip == 0.0 || is_fp8(recipe_.dgrad) || is_fp8(recipe_.wgrad), "gradient_clip",
          "0 without a cast of the gradient", fmt::format("{:g}", clip));
  for (const float m : multipliers_) {
    int exponent = 0;
    require(std::isfinite(m) && m > 0.0F && std::frexp(m, &exponent) == 0.5F, "channel_multipliers",
            "powers of two", fmt::format("{}", m));
  }
}

std::vector<OperandCast*> LinearProducts<float>::casts() {
  std::vector<OperandCast*> all;
  for (TwoCasts* operand : {&activation_, &weight_, &gradient_}) operand->list(all);
  return all;
}

void LinearProducts<float>::forward(const Matrix<float>& x, const Matrix<float>& w,
                                    Matrix<float>& y, const PassContext& context) {
  const FloatEnvironment environment;
  require(multipliers_.empty() || static_cast<std::int64_t>(multipliers_.size()) == x.columns,
          "channel_multipliers", counted(x.columns, "value"),
          fmt::format("{}", multipliers_.size()));
  Matrix<float> x_scaled;
  Matrix<float> w_scaled;
  if (!multipliers_.empty()) {
    x_scaled = with_multipliers(x, multipliers_, false);
    w_scaled = with_multipliers(w, multipliers_, true);
  }
  const Matrix<float>& x_used = multipliers_.empty() ? x : x_scaled;
  const Matrix<float>& w_used = multipliers_.empty() ? w : w_scaled;
  QuantizedTensor x_codes = activation_.cast(
      float_matrix(x_used), {is_fp8(recipe_.forward), is_fp8(recipe_.wgrad)}, context);
  weight_codes_ =
      weight_.cast(float_matrix(w_used), {is_fp8(recipe_.forward), is_fp8(recipe_.dgrad)}, context);
  if (is_fp8(recipe_.forward))
    fp8_product(recipe_.forward, codes_of(x_codes), codes_of(weight_codes_), y.values,
                context.threads, context.backend);
  else
    plain_product(recipe_, recipe_.forward, x_used, false, w_used, false, y, context.threads,
                  context.backend);
  if (!is_fp8(recipe_.wgrad)) x_ = x_used;
  x_transposed_ = std::move(x_codes.transposed);
  if (recipe_.bf16_outputs) round_to_bf16(y.values, context.threads);
}

void LinearProducts<float>::backward(const Matrix<float>& given_dy, const Matrix<float>& w,
                                     Matrix<float>& dx, Matrix<float>& dw,
                                     const PassContext& context) {
  const FloatEnvironment environment;
  Matrix<float> limited_dy;
  if (recipe_.gradient_clip > 0.0) limited_dy = limited(given_dy, recipe_.gradient_clip);
  const Matrix<float>& dy = recipe_.gradient_clip > 0.0 ? limited_dy : given_dy;
  QuantizedTensor dy_codes =
      gradient_.cast(float_matrix(dy), {is_fp8(recipe_.dgrad), is_fp8(recipe_.wgrad)}, context);
  if (is_fp8(recipe_.dgrad))
    fp8_product(recipe_.dgrad, codes_of(dy_codes), codes_of(*weight_codes_.transposed), dx.values,
                context.threads, context.backend);
  else
    plain_product(recipe_, recipe_.dgrad, dy, false,
                  multipliers_.empty() ? w : with_multipliers(w, multipliers_, true), true, dx,
                  context.threads, context.backend);
  if (is_fp8(recipe_.wgrad))
    fp8_product(recipe_.wgrad, codes_of(*dy_codes.transposed), codes_of(*x_transposed_), dw.values,
                context.threads, context.backend);
  else
    plain_product(recipe_, recipe_.wgrad, dy, true, x_, true, dw, context.threads, context.backend);
  if (!multipliers_.empty()) {
    dx = with_multipliers(dx, multipliers_, false);
    dw = with_multipliers(dw, multipliers_, true);
  }
  if (recipe_.bf16_outputs) round_to_bf16(dx.values, context.threads);
}

}  // namespace fp8lab::train
