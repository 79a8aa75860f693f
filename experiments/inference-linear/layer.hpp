#pragma once
// A linear layer at inference: weights quantized once, activations by a static
// or a dynamic scale, the product on an emulated Hopper.

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensors.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::experiments {

struct InferenceShape {
  std::int64_t tokens = 64;
  std::int64_t inputs = 512;
  std::int64_t outputs = 128;
  OutlierChannels activation;  ///< its rows and channels are set from the above
  double token_octaves = 1.0;  ///< standard deviation of log2 of a token's size
  double weight_sigma = 0.02;
  std::int64_t promotion_interval = 128;
};

/// Activations [tokens, inputs] of batch number `batch`: outlier channels are those
/// of the layer, tokens differ in size.
std::vector<float> make_batch(const RandomStream& random, const InferenceShape& shape,
                              std::int64_t batch);
std::vector<float> make_weights(const RandomStream& random, const InferenceShape& shape);

/// What one way to scale loses on one batch.
struct InferenceLoss {
  double relative_l2 = 0.0;        ///< of y against FP64 from unquantized operands
  double worst_token_l2 = 0.0;     ///< the same of the worst token
  double saturated_percent = 0.0;  ///< of the activations
  double underflow_percent = 0.0;
};

/// y = x w^T of quantized operands on `sm90.wgmma.e4m3`, against FP64.
InferenceLoss inference_loss(const InferenceShape& shape, const std::vector<float>& x,
                             const QuantizedTensor& quantized_x, const std::vector<float>& w,
                             const QuantizedTensor& quantized_w, const Backend& backend = {});

}  // namespace fp8lab::experiments
