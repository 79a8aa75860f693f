#pragma once
// Matrix products under an accumulator model: D[m,n] = scales * A . B^T and C. Promotion, the
// order of scales and the place where C enters are those of real kernels.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// A view of the storage codes of a matrix [rows, k]. Element (row, k) is at offset
/// `row * row_stride + k * k_stride`, counted in elements. An element has the storage
/// width of its format: 1 byte for formats of at most 8 bits, 2 for FP16 and BF16, 4 for
/// TF32, which is held in binary32. For a row-major matrix row_stride = k, k_stride = 1.
struct CodeMatrix {
  FormatId format = FormatId::e4m3fn;
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 1;

  /// A dense row-major matrix of 8-bit codes. Throws `Error` unless `codes` has rows * k elements.
  static CodeMatrix row_major(FormatId format, std::span<const std::uint8_t> codes,
                              std::int64_t rows, std::int64_t k);
};

/// The code at (row, k). The position is not checked.
std::uint32_t code_at(const CodeMatrix& matrix, std::int64_t row, std::int64_t k);

/// Inverse scales of a matrix, one for each tile. Scale direction: value = code *
/// inverse_scale. The scale of element (row, k) is
/// `values[(row / row_block) * ceil(K / k_block) + k / k_block]`. If `values` is empty,
/// every scale is 1. Tiles [row_block, k_block]: [rows, K] or larger for one scale per
/// tensor, [1, K] for one per row, [1, 128], [128, 128], and [1, 32] for MX.
struct InverseScales {
  std::span<const float> values;
  std::int64_t row_block = 1;
  std::int64_t k_block = 0;  ///< 0 means all of K
  /// The format of scales that the instruction itself applies: e8m0fnu, or e4m3fn for UE4M3. f32
  /// means that it is not given: then e8m0fnu for tiles of 32 terms, UE4M3 for tiles of 16.
  FormatId format = FormatId::f32;
  /// The second level of two-level scales (NVFP4): value = code * scale * tensor_scale. If the
  /// instruction applies the block scales, the tensor scales of both operands scale its sum, in
  /// `scale_order`, as alpha does in a library call. Otherwise every scale is first multiplied by
  /// the tensor scale and rounded to nearest even.
  float tensor_scale = 1.0F;
  /// FP32 arithmetic after the instruction applies them, whatever their tiles are.
  bool after_instruction = false;

  [[nodiscard]] bool empty() const { return values.empty(); }
  /// Scales like these for other tiles. Narrower tiles than these do not make them scales that an
  /// instruction applies, unless they are E8M0 codes, which it takes in wider tiles too.
  [[nodiscard]] InverseScales in_tiles(std::span<const float> of, std::int64_t rows,
                                       std::int64_t terms) const {
    InverseScales other = *this;
    other.values = of;
    other.row_block = rows;
    other.k_block = terms;
    const bool narrower = terms < k_block && format != FormatId::e8m0fnu;
    other.after_instruction |= terms != 0 && (k_block == 0 || narrower);
    return other;
  }
};

/// The order in which FP32 arithmetic applies the scales of a promoted partial sum.
enum class ScaleOrder : std::uint8_t {
  product_then_fma,   ///< final = fma(s_a * s_b, acc, final): DeepGEMM as nvcc compiles it
  product_then_add,   ///< final = final + (s_a * s_b) * acc, three roundings
  a_then_fma_b,       ///< final = fma(acc * s_a, s_b, final): cuBLAS blockwise
  b_then_fma_a,       ///< final = fma(acc * s_b, s_a, final): the same with A and B exchanged
  a_then_b_then_add,  ///< final = final + (acc * s_a) * s_b: Triton's dot(a, b) * s_a * s_b
};
/// All orders.
std::span<const ScaleOrder> scale_orders();
std::string_view to_string(ScaleOrder order);
/// The order called `name`. Throws `Error` that lists the names.
ScaleOrder find_scale_order(std::string_view name);

