#pragma once
// One matrix product with everything that decides the bits of its output, made from
// a user's tensors. `fp8lab gemm` computes it, and `verify` checks outputs against it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// The cast of the FP32 result to the output, to nearest even, under `policy`.
struct OutputCast {
  FormatId format = FormatId::f32;  ///< f32, f16, bf16 or FP8
  CastPolicy policy{};              ///< ignored for f32, which is not cast
};

/// The cast that kernels use: FP8 saturates (`nvidia_satfinite`), FP16 and BF16
/// overflow to infinity (`nvidia_nosat`). Throws `Error` for another format.
OutputCast default_output(FormatId format);

/// Throws `Error` if no kernel with this instruction can write the output format: NVIDIA's chips
/// neither read nor write FNUZ codes. AMD's instructions and definitions may have any format.
void require_output_of(std::string_view model, FormatId output);

/// The numbers of an `Epilogue`. Its tensors are in `GemmOperands`.
struct EpilogueSpec {
  float alpha = 1.0F;
  std::optional<float> beta{};  ///< factor of C in the epilogue; unset: see `c_enters`
  Activation activation = Activation::none;
  float slope = 0.01F;
  float activation_ulps = 4.0F;
  std::optional<float> output_scale{};
  /// Current scaling: the output scale is the format's largest finite value divided by the amax,
  /// in FP32 (1 if that is not finite or 0). Not allowed with `output_scale`.
  bool scale_by_amax = false;
};

/// The computation of a kernel, without its operands.
struct GemmSpec {
  std::string model{};  ///< a registered instruction, or its definition as text
  /// In place of `model`, promotion and scale order: a library call by name, or one in a table of
  /// observed calls, `FILE.csv:fast,FIELD=VALUE` (calls.hpp).
  std::string call{};
  std::int64_t promotion_interval = 0;  ///< as in `GemmProblem`
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  OutputCast output{};
  CPlacement c_enters = CPlacement::unnamed;  ///< required for C with promotion or scales
  SplitK split{};
  EpilogueSpec epilogue{};
};

/// A or B of a product.
struct ProductOperand {
  TensorView codes{};       ///< A [m, k], B [n, k]: codes, or floats for a recipe
  bool transposed = false;  ///< the tensor is [k, m] or [k, n]
  /// Distances of its rows and columns in elements, for a part of a larger matrix, which `codes`
  /// points into (its bytes count for nothing): codes of one byte or more each, in no groups.
  std::optional<std::array<std::int64_t, 2>> strides{};
  /// Inverse scales, value = code * scale: floats, E8M0 codes, or E4M3 codes, which are read as
  /// UE4M3 (the sign is ignored). Shapes: one value; [rows] or [rows, 1]; or a grid of `tiles` over
  /// [rows, k], [ceil(rows / tile rows), ceil(k / tile k)]. Without `tiles`, `tiles_of_shape`
  /// derives them from the shape.
  std::optional<TensorView> scales{};
  std::optional<ScaleTiles> tiles{};
  ScaleLayout layout = ScaleLayout::row_major;  ///< of `scales`, see scale_layouts.hpp
  /// Scales in the library's form, in place of `scales`; `GemmOperands::owner` keeps them alive.
  std::optional<InverseScales> inverse{};
  /// The second-level scale of the whole tensor (NVFP4), see `InverseScales::tensor_scale`.
  float tensor_scale = 1.0F;
  /// One second-level scale for each group, only in grouped products; empty: one for all.
  std::vector<float> group_tensor_scales{};

  [[nodiscard]] bool has_scales() const { return scales || inverse; }
};

/// Rows and k of operand A or B, whatever the order of its tensor. Throws `Error` that calls the
/// operand `name` if it is no matrix.
std::pair<std::int64_t, std::int64_t> sides_of(std::string_view name,
                                               const ProductOperand& operand);

/// The tensors of a product.
struct GemmOperands {
  ProductOperand a{};
  ProductOperand b{};
  std::optional<TensorView> c{};              ///< [m, n]; `GemmSpec::c_enters` says where it enters
  std::optional<TensorView> bias{};           ///< floats [n], see epilogue.hpp
  std::optional<TensorView> row_scales{};     ///< floats [m] or [m, 1], applied to the sum
  std::optional<TensorView> column_scales{};  ///< floats [n] or [1, n], applied to the sum
  std::string recipe{};  ///< a preset that quantizes float A (activation) and B (weight)
  int threads = 0;       ///< of the recipe's casts; 0: all
  std::shared_ptr<const void> owner{};  ///< keeps the views' data alive; null: the caller does
};

