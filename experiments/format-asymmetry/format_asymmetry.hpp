#pragma once
// The tensors of one linear layer through different choices of FP8 format and
// scale, and the three matrix products made from them. Claim F3 takes its
// figures here.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/quantize.hpp"
#include "common/tensor_source.hpp"
#include "common/tensors.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/metrics/comparison.hpp"

namespace fp8lab::experiments {

/// Which format each tensor takes, and how much shares a scale.
struct Recipe {
  std::string_view name;
  std::string_view label;  ///< for people
  FormatId forward;        ///< of activations and weights
  FormatId backward;       ///< of gradients with respect to outputs
  bool fine_scales;        ///< 1 x tile (weights tile x tile) instead of one for the tensor
};

inline constexpr std::array<Recipe, 4> kRecipes{{
    {"e4m3", "E4M3 only", FormatId::e4m3fn, FormatId::e4m3fn, false},
    {"e5m2", "E5M2 only", FormatId::e5m2, FormatId::e5m2, false},
    {"hybrid", "hybrid", FormatId::e4m3fn, FormatId::e5m2, false},
    {"e4m3_fine", "E4M3, fine scales", FormatId::e4m3fn, FormatId::e4m3fn, true},
}};

/// A linear layer y = x w^T and what its tensors look like.
struct LayerShape {
  std::size_t tokens = 128;
  std::size_t inputs = 512;
  std::size_t outputs = 128;
  OutlierChannels activation;  ///< its rows and channels are set from the above
  double weight_sigma = 0.02;
  double gradient_decades = 8.0;
  double gradient_row_share = 0.5;  ///< see `log_normal_rows`
  /// In place of the above where set.
  std::optional<TensorSource> activations{};
  std::optional<TensorSource> weights{};
  std::optional<TensorSource> gradients{};
};

struct Layer {
  std::size_t tokens = 0;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::vector<float> x;   ///< activations [tokens, inputs]
  std::vector<float> w;   ///< weights [outputs, inputs]
  std::vector<float> dy;  ///< gradient of the output [tokens, outputs]
};
Layer make_layer(const RandomStream& random, const LayerShape& shape);

/// Only the `dy` of `make_layer` for the same arguments.
std::vector<float> make_gradient(const RandomStream& random, const LayerShape& shape);

/// What a cast did to one tensor.
struct TensorLoss {
  Comparison error;         ///< of the reconstructed tensor
  double zero_share = 0.0;  ///< share of the non-zero elements that became zero, 0 to 1
};
TensorLoss tensor_loss(std::span<const float> x, const Quantized& q);

enum class Product : std::uint8_t {
  forward,          ///< y = x w^T, over inputs
  input_gradient,   ///< dx = dy w, over outputs
  weight_gradient,  ///< dw = dy^T x, over tokens
};
inline constexpr std::array kProducts{Product::forward, Product::input_gradient,
                                      Product::weight_gradient};
/// `forward (y = x w^T)` and the like.
std::string_view to_string(Product product);

/// How products are computed. Fine scales run along the summed dimension of
/// each product, so dy and x are quantized once for each product they enter, as
/// DeepSeek-V3 does.
struct ProductSetup {
  std::size_t tile = 128;
  std::int64_t promotion_interval = 128;
  CastPolicy policy;
  bool exact = false;  ///< exact accumulation instead of Hopper's (`sm90.wgmma`)
  Backend backend{};
};

/// A product in FP8 against its FP64 value from the unquantized tensors.
struct ProductError {
  Comparison error;
  std::vector<double> row_error;  ///< relative L2 error of each row
  std::vector<double> row_norm;   ///< L2 norm of each row of the FP64 product
  [[nodiscard]] double median_row_error() const;
  [[nodiscard]] double worst_row_error() const;
};
ProductError product_error(const Layer& layer, const Recipe& recipe, Product product,
                           const ProductSetup& setup);

}  // namespace fp8lab::experiments
