#include "inference-linear/layer.hpp"

#include <algorithm>
#include <cmath>

#include "common/product.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/statistics.hpp"

namespace fp8lab::experiments {

std::vector<float> make_batch(const RandomStream& random, const InferenceShape& shape,
                              std::int64_t batch) {
  // All batches in one draw have the same outlier channels; a batch is a run of rows.
  OutlierChannels activation = shape.activation;
  activation.channels = static_cast<std::size_t>(shape.inputs);
  activation.rows = static_cast<std::size_t>(shape.tokens * (batch + 1));
  std::vector<float> x = outlier_channels(random, activation);
  x.erase(x.begin(), x.end() - shape.tokens * shape.inputs);
  const RandomStream sizes(random.seed(), random.stream() + 1);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const auto draw = static_cast<std::uint64_t>(batch * shape.tokens + t);
    const auto size = static_cast<float>(std::exp2(shape.token_octaves * sizes.normal(draw)));
    for (std::int64_t c = 0; c < shape.inputs; ++c)
      x[static_cast<std::size_t>(t * shape.inputs + c)] *= size;
  }
  return x;
}

std::vector<float> make_weights(const RandomStream& random, const InferenceShape& shape) {
  return normal(random, static_cast<std::size_t>(shape.outputs * shape.inputs), shape.weight_sigma);
}

InferenceLoss inference_loss(const InferenceShape& shape, const std::vector<float>& x,
                             const QuantizedTensor& quantized_x, const std::vector<float>& w,
                             const QuantizedTensor& quantized_w, const Backend& backend) {
  GemmProblem problem;
  problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = quantized_x.matrix();
  problem.b = quantized_w.matrix();
  problem.scale_a = quantized_x.inverse();
  problem.scale_b = quantized_w.inverse();
  problem.promotion_interval = shape.promotion_interval;
  const auto outputs = static_cast<std::size_t>(shape.outputs);
  std::vector<float> y(x.size() / static_cast<std::size_t>(shape.inputs) * outputs);
  gemm_on(backend, problem, y, 1);
  const std::vector<double> exact = exact_product(x, w, static_cast<std::size_t>(shape.inputs));
  InferenceLoss loss;
  loss.relative_l2 = compare(std::span<const double>(exact), std::span<const float>(y)).relative_l2;
  for (std::size_t begin = 0; begin < y.size(); begin += outputs)
    loss.worst_token_l2 = std::max(loss.worst_token_l2,
                                   compare(std::span<const double>(exact).subspan(begin, outputs),
                                           std::span<const float>(y).subspan(begin, outputs))
                                       .relative_l2);
  const QuantizationStatistics statistics =
      quantization_statistics({x, shape.tokens, shape.inputs}, quantized_x);
  loss.saturated_percent = statistics.saturated_percent;
  loss.underflow_percent = statistics.underflow_percent;
  return loss;
}

}  // namespace fp8lab::experiments
