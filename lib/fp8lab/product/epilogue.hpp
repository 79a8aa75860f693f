#pragma once
// What a kernel does with its finished FP32 sum before it is cast: scales, bias, C, activation,
// output scale. One definition for `gemm`, `verify`, `identify` and Python.
//
// For the sum s of row i and column j, each line one rounding to binary32, nearest even, and left
// out where its operand is not there:
//
//   t = s * row_scales[i];  t = t * column_scales[j]
//   u = fma(alpha, t, bias[j])       alpha * t without a bias
//   v = fma(beta, C[i, j], u)
//   w = activation(v)                amax is the largest |w|
//   z = w * output_scale             what is cast to the output's format
//
// The order is that of CUTLASS 3's fusions `LinCombPerColBiasEltAct` and
// `ScaledLinCombPerColBiasEltActAmaxAux` (epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp:
// beta * C + (alpha * acc + bias), then the activation, then the scale of D), *from its source*;
// that other libraries round in the same places is *assumed*.

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
/// Throws `Error` that lists them.
Activation find_activation(std::string_view name);
/// No two libraries compute it with the same bits: `verify` allows a distance.
bool is_transcendental(Activation activation);

/// GELU and SiLU are the real function of the binary32 v, rounded to binary32 once: worked out in
/// FP64 with the C library's exp and erfc, which leaves at most 0.5001 ulp. -infinity gives NaN,
/// as the formulas do. SwiGLU rounds silu(v), then the product. A NaN stays one.
struct Epilogue {
  float alpha = 1.0F;
  std::span<const float> row_scales;     ///< [m], or none
  std::span<const float> column_scales;  ///< [n], or none
  std::span<const float> bias;           ///< [n], or none
  const float* c = nullptr;              ///< [m, n], or none
  float beta = 1.0F;                     ///< of `c`
  Activation activation = Activation::none;
  float slope = 0.01F;  ///< of leaky_relu
  /// How far a kernel's GELU or SiLU may be from ours, in units of the last place of binary32: of
  /// w for SiLU, of v for GELU, whose formulas add 1 to a number near -1. 4 fits functions of
  /// at most 2 ulp (CUDA's expf, erff and tanhf); tanh.approx and __expf need more.
  float activation_ulps = 4.0F;
  std::optional<float> output_scale;  ///< multiplies into the output's format

  /// Nothing is done.
  [[nodiscard]] bool empty() const;
  [[nodiscard]] bool gated() const { return activation == Activation::swiglu; }
};

/// Throws `Error` for vectors that do not fit sums [m, n], factors that are not finite, and a gate
/// over an odd number of columns.
void validate(const Epilogue& epilogue, std::int64_t m, std::int64_t n);

/// What is cast, row-major [m, n], or [m, n / 2] where gated.
struct Finished {
  std::vector<float> values;
  float amax = 0.0F;  ///< of w, the largest finite |w|
  /// How far a value may be off for `activation_ulps`, where asked for; empty where none may.
  std::vector<double> reach{};
};

/// Puts sums [m, n] through the epilogue. The bits do not depend on `threads`.
Finished finish(const Epilogue& epilogue, std::vector<float> sums, std::int64_t m, std::int64_t n,
                bool with_reach = false, int threads = 1);

/// The activation of v as a real function (of a gate: SiLU), in FP64.
double activation_value(const Epilogue& epilogue, double v);

/// `alpha 2, bias, gelu (within 4 ulp), output scale 0.5`; empty where nothing is done.
std::string describe(const Epilogue& epilogue);

/// v of one sum.
float before_activation(const Epilogue& epilogue, float sum, std::int64_t row, std::int64_t column,
                        std::int64_t n);

}  // namespace fp8lab
