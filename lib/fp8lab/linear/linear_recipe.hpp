#pragma once
// The arithmetic of the three products of a linear layer, as plain values.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/linear/multiply.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::train {

/// The form of the operands of a product at the matrix unit.
enum class Arithmetic : std::uint8_t {
  fp32,  ///< not cast; summed by `LinearRecipe::float32_multiply`
  bf16,  ///< rounded to BF16, no scales; summed by `GemmSettings::accumulator`, or, if that is
         ///< `fp32`, by `float32_multiply` (the same bits unless a product underflows)
  fp8,   ///< cast by the recipe of their role; summed by `GemmSettings::accumulator`
};
std::string_view to_string(Arithmetic arithmetic);
/// The arithmetic called `name`. Throws `Error`.
Arithmetic find_arithmetic(std::string_view name);

struct GemmSettings {
  Arithmetic arithmetic = Arithmetic::fp32;
  AccumulatorModel accumulator{};       ///< for bf16 and fp8
  std::int64_t promotion_interval = 0;  ///< terms; must divide the k_block of the scales
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
};

using Float32Multiply = void (*)(Operand<float>, Operand<float>, Output<float>, ProductSize, int);

/// The arithmetic of one linear layer Y = X W^T:
///   forward  Y  [tokens, out] = X  [tokens, in]  . W   [out, in]^T
///   dgrad    dX [tokens, in]  = dY [tokens, out] . W^T [in, out]^T
///   wgrad    dW [out, in]     = dY^T [out, tokens] . X^T [in, tokens]^T
/// If an FP8 operand of dgrad or wgrad is a transpose, it is cast from the original
/// values, with tiles along the dimension that this product sums. Each operand enters two
/// products; the second may have another recipe.
struct LinearRecipe {
  std::string name = "fp32";
  Recipe activation{};
  Recipe weight{};
  Recipe gradient{};
  std::optional<Recipe> weight_for_dgrad{};  ///< unset: the same as in the other product
  std::optional<Recipe> activation_for_wgrad{};
  std::optional<Recipe> gradient_for_wgrad{};
  GemmSettings forward{};
  GemmSettings dgrad{};
  GemmSettings wgrad{};
  /// Limits elements of dY to this multiple of its root mean square before the cast, for dgrad and
  /// wgrad (*chosen*: no system that was read does this). 0: no limit.
  double gradient_clip = 0.0;
  bool bf16_outputs = false;  ///< Y and dX are rounded to BF16; dW stays FP32
  Float32Multiply float32_multiply = multiply;
};

/// All three products in FP32.
LinearRecipe fp32_recipe();

/// All three products on BF16 operands, Y and dX rounded to BF16. The
/// accumulator is sequential FP32; `sm90.wgmma.bf16` (`on_hardware`) differs in the last bits of
/// a sum and is several times slower to emulate.
LinearRecipe bf16_recipe();

/// A preset of `scaling` as its system runs it on Hopper; also `fp32` and `bf16`. `te-*`,
/// `torchao-*` and `ms-amp` accumulate the forward product without promotion and the
/// gradients with promotion every 128 terms (*read*: fast accumulation forward, split
/// accumulation backward). With 1x128 scales all products promote every 128 terms. MX
/// recipes and NVFP4 run under Blackwell's block-scaled instructions
/// (sm100.tcgen05.mxf8f6f4, and mxf4nvf4 for FP4), which apply the scales themselves, with
/// one accumulator over all of K. The second-level scales of NVFP4 are their alpha. Casts
/// are to nearest even, without TransformerEngine's stochastic rounding of gradients and
/// random Hadamard transform. wgrad of a preset with high_precision_wgrad runs in BF16.
/// Throws `Error` for an unknown name.
LinearRecipe find_linear_recipe(std::string_view name);

/// The same recipe with its FP8 and BF16 products on other hardware: `sm89`, `sm90`, `sm100`,
/// `sm120` (with the instructions that libraries use there: `mma`, `wgmma`, `tcgen05`, `mma`; on
/// the last two MX recipes and NVFP4 use the block-scaled ones), or the name of an instruction
/// model or definition (`exact`). An instruction of BF16 inputs, or a definition that starts from
/// one, changes the BF16 products alone. Any other changes the FP8 products alone; a definition, in
/// a recipe that has none, the BF16 ones. Casts, scales and promotion do not change, with one
/// exception: MX and NVFP4 products need no promotion under a block-scaled instruction, and are
/// promoted every block of K under others. A recipe in FP32 does not change. Throws `Error` for an
/// unknown name, FP4 or FP6 on a chip that does not multiply them, a model whose terms do not
/// divide the promotion interval, and one that is for no product of the recipe.
LinearRecipe on_hardware(LinearRecipe recipe, std::string_view hardware);
/// The same for one product of a recipe whose operands are cast under `operands`: any model that
/// takes its formats.
GemmSettings on_hardware(GemmSettings product, const Recipe& operands, std::string_view hardware);
/// The same for recipes of one model, in place: what counts as one recipe there is all of them.
void move_to_hardware(std::span<LinearRecipe* const> recipes, std::string_view hardware);

/// The accumulator called `hardware`, or the chip's, for the BF16 products of a recipe alone.
/// Throws `Error` for an unknown name and for a model that does not take BF16.
void set_bf16_accumulator(LinearRecipe& recipe, std::string_view hardware);

/// Whether `on_hardware` gives the instruction or definition called `hardware` to BF16 products
/// alone. Throws `Error` for an unknown name.
bool is_for_bf16(std::string_view hardware);

/// All names that `find_linear_recipe` accepts.
std::vector<std::string> linear_recipe_names();

/// A recipe with FP8 in all three products, one cast recipe for each role, `sm90.wgmma`
/// and the given promotion interval.
LinearRecipe fp8_recipe(std::string name, const Recipe& activation, const Recipe& weight,
                        const Recipe& gradient, std::int64_t promotion_interval);

}  // namespace fp8lab::train
