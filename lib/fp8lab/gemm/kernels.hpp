#pragma once
// The vector kernels behind gemm, and the packed operands that they read.
// README.md of this folder explains the method; every kernel equals
// gemm_reference bit for bit on the inputs that plan.hpp lets through.

#include <cstdint>

#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::gemm_detail {

/// Types that go with the real type a kernel computes in: biased exponents of
/// a quarter of its width, and a word of signs as wide as it.
template <typename T>
struct PackedTypes;
template <>
struct PackedTypes<float> {
  using Exponent = std::uint8_t;
  using Word = std::uint32_t;
};
template <>
struct PackedTypes<double> {
  using Exponent = std::uint16_t;
  using Word = std::uint64_t;
};

/// Some steps of some rows of A times a panel of B of the kernel's width.
///
/// a [steps][rows][terms] with a_exponents alike (each replicated to fill 32
/// bits) and a_signs [steps][rows]; b [steps][terms][width] with b_exponents
/// alike and b_signs [steps][width]; bit t of a sign word belongs to term t.
/// Exponents and signs may be null for kernels that need none.
/// state [rows][width] is what the accumulators hold between steps.
template <typename T>
struct StepBlock {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  const T* a = nullptr;
  const std::uint32_t* a_exponents = nullptr;
  const typename PackedTypes<T>::Word* a_signs = nullptr;
  const T* b = nullptr;
  const typename PackedTypes<T>::Exponent* b_exponents = nullptr;
  const typename PackedTypes<T>::Word* b_signs = nullptr;
  T* state = nullptr;
};

/// What of the model the kernels need.
struct StepRounding {
  int alignment_fraction_bits = 13;
  int output_fraction_bits = 13;
  bool nearest_even = false;  ///< exact steps only: binary32 nearest even instead of truncation
  bool half_output = false;   ///< fused float steps only: nearest even to FP16
};

/// One FP32 operation on a row of the panel: final = scale_into(order, partial,
/// a_scale, b_scales, final), or final + partial if b_scales is null; NaN canonical.
struct Combine {
  ScaleOrder order = ScaleOrder::product_then_fma;
  const float* partial = nullptr;
  float a_scale = 1.0F;
  const float* b_scales = nullptr;
  float* final = nullptr;
};

/// Where the fields of an 8-bit code are.
struct CodeLayout {
  int mantissa_bits = 0;
  int bias = 0;
  int sign_bit = 7;
};

/// Codes of one step of a panel, [terms][width], and where their float values,
/// biased exponents and sign words go. NaN and Inf codes give some finite value.
struct DecodeStep {
  const std::uint8_t* codes = nullptr;
  std::int64_t terms = 0;
  CodeLayout layout;
  bool fused = true;  ///< else plain values, zeros as zeros, no exponents or signs
  float* values = nullptr;
  std::uint8_t* exponents = nullptr;
  std::uint32_t* signs = nullptr;
};

/// `count` codes of A for the fused float kernel; `values` and `exponents` have
/// room for the last vector's excess, and so do the codes.
struct DecodeRows {
  const std::uint8_t* codes = nullptr;
  std::int64_t count = 0;
  CodeLayout layout;
  float* values = nullptr;
  std::uint32_t* exponents = nullptr;
};

/// Codes of `columns` rows of B, `terms` from each, to [terms][width].
struct TransposeStep {
  const std::uint8_t* from = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 1;
  std::int64_t columns = 0;
  std::int64_t terms = 0;
  std::int64_t width = 0;
  std::uint8_t* codes = nullptr;
};

/// The kernels of one target. Those of the first group must run with rounding
/// toward zero (see ScopedRounding), the others with rounding to nearest.
struct KernelTable {
  std::int64_t float_width;   ///< columns of a panel of float kernels
  std::int64_t double_width;  ///< columns of a panel of double kernels

  void (*fused_float)(const StepBlock<float>&, const StepRounding&);
  void (*fused_double)(const StepBlock<double>&, const StepRounding&);
  void (*exact_steps)(const StepBlock<double>&, const StepRounding&);
  /// out[i] = sum[i] + c[i], rounded once to binary32, nearest even; count is a
  /// multiple of the double panel's width.
  void (*round_exact)(const double* sum, const float* c, float* out, std::int64_t count);

  void (*plain_float)(const StepBlock<float>&);
  void (*plain_double)(const StepBlock<double>&);
  void (*combine)(const Combine&, std::int64_t width);
  void (*transpose_step)(const TransposeStep&);
  void (*decode_step)(const DecodeStep&);
  void (*decode_rows)(const DecodeRows&);
  /// Whether any of `count` codes (a multiple of the float panel's width) has its
  /// low seven bits above `largest`, or, where `nan` is not 0, is that code.
  bool (*has_special)(const std::uint8_t* codes, std::int64_t count, std::uint8_t largest,
                      std::uint8_t nan);
};

/// What the accumulators of the fused kernels hold instead of zero, so that a
/// sign bit has something to act on: small enough to vanish in any alignment.
inline constexpr float kTinyFloat = 0x1p-110F;
inline constexpr double kTinyDouble = 0x1p-500;

/// What B is multiplied by for the fused kernels, so that no negative product
/// is a whole number of units.
inline constexpr float kStretchFloat = 1.0F + 0x1p-19F;
inline constexpr double kStretchDouble = 1.0 + 0x1p-40;

/// Biases that the packed exponents carry. A zero operand has exponent field 0.
inline constexpr int kFloatBiasA = 63;
inline constexpr int kFloatBiasB = 64;
inline constexpr int kDoubleBiasA = 511;
inline constexpr int kDoubleBiasB = 512;
/// No alignment exponent is below these (biased): what a step without products uses.
inline constexpr int kFloatExponentFloor = 127 - 60;
inline constexpr int kDoubleExponentFloor = 1023 - 300;

/// The widest panel of any target.
inline constexpr std::int64_t kMaxWidth = 64;

/// The kernels of `target`; null for the scalar target, which has none.
const KernelTable* kernel_table(Target target);

}  // namespace fp8lab::gemm_detail
