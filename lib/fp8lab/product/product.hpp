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
#include "fp8lab/product/scale_shapes.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

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

/// What a kernel was asked to compute, beside its operands.
struct GemmSpec {
  std::string model = "sm90.wgmma.e4m3";  ///< a registered instruction
  std::int64_t promotion_interval = 0;    ///< as in `GemmProblem`
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  OutputCast output{};
  CPlacement c_enters = CPlacement::unnamed;  ///< with C and promotion or scales it must be named
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
  std::optional<ScaleTiles> tiles_a{};
  std::optional<ScaleTiles> tiles_b{};
  std::optional<TensorView> c{};  ///< [m, n], which enters where `GemmSpec::c_enters` says
  std::string recipe{};           ///< a preset that quantizes float A (activation) and B (weight)
  std::shared_ptr<const void> owner{};  ///< what the views point into; null if the caller keeps it
};

/// The floats that a recipe quantized, row-major like the matrix.
using Originals = std::shared_ptr<const std::vector<float>>;

/// A problem that keeps alive what it points into. Copies are cheap.
struct Product {
  std::string model;
  GemmProblem problem;
  OutputCast output;
  Originals a_original;  ///< null where the operand came as codes
  Originals b_original;
  std::vector<std::shared_ptr<const void>> owners;

  [[nodiscard]] std::int64_t rows() const { return problem.a.rows; }
  [[nodiscard]] std::int64_t columns() const { return problem.b.rows; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows() * columns()); }
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
Product make_product_of_unknown_model(const GemmOperands& operands, const OutputCast& output);

/// The same of a problem: exact, promoted at the tiles of scales that change along K.
GemmProblem of_unknown_model(GemmProblem problem);

/// The FP32 result, row-major [m, n].
std::vector<float> compute(const Product& product, int threads = 0);

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

/// The part [begin, end) of the sum, without C. Throws `Error` where a scale tile
/// would be cut in two.
Product take_k(const Product& product, std::int64_t begin, std::int64_t end);

}  // namespace fp8lab
