#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/product.hpp"
#include "format-asymmetry/format_asymmetry.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/tensor.hpp"

namespace fp8lab::experiments {
namespace {

/// One K-major operand [rows, k] of a product.
struct Operand {
  std::vector<float> values;
  std::size_t rows = 0;
  std::size_t k = 0;
  bool is_weight = false;
  bool is_gradient = false;
};

struct OperandPair {
  Operand a;
  Operand b;
};

OperandPair operands(const Layer& l, Product product) {
  switch (product) {
    case Product::forward:
      return {{l.x, l.tokens, l.inputs, false, false}, {l.w, l.outputs, l.inputs, true, false}};
    case Product::input_gradient:
      return {{l.dy, l.tokens, l.outputs, false, true},
              {transposed(l.w, l.outputs, l.inputs), l.inputs, l.outputs, true, false}};
    case Product::weight_gradient:
      return {{transposed(l.dy, l.tokens, l.outputs), l.outputs, l.tokens, false, true},
              {transposed(l.x, l.tokens, l.inputs), l.inputs, l.tokens, false, false}};
  }
  return {};
}

Quantized quantize_operand(const Operand& operand, const Recipe& recipe,
                           const ProductSetup& setup) {
  ScaleBlock block = kPerTensor;
  if (recipe.fine_scales)
    block = operand.is_weight ? ScaleBlock{setup.tile, setup.tile} : tile(setup.tile);
  const Format& f = format(operand.is_gradient ? recipe.backward : recipe.forward);
  return quantize(operand.values, operand.rows, operand.k, block, f, setup.policy, setup.backend);
}

AccumulatorModel model_for(FormatId a, FormatId b, bool exact) {
  if (exact) return find_instruction_model("exact").accumulator;
  const auto name = [](FormatId id) { return id == FormatId::e5m2 ? "e5m2" : "e4m3"; };
  const std::string instruction = a == b ? fmt::format("sm90.wgmma.{}", name(a))
                                         : fmt::format("sm90.wgmma.{}.{}", name(a), name(b));
  return find_instruction_model(instruction).accumulator;
}

std::vector<float> fp8_product(const Quantized& a, const Quantized& b, const ProductSetup& setup) {
  GemmProblem problem;
  problem.model = model_for(a.format, b.format, setup.exact);
  problem.a = a.matrix();
  problem.b = b.matrix();
  problem.scale_a = a.scales();
  problem.scale_b = b.scales();
  problem.promotion_interval = setup.promotion_interval;
  std::vector<float> d(a.rows * b.rows);
  gemm_on(setup.backend, problem, d, 1);
  return d;
}

RandomStream substream(const RandomStream& random, std::uint64_t which) {
  return {random.bits64(which), which};
}

}  // namespace

std::vector<float> make_gradient(const RandomStream& random, const LayerShape& shape) {
  if (shape.gradients)
    return shape.gradients->draw(substream(random, 2), shape.tokens, shape.outputs);
  return log_normal_rows(substream(random, 2), shape.tokens, shape.outputs, shape.gradient_decades,
                         shape.gradient_row_share);
}

Layer make_layer(const RandomStream& random, const LayerShape& shape) {
  OutlierChannels activation = shape.activation;
  activation.rows = shape.tokens;
  activation.channels = shape.inputs;
  Layer layer;
  layer.tokens = shape.tokens;
  layer.inputs = shape.inputs;
  layer.outputs = shape.outputs;
  layer.x = shape.activations
                ? shape.activations->draw(substream(random, 0), shape.tokens, shape.inputs)
                : outlier_channels(substream(random, 0), activation);
  layer.w = shape.weights
                ? shape.weights->draw(substream(random, 1), shape.outputs, shape.inputs)
                : normal(substream(random, 1), shape.outputs * shape.inputs, shape.weight_sigma);
  layer.dy = make_gradient(random, shape);
  return layer;
}

TensorLoss tensor_loss(std::span<const float> x, const Quantized& q) {
  TensorLoss loss;
  loss.error = compare(x, std::span<const float>(q.values));
  std::size_t non_zero = 0;
  std::size_t crushed = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0.0F) continue;
    ++non_zero;
    if (q.scaled[i] == 0.0F) ++crushed;
  }
  if (non_zero > 0) loss.zero_share = static_cast<double>(crushed) / static_cast<double>(non_zero);
  return loss;
}

std::string_view to_string(Product product) {
  switch (product) {
    case Product::forward:
      return "forward (y = x w^T)";
    case Product::input_gradient:
      return "input gradient (dx = dy w)";
    case Product::weight_gradient:
      return "weight gradient (dw = dy^T x)";
  }
  return "";
}

double ProductError::median_row_error() const {
  std::vector<double> sorted = row_error;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double ProductError::worst_row_error() const {
  return *std::max_element(row_error.begin(), row_error.end());
}

ProductError product_error(const Layer& layer, const Recipe& recipe, Product product,
                           const ProductSetup& setup) {
  const OperandPair pair = operands(layer, product);
  const std::vector<double> reference = exact_product(pair.a.values, pair.b.values, pair.a.k);
  const std::vector<float> actual = fp8_product(quantize_operand(pair.a, recipe, setup),
                                                quantize_operand(pair.b, recipe, setup), setup);
  ProductError result;
  result.error = compare(std::span<const double>(reference), std::span<const float>(actual));
  for (std::size_t row = 0; row < pair.a.rows; ++row) {
    const auto expected = std::span(reference).subspan(row * pair.b.rows, pair.b.rows);
    const auto got = std::span<const float>(actual).subspan(row * pair.b.rows, pair.b.rows);
    result.row_error.push_back(compare(std::span<const double>(expected), got).relative_l2);
    double norm = 0.0;
    for (const double v : expected) norm += v * v;
    result.row_norm.push_back(std::sqrt(norm));
  }
  return result;
}

}  // namespace fp8lab::experiments
