#pragma once
// One matrix product with everything that decides its output's bits, made from
// the tensors that a user has: what `gemm` computes and `verify` checks against.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/epilogue.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/split_k.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

enum class ScaleRule : std::uint8_t;
struct QuantizedTensor;

/// How the FP32 result becomes the output: nearest even by `policy`.
struct OutputCast {
  FormatId format = FormatId::f32;  ///< f32, f16, bf16 or FP8
  CastPolicy policy{};              ///< ignored for f32, which is kept as it is
};

/// The cast that kernels use: FP8 saturates (`nvidia_satfinite`), FP16 and BF16
/// overflow to infinity (`nvidia_nosat`). Throws `Error` for another format.
OutputCast default_output(FormatId format);

/// Throws `Error` where no kernel around this instruction has such an output: NVIDIA's chips
/// neither read nor write FNUZ codes. AMD's instructions and definitions may have any.
void require_output_of(std::string_view model, FormatId output);

/// The numbers of an `Epilogue`; its tensors are operands.
struct EpilogueSpec {
  float alpha = 1.0F;
  std::optional<float> beta{};  ///< C enters the epilogue times this; unset: where `c_enters` says
  Activation activation = Activation::none;
  float slope = 0.01F;
  float activation_ulps = 4.0F;
  std::optional<float> output_scale{};
  /// Current scaling: the output's largest finite value over the amax, in FP32 (1 where that is
  /// not finite or 0). Not with `output_scale`.
  bool scale_by_amax = false;
};

/// What a kernel was asked to compute, beside its operands.
struct GemmSpec {
  std::string model = "sm90.wgmma.e4m3";  ///< a registered instruction
  std::int64_t promotion_interval = 0;    ///< as in `GemmProblem`
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  OutputCast output{};
  CPlacement c_enters = CPlacement::unnamed;  ///< with C and promotion or scales it must be named
  SplitK split{};
  EpilogueSpec epilogue{};
};

/// The tensors of a product.
struct GemmOperands {
  TensorView a;  ///< [m, k]: codes, or floats for a recipe
  TensorView b;  ///< [n, k], or [k, n] with `transpose_b`
  bool transpose_b = false;
  /// What codes are multiplied by to get values back (inverse scales), as floats
  /// E8M0 codes or E4M3 ones, read as UE4M3 (without their sign): one value; [rows] or [rows, 1];
  /// or a grid over [rows, k] of the tiles that are named, [ceil(rows / tile rows), ceil(k / tile
  /// k)]. Unnamed ones: `tiles_of_shape`.
  std::optional<TensorView> scale_a{};
  std::optional<TensorView> scale_b{};
  /// Second-level scales of the whole tensors (NVFP4), as `InverseScales::tensor_scale`.
  float tensor_scale_a = 1.0F;
  float tensor_scale_b = 1.0F;
  /// One a group in place of those, in grouped products alone; empty: one for all.
  std::vector<float> group_tensor_scales_a{};
  std::vector<float> group_tensor_scales_b{};
  std::optional<ScaleTiles> tiles_a{};
  std::optional<ScaleTiles> tiles_b{};
  ScaleLayout layout_a = ScaleLayout::row_major;  ///< how `scale_a` lies, see scale_layouts.hpp
  ScaleLayout layout_b = ScaleLayout::row_major;
  /// Scales that are read already, in place of `scale_a` and `scale_b`; `owner` keeps them.
  std::optional<InverseScales> inverse_a{};
  std::optional<InverseScales> inverse_b{};
  std::optional<TensorView> c{};           ///< [m, n], which enters where `GemmSpec::c_enters` says
  std::optional<TensorView> bias{};        ///< floats [n], see epilogue.hpp
  std::optional<TensorView> row_scales{};  ///< floats [m] or [m, 1], after the sum
  std::optional<TensorView> column_scales{};  ///< floats [n] or [1, n], after the sum
  std::string recipe{};  ///< a preset that quantizes float A (activation) and B (weight)
  std::shared_ptr<const void> owner{};  ///< what the views point into; null if the caller keeps it
};

