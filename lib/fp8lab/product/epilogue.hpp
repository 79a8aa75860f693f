#pragma once
// The operations of a kernel between the finished FP32 sum and the cast: scales, bias, C,
// activation, output scale. `gemm`, `verify`, `identify` and Python share this definition.
//
// For the sum s of row i and column j. Each line is rounded once to binary32, to nearest even.
// Lines without an operand are left out.
//
//   t = s * row_scales[i];  t = t * column_scales[j]
//   u = fma(alpha, t, bias[j])       alpha * t without a bias
//   v = fma(beta, C[i, j], u)
//   w = activation(v)                amax is the largest |w|
//   z = w * output_scale             the value that is cast to the output's format
//
// The order is that of CUTLASS 3's fusions `LinCombPerColBiasEltAct` and
// `ScaledLinCombPerColBiasEltActAmaxAux` (epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp:
// beta * C + (alpha * acc + bias), then the activation, then the scale of D), *read* in its source.
// It is *assumed* that other libraries round in the same places.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

enum class Activation : std::uint8_t {
  none,
  relu,        ///< v > 0 ? v : +0
  leaky_relu,  ///< v > 0 ? v : v * slope
  gelu,        ///< v * (1 + erf(v / sqrt 2)) / 2
  gelu_tanh,   ///< v * (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))) / 2
  silu,        ///< v / (1 + exp(-v))
  swiglu,      ///< silu(v[i, j]) * v[i, n/2 + j]: the output has half the columns
};
std::span<const Activation> activations();
std::string_view to_string(Activation activation);
/// The activation called `name`. Throws `Error` that lists them.
Activation find_activation(std::string_view name);
/// Whether libraries compute it with different bits, so that `verify` allows a distance.
bool is_transcendental(Activation activation);

/// GELU and SiLU are the real function of the binary32 v, rounded to binary32 once. They are
/// computed in FP64 with the C library's exp and erfc, with an error of at most 0.5001 ulp.
/// -infinity gives NaN, as in the formulas. SwiGLU rounds silu(v), then the product. NaN gives NaN.
struct Epilogue {
  float alpha = 1.0F;
  std::span<const float> row_scales;     ///< [m], or empty
  std::span<const float> column_scales;  ///< [n], or empty
  std::span<const float> bias;           ///< [n], or empty
  const float* c = nullptr;              ///< [m, n], or null
  float beta = 1.0F;                     ///< multiplies `c`
  Activation activation = Activation::none;
  float slope = 0.01F;  ///< for leaky_relu
  /// The allowed distance between a kernel's GELU or SiLU and this one, in ulps of binary32: of w
  /// for SiLU, and of v for GELU, whose formulas add 1 to a number near -1. 4 is enough for
  /// functions with at most 2 ulp (CUDA's expf, erff and tanhf); tanh.approx and __expf need more.
  float activation_ulps = 4.0F;
  std::optional<float> output_scale;  ///< multiplies w before the cast

  /// Whether the epilogue does nothing.
  [[nodiscard]] bool empty() const;
  [[nodiscard]] bool gated() const { return activation == Activation::swiglu; }
};

/// Throws `Error` for vectors that do not fit sums [m, n], factors that are not finite, and a gated
/// activation of an odd number of columns.
void validate(const Epilogue& epilogue, std::int64_t m, std::int64_t n);

/// The values before the cast, row-major [m, n], or [m, n / 2] if gated.
struct Finished {
  std::vector<float> values;
  float amax = 0.0F;  ///< the largest finite |w|
  /// The distance that `activation_ulps` allows each value, on request; empty if it is 0.
  std::vector<double> reach{};
};

/// Applies the epilogue to sums [m, n]. The bits do not depend on `threads`.
Finished finish(const Epilogue& epilogue, std::vector<float> sums, std::int64_t m, std::int64_t n,
                bool with_reach = false, int threads = 1);

/// The activation of v as a real function, in FP64; SiLU for SwiGLU.
double activation_value(const Epilogue& epilogue, double v);

/// `alpha 2, bias, gelu (within 4 ulp), output scale 0.5`; empty if the epilogue does nothing.
std::string describe(const Epilogue& epilogue);

/// v for one sum, as in the formulas above.
float before_activation(const Epilogue& epilogue, float sum, std::int64_t row, std::int64_t column,
                        std::int64_t n);

}  // namespace fp8lab
