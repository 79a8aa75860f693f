#pragma once
// How a linear layer computes its three products, as values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/train/multiply.hpp"

namespace fp8lab::train {

/// What the operands of a product are when they reach the matrix unit.
enum class Arithmetic : std::uint8_t {
  fp32,  ///< as they are; `LinearRecipe::float32_multiply`
  bf16,  ///< rounded to BF16, no scales; `GemmSettings::accumulator`, where that is `fp32` by
         ///< `LinearRecipe::float32_multiply` (the same bits while no product underflows)
  fp8,   ///< cast by the recipe of their role; `GemmSettings::accumulator`
};
std::string_view to_string(Arithmetic arithmetic);
/// Throws `Error`.
Arithmetic find_arithmetic(std::string_view name);

struct GemmSettings {
  Arithmetic arithmetic = Arithmetic::fp32;
  AccumulatorModel accumulator{};       ///< bf16 and fp8
  std::int64_t promotion_interval = 0;  ///< terms; must divide the k_block of the scales
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
};

using Float32Multiply = void (*)(Operand<float>, Operand<float>, Output<float>, ProductSize, int);

/// The arithmetic of one linear layer Y = X W^T:
///   forward  Y  [tokens, out] = X  [tokens, in]  . W   [out, in]^T
///   dgrad    dX [tokens, in]  = dY [tokens, out] . W^T [in, out]^T
///   wgrad    dW [out, in]     = dY^T [out, tokens] . X^T [in, tokens]^T
/// An FP8 operand of dgrad or wgrad that is a transpose is cast from the
/// original values with the tiles along its own summed dimension. Each operand enters two
/// products; the second one may have a recipe of its own.
struct LinearRecipe {
  std::string name = "fp32";
  Recipe activation{};
  Recipe weight{};
  Recipe gradient{};
  std::optional<Recipe> weight_for_dgrad{};  ///< unset: that of the other product
  std::optional<Recipe> activation_for_wgrad{};
  std::optional<Recipe> gradient_for_wgrad{};
  GemmSettings forward{};
  GemmSettings dgrad{};
  GemmSettings wgrad{};
  /// Elements of dY beyond this many times its root mean square are limited to it before the cast,
  /// for dgrad and wgrad (*chosen*: no system that we read does this); 0: none are.
  double gradient_clip = 0.0;
  bool bf16_outputs = false;  ///< Y and dX are rounded to BF16; dW stays FP32
  Float32Multiply float32_multiply = multiply;
};

/// All three products in FP32.
LinearRecipe fp32_recipe();

/// All three products on BF16 operands, Y and dX rounded to BF16. The
/// accumulator is sequential FP32; `sm90.wgmma.bf16` differs in the last bits of
/// a sum and is several times slower to emulate.
LinearRecipe bf16_recipe();

/// A preset of `scaling` as its system runs it on Hopper: `te-*` and `torchao-*`
/// and `ms-amp` accumulate forward without promotion and the gradients with one
/// every 128 terms (*read*: fast accumulation forward, split accumulation
/// backward); 1x128 scales promote every 128 terms everywhere. MX recipes and NVFP4 run under
/// Blackwell's block-scaled instruction (sm100.tcgen05.mxf8f6f4, and mxf4nvf4 for FP4), which
/// applies the scales itself, with one accumulator over all of K.
/// NVFP4's second-level scales are its alpha. Casts are to nearest even: TransformerEngine's
/// stochastic rounding of gradients and its random Hadamard transform are not done. wgrad of a
/// preset with high_precision_wgrad runs in BF16. Also `fp32` and `bf16`. Throws `Error` for an
/// unknown name.
LinearRecipe find_linear_recipe(std::string_view name);

/// The same recipe with its FP8 products on other hardware: `sm89`, `sm90`, `sm100`, `sm120` (the
/// instruction that libraries use there: `mma`, `wgmma`, `tcgen05`, `mma`; on the last two the
/// block-scaled one for MX recipes and NVFP4), or the name of an instruction model or definition
/// (`exact`). Casts and scales stay, and so does promotion, but that a block-scaled instruction
/// needs none, and another one promotes such a recipe's products every block of K. Throws `Error`
/// for a name that is neither, FP4 or FP6 on a chip that does not multiply them, or a model whose
/// terms do not divide the promotion interval.
LinearRecipe on_hardware(LinearRecipe recipe, std::string_view hardware);
/// One product of such a recipe, whose operands are cast as `operands` is.
GemmSettings on_hardware(GemmSettings product, const Recipe& operands, std::string_view hardware);

/// Every name that `find_linear_recipe` knows.
std::vector<std::string> linear_recipe_names();

/// FP8 everywhere from one recipe for each role, on `sm90.wgmma` with the given
/// promotion interval in all three products.
LinearRecipe fp8_recipe(std::string name, const Recipe& activation, const Recipe& weight,
                        const Recipe& gradient, std::int64_t promotion_interval);

}  // namespace fp8lab::train