/// The place where C enters a product. The place changes the bits of D.
enum class CPlacement : std::uint8_t {
  /// Not given. Without promotion and scales only one place is possible, and this means
  /// `accumulator`. With either of them, `validate` throws `Error`.
  unnamed,
  /// C is the instruction's c: the first accumulator starts from it, before any scale.
  /// D = scales * (C + A . B^T) with the model's rounding.
  accumulator,
  /// The FP32 sum `final` starts from C. Each promoted partial sum is added to it in order,
  /// scaled first if the scales change along K. Needs promotion, and no scale of the whole sum.
  promoted_sum,
  /// C is added to the finished FP32 sum, in the units of D: D = scales * A . B^T + C. Scales
  /// of the whole sum are applied in `scale_order` with C in the place of `final` (*assumed*
  /// for epilogues). Without such scales it is one FP32 addition, rounded to nearest even.
  epilogue,
};
std::string_view to_string(CPlacement placement);
/// The place called `name`: accumulator, promoted_sum or epilogue. Throws `Error`.
CPlacement find_c_placement(std::string_view name);

/// The inputs of one product: A [m,k] and B [n,k] with any strides, and C [m,n] as row-major
/// binary32, or null for no C.
///
/// promotion_interval N_C is 0 or a multiple of the model's terms. If N_C > 0, the
/// accumulator restarts from +0 every N_C terms, and each partial sum is added to an
/// FP32 sum `final`, rounded to nearest even. If N_C = 0, one accumulator sums all of K.
///
/// Scales that change along K need a promotion_interval that divides their k_block.
/// Each partial sum is then scaled into `final` in `scale_order`. Scales that do not
/// change along K are applied once, to the whole sum, in the same order. With promotion
/// or scales, a C needs `c_enters`, since the bits depend on it. A NaN in D is always
/// kCanonicalNan. `dot_product` has the rules for special values and subnormals.
///
/// A block-scaled instruction (mxf8f6f4, mxf4nvf4) itself applies scales of blocks of 32 or 16
/// terms, and E8M0 scales of wider tiles block by block (tiles of 128 in DeepGEMM). These scales
/// enter its alignment and need no promotion, so the paragraph above does not hold for them. Each
/// must be a value of its format; without block scales they are 1. All other scales are applied
/// after the instruction, as for other instructions.
struct GemmProblem {
  AccumulatorModel model;
  CodeMatrix a;
  CodeMatrix b;
  const float* c = nullptr;
  InverseScales scale_a;
  InverseScales scale_b;
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  CPlacement c_enters = CPlacement::unnamed;
};

/// Whether the instruction itself applies the scales of this problem.
bool applies_scales(const GemmProblem& problem);

/// The place where C of this problem enters: `c_enters`, or `accumulator` if that is unnamed.
CPlacement c_placement(const GemmProblem& problem);

/// The places where C can enter, given the scales and the promotion of this problem.
std::vector<CPlacement> possible_c_placements(const GemmProblem& problem);

/// Throws `Error` that names the first bad argument. output_size: elements of D, must be m * n.
void validate(const GemmProblem& problem, std::size_t output_size);

/// Computes the product into `d`, row-major [m,n], one scalar dot product per element: the
/// specification of all kernels. m, n, k may be 0 (k = 0 gives C, or +0). Throws as `validate`.
void gemm_reference(const GemmProblem& problem, std::span<float> d, int threads = 1);

/// Computes the bits of `gemm_reference` with the fastest kernel for `current_target()`.
/// threads 0: as many as OpenMP offers. The bits do not depend on the threads, the target
/// or the caller's rounding mode and flush-to-zero setting, and these settings are left
/// unchanged. README.md beside this header says how each model is computed.
void gemm(const GemmProblem& problem, std::span<float> d, int threads = 0);

/// As `gemm`, on a given target; `scalar` runs gemm_reference. Throws `Error` if this
/// machine does not have the target.
void gemm_with_target(const GemmProblem& problem, std::span<float> d, Target target,
                      int threads = 0);

/// The method by which vector targets compute the problem, as README.md beside this header lists
/// them ("fused float", "two stages" ...), or "reference" if there is no kernel. Data that the
/// kernel of a method cannot read may run on another kernel, with the same bits.
std::string_view gemm_method(const GemmProblem& problem);

}  // namespace fp8lab
