#pragma once
// Matrix products under an accumulator model: D[m,n] = scales * A . B^T and C, with
// promotion, scale order and the place where C enters as the real kernels have them.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// Storage codes of a matrix, not owned. Element (row, k) is at
/// `row * row_stride + k * k_stride` elements; an element has the format's
/// storage width (1 byte for formats of at most 8 bits, 2 for FP16 and BF16, 4
/// for TF32 held in binary32). Row-major [rows, k]: row_stride = k, k_stride = 1.
struct CodeMatrix {
  FormatId format = FormatId::e4m3fn;
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 1;

  /// A dense row-major [rows, k] matrix of 8-bit codes. Throws if sizes differ.
  static CodeMatrix row_major(FormatId format, std::span<const std::uint8_t> codes,
                              std::int64_t rows, std::int64_t k);
};

/// The code at (row, k).
std::uint32_t code_at(const CodeMatrix& matrix, std::int64_t row, std::int64_t k);

/// What a code is multiplied by to get the value back (scale direction:
/// value = code * inverse_scale). Element (row, k) has the scale
/// `values[(row / row_block) * ceil(K / k_block) + k / k_block]`.
/// Empty `values` mean 1. Per tensor: row_block >= rows, k_block >= K. Rowwise:
/// 1 and k_block >= K. 1x128: 1 and 128. 128x128: 128 and 128. MX: 1 and 32.
struct InverseScales {
  std::span<const float> values;
  std::int64_t row_block = 1;
  std::int64_t k_block = 0;  ///< 0 means all of K
  /// Of scales that the instruction itself applies: e8m0fnu, or e4m3fn for UE4M3. f32: not
  /// said, which means e8m0fnu for tiles of 32 terms and UE4M3 for tiles of 16.
  FormatId format = FormatId::f32;
  /// The second level of two-level scales (NVFP4): value = code * scale * tensor_scale. Where the
  /// instruction applies the block scales, the tensor scales of both operands scale its sum, in
  /// `scale_order`, as alpha does in a library's call; elsewhere every scale is multiplied by it
  /// first, rounded to nearest even.
  float tensor_scale = 1.0F;

  [[nodiscard]] bool empty() const { return values.empty(); }
};

/// In which order FP32 arithmetic applies the scales of a promoted partial sum.
enum class ScaleOrder : std::uint8_t {
  product_then_fma,   ///< final = fma(s_a * s_b, acc, final): DeepGEMM as nvcc compiles it
  product_then_add,   ///< final = final + (s_a * s_b) * acc, three roundings
  a_then_fma_b,       ///< final = fma(acc * s_a, s_b, final): cuBLAS blockwise
  b_then_fma_a,       ///< final = fma(acc * s_b, s_a, final): the same with A and B exchanged
  a_then_b_then_add,  ///< final = final + (acc * s_a) * s_b: Triton's dot(a, b) * s_a * s_b
};
/// All of them.
std::span<const ScaleOrder> scale_orders();
std::string_view to_string(ScaleOrder order);
/// Throws `Error` that lists them.
ScaleOrder find_scale_order(std::string_view name);

/// Where C enters a product.
enum class CPlacement : std::uint8_t {
  /// Nobody said. Right where there is one place only: without promotion and without
  /// scales, where it means `accumulator`. Refused elsewhere.
  unnamed,
  /// The instruction's own c: what the (first) accumulator starts from, before any
  /// scale. D = scales * (C + A . B^T) with the model's rounding.
  accumulator,
  /// What the FP32 `final` starts from: each promoted partial sum, scaled if the scales
  /// change along K, is added to it in order. Needs promotion, and no scale of the whole sum.
  promoted_sum,
  /// Added to the finished FP32 sum, in the units of D: D = scales * A . B^T + C. Scales of
  /// the whole sum are applied in `scale_order` with C in the place of `final` (*assumed* of
  /// epilogues); else it is one FP32 addition to nearest even.
  epilogue,
};
std::string_view to_string(CPlacement placement);
/// accumulator, promoted_sum or epilogue. Throws `Error`.
CPlacement find_c_placement(std::string_view name);

/// The inputs of one product. A [m,k], B [n,k] (both K-major in meaning; any
/// strides), C [m,n] row-major binary32, or null (none).
///
/// promotion_interval N_C > 0 (a multiple of the model's terms): the
/// accumulator restarts from +0 every N_C terms and each partial sum is added
/// to an FP32 `final` (nearest even). N_C = 0: one accumulator for all of K.
///
/// Scales that change along K need a promotion_interval that divides their
/// k_block; each partial sum is then scaled into `final` in `scale_order`. Scales
/// that do not change along K are applied once, to the whole sum, in the same
/// order. `c_enters` says where C comes in: a C with promotion or scales needs a name,
/// since the bits depend on it. A NaN is always kCanonicalNan.
///
/// A block-scaled instruction (mxf8f6f4, mxf4nvf4) applies scales of its own block lengths, 32 or
/// 16 terms, itself: they enter its alignment, need no promotion, and are no scales in the sense
/// of the paragraph above. Each must be a value of their format. Other scales of such an
/// instruction are applied after it, as those of all others; without block scales they are 1.
struct GemmProblem {
  AccumulatorModel model;
  CodeMatrix a;
  CodeMatrix b;
  const float* c = nullptr;
  InverseScales a_scales;
  InverseScales b_scales;
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  CPlacement c_enters = CPlacement::unnamed;
};

/// Whether the instruction applies these scales itself.
bool applies_scales(const GemmProblem& problem);

/// Where C of this problem enters: `c_enters`, or `accumulator` where that is unnamed.
CPlacement c_placement(const GemmProblem& problem);

/// The places that C of a problem with these scales and this promotion can have.
std::vector<CPlacement> possible_c_placements(const GemmProblem& problem);

/// Throws `Error` naming the first argument that does not fit.
void validate(const GemmProblem& problem, std::size_t output_size);

/// D = the product, row-major [m,n], one scalar dot product an element. The
/// specification of every faster kernel. m, n, k may be 0 (k = 0 gives C).
void gemm_reference(const GemmProblem& problem, std::span<float> d, int threads = 1);

/// The same bits, as fast as this machine allows, on `current_target()`.
/// threads 0: all of OpenMP's. The caller's rounding mode and flush-to-zero
/// setting neither matter nor change. How each model is computed, and what
/// falls back to the reference, is in README.md beside this header.
void gemm(const GemmProblem& problem, std::span<float> d, int threads = 0);

/// The same on a given target (`scalar` is gemm_reference). Throws `Error` if
/// this machine lacks it.
void gemm_with_target(const GemmProblem& problem, std::span<float> d, Target target,
                      int threads = 0);

/// How vector targets compute the problem: a method of the table in README.md beside this header
/// ("fused float", "two stages" ...), or "reference" where no kernel exists. Data that a kernel
/// does not take may run on another one.
std::string_view gemm_method(const GemmProblem& problem);

}  // namespace fp8lab
