#include "tool/lt_calls.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/io/files.hpp"
#include "training/model/shape.hpp"

namespace fp8lab::cuda {

std::vector<CallShape> lt_shapes() {
  std::vector<CallShape> shapes;
  const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const CallShape shape{m, n, k};
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

std::vector<CallShape> lt_calls_of(const CallShape& shape) {
  std::vector<CallShape> calls;
  for (const FormatId output : {FormatId::bf16, FormatId::f16, FormatId::f32, FormatId::e4m3fn})
    for (const bool fast : {true, false}) {
      CallShape call = shape;
      call.output = output;
      call.fast = fast;
      calls.push_back(call);
    }
  return calls;
}

void add_to_call_table(const std::filesystem::path& file, const std::string& model,
                       const std::map<std::string, std::string>& header, ObservedCall observed) {
  CallTable table{model, header, {}};
  if (std::filesystem::exists(file)) table = read_call_table(file);
  std::erase_if(table.calls, [&](const ObservedCall& old) { return old.call == observed.call; });
  table.calls.push_back(std::move(observed));
  write_file(file, to_text(table));
}

}  // namespace fp8lab::cuda