/// The floats that a recipe quantized, row-major like the matrix.
using Originals = std::shared_ptr<const std::vector<float>>;

/// What a recipe made of them, and by which rule.
struct RecipeCast {
  ScaleRule rule;
  std::shared_ptr<const QuantizedTensor> tensor;
};

/// A problem that keeps alive what it points into. Copies are cheap.
struct Product {
  std::string model;
  GemmProblem problem;
  OutputCast output;
  Originals a_original;  ///< null where the operand came as codes
  Originals b_original;
  std::shared_ptr<const RecipeCast> a_cast{};  ///< there where the original is
  std::shared_ptr<const RecipeCast> b_cast{};
  std::vector<std::shared_ptr<const void>> owners;
  SplitK split{};
  Epilogue epilogue{};

  [[nodiscard]] std::int64_t rows() const { return problem.a.rows; }
  /// Of the output: half of B's rows under a gate.
  [[nodiscard]] std::int64_t columns() const {
    return epilogue.gated() ? problem.b.rows / 2 : problem.b.rows;
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows() * columns()); }
  /// Sums over K: as many as outputs, or under a gate twice as many.
  [[nodiscard]] std::size_t sum_count() const {
    return static_cast<std::size_t>(problem.a.rows * problem.b.rows);
  }
  /// The rows of B that columns of the output are made of: the columns, and under a gate what
  /// they multiply.
  [[nodiscard]] std::vector<std::int64_t> rows_of_b(std::span<const std::int64_t> of_columns) const;
  /// Keeps `values` alive and returns a view of them.
  std::span<const float> keep(std::vector<float> values);
};

/// Throws `Error` naming the operand for shapes that do not fit, codes of
/// another format than the model's, floats without a recipe, or uint8 codes whose
/// format nobody said, each with the way out.
Product make_product(const GemmOperands& operands, const GemmSpec& spec);

/// The product of operands whose instruction is not known: under the exact model (FP32
/// operands without a recipe are TF32 ones, under `sm90.wgmma.tf32`), promoted at the
/// tiles of scales that change along K. `identify` searches the rest.
Product make_product_of_unknown_model(const GemmOperands& operands, const OutputCast& output,
                                      const EpilogueSpec& epilogue = {});

/// The same of a problem: exact, promoted at the tiles of scales that change along K.
GemmProblem of_unknown_model(GemmProblem problem);

/// The FP32 sums, before the epilogue: row-major [m, n].
std::vector<float> compute_sums(const Product& product, int threads = 0);

/// Such sums of this product through its epilogue.
std::vector<float> finish(const Product& product, std::vector<float> sums, int threads = 1);

/// What is cast to the output's format, the epilogue included: row-major [rows(), columns()].
std::vector<float> compute(const Product& product, int threads = 0);

/// The same, with amax and, where asked for, how far each value may be off.
Finished compute_finished(const Product& product, bool with_reach, int threads = 0);

/// Sets the output scale by the amax of the product itself, see `EpilogueSpec::scale_by_amax`.
void scale_by_amax(Product& product, int threads = 0);

/// FP32 results as codes of the output format, little endian.
std::vector<std::byte> cast_output(std::span<const float> values, const OutputCast& output,
                                   int threads = 0);

/// The golden output: `cast_output(compute(...))`.
std::vector<std::byte> golden_output(const Product& product, int threads = 0);

/// Some rows of A and some of B, in ascending order.
struct Sample {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
};

/// At most `most` of `count` positions, evenly spread, first and last included.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most);

/// The product of the sampled rows and columns alone: the same bits at those
/// outputs. Its codes are copies, its scales stand one a row.
Product take(const Product& product, const Sample& sample);

/// The part [begin, end) of the sum, without C and epilogue, not split. Throws `Error` where a
/// scale tile would be cut in two.
Product take_k(const Product& product, std::int64_t begin, std::int64_t end);

}  // namespace fp8lab
