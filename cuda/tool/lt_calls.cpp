#include "tool/lt_calls.hpp"

#include <algorithm>

#include "fp8lab/model/shape.hpp"

namespace fp8lab::cuda {

std::vector<LtCall> lt_shapes() {
  std::vector<LtCall> shapes;
  const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const LtCall shape{m, n, k};
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  };
  for (const bool training : {false, true})
    for (const char* name : {"llama-7b", "mixtral-8x7b"}) {
      const ModelShape model = find_training_setup(name).shape;
      for (const WeightTensor& weight : weights_of(model)) {
        if (!weight.is_block_gemm()) continue;
        const std::int64_t outputs = weight.shape[0];
        const std::int64_t inputs = weight.shape[1];
        if (!training) {
          for (const std::int64_t tokens : {16, 128}) add(tokens, outputs, inputs);
          continue;
        }
        add(model.sequence, outputs, inputs);
        add(model.sequence, inputs, outputs);
        add(outputs, inputs, model.sequence);
      }
    }
  return shapes;
}

std::vector<LtCall> lt_calls_of(const LtCall& shape) {
  std::vector<LtCall> calls;
  for (const FormatId output : {FormatId::bf16, FormatId::f16, FormatId::f32, FormatId::e4m3fn})
    for (const bool fast : {true, false}) {
      LtCall call = shape;
      call.output = output;
      call.fast = fast;
      calls.push_back(call);
    }
  return calls;
}

}  // namespace fp8lab::cuda