/// The floats that a recipe quantized, row-major [rows, k].
using Originals = std::shared_ptr<const std::vector<float>>;

/// The tensor that a recipe made from them, and its rule.
struct RecipeCast {
  ScaleRule rule;
  std::shared_ptr<const QuantizedTensor> tensor;
};

/// A problem that keeps its data alive. Copies share the data and are cheap.
struct Product {
  std::string model;
  GemmProblem problem;
  OutputCast output;
  Originals a_original;  ///< null if the operand was given as codes
  Originals b_original;
  std::shared_ptr<const RecipeCast> a_cast{};  ///< null if the original is
  std::shared_ptr<const RecipeCast> b_cast{};
  std::vector<std::shared_ptr<const void>> owners;
  SplitK split{};
  Epilogue epilogue{};
  /// The values of UE4M3 scales with the signs that the instruction ignores; empty if none is set.
  std::span<const float> signed_scales_a{};
  std::span<const float> signed_scales_b{};

  [[nodiscard]] std::int64_t rows() const { return problem.a.rows; }
  /// Columns of the output: the rows of B, or half of them with a gated activation.
  [[nodiscard]] std::int64_t columns() const {
    return epilogue.gated() ? problem.b.rows / 2 : problem.b.rows;
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows() * columns()); }
  /// Sums over K: one for each output, or two with a gated activation.
  [[nodiscard]] std::size_t sum_count() const {
    return static_cast<std::size_t>(problem.a.rows * problem.b.rows);
  }
  /// The rows of B on which columns of the output depend: the columns, and with a gated activation
  /// also the columns that they multiply.
  [[nodiscard]] std::vector<std::int64_t> rows_of_b(std::span<const std::int64_t> of_columns) const;
  /// Keeps `values` alive and returns a view of them.
  std::span<const float> keep(std::vector<float> values);
};

/// Makes a product of a user's tensors; a call is resolved here. Throws `Error` that names the
/// operand and a remedy for shapes that do not fit, codes of another format than the model's,
/// floats without a recipe, and uint8 codes without a format; for neither or both of a model and a
/// call, and for a call whose scales or split the operands and the spec do not have.
Product make_product(const GemmOperands& operands, const GemmSpec& spec);

/// The product of operands whose instruction is not known, for `identify`. It has the exact
/// model (`sm90.wgmma.tf32` for FP32 operands without a recipe, which are read as TF32), and
/// is promoted at the tiles of scales that change along K.
Product make_product_of_unknown_model(const GemmOperands& operands, const OutputCast& output,
                                      const EpilogueSpec& epilogue = {});

/// The same for a problem: the exact model, promoted at the tiles of scales that change along K.
GemmProblem of_unknown_model(GemmProblem problem);

/// The FP32 sums before the epilogue, row-major [m, n]. threads 0: all.
std::vector<float> compute_sums(const Product& product, int threads = 0);

/// Applies the epilogue of this product to its sums.
std::vector<float> finish(const Product& product, std::vector<float> sums, int threads = 1);

/// The FP32 result after the epilogue and before the cast, row-major [rows(), columns()].
std::vector<float> compute(const Product& product, int threads = 0);

/// The same, with the amax and, if `with_reach`, the possible error of each value.
Finished compute_finished(const Product& product, bool with_reach, int threads = 0);

/// Sets the output scale from the amax of the product, see `EpilogueSpec::scale_by_amax`.
void scale_by_amax(Product& product, int threads = 0);

/// FP32 results as codes of the output format, little endian.
std::vector<std::byte> cast_output(std::span<const float> values, const OutputCast& output,
                                   int threads = 0);

/// The golden output: `cast_output(compute(...))`.
std::vector<std::byte> golden_output(const Product& product, int threads = 0);

/// Rows of A and rows of B (columns of the output), in ascending order.
struct Sample {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
};

/// At most `most` of `count` positions, evenly spread, with the first and the last.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most);

/// The product of the sampled rows and columns only, with the same bits for those
/// outputs. It has copies of their codes, and one scale for each row.
Product take(const Product& product, const Sample& sample);

/// The terms [begin, end) of the sum, without C, epilogue and split. Throws `Error` if this cuts a
/// scale tile in two.
Product take_k(const Product& product, std::int64_t begin, std::int64_t end);

}  // namespace fp8lab
