#include "training/train/transformer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace fp8lab::train {
namespace {

// Products of two sizes fit into 64 bits with room to spare.
constexpr std::int64_t kMostSize = std::int64_t{1} << 24;

void require_size(std::string_view name, std::int64_t value, std::int64_t least) {
  require(value >= least && value <= kMostSize, name, fmt::format("{} to {}", least, kMostSize),
          fmt::format("{}", value));
}

const TransformerShape& checked(const TransformerShape& shape) {
  require_size("vocabulary", shape.vocabulary, 2);
  require_size("length", shape.length, 1);
  require_size("width", shape.width, 1);
  require_size("layers", shape.layers, 1);
  require_size("heads", shape.heads, 1);
  require_size("hidden", shape.hidden, 1);
  return shape;
}

std::string block_name(std::int64_t layer) { return fmt::format("block{}", layer); }

template <typename T>
void initialize_linear(Linear<T>& linear, double factor, std::uint64_t seed) {
  const auto inputs = static_cast<double>(linear.weight().shape[1]);
  initialize(linear.weight(), factor / std::sqrt(inputs), seed);
}

}  // namespace

std::vector<float> channel_multipliers(const OutlierChannels& outliers, std::int64_t channels) {
  require(outliers.count >= 0 && outliers.count <= channels, "outliers.count",
          fmt::format("0 .. {}", channels), fmt::format("{}", outliers.count));
  if (outliers.count == 0) return {};
  std::vector<float> multipliers(static_cast<std::size_t>(channels), 1.0F);
  for (std::int64_t i = 0; i < outliers.count; ++i)
    multipliers[static_cast<std::size_t>(i * channels / outliers.count)] =
        std::ldexp(1.0F, outliers.log2_magnitude);
  return multipliers;
}

std::vector<LinearLayer> linear_layers(const TransformerShape& given) {
  const TransformerShape& shape = checked(given);
  const std::int64_t up = Activation<float>(shape.activation).inputs() * shape.hidden;
  std::vector<LinearLayer> all;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = block_name(layer);
    all.push_back({block + ".qkv", 3 * shape.width, shape.width});
    all.push_back({block + ".projection", shape.width, shape.width});
    all.push_back({block + ".up", up, shape.width});
    all.push_back({block + ".down", shape.width, shape.hidden});
  }
  all.push_back({"head", shape.vocabulary, shape.width});
  return all;
}

template <typename T>
TransformerBlock<T>::TransformerBlock(const std::string& name, const TransformerShape& shape,
                                      const ModelRecipe& recipe)
    : attention_norm_(name + ".attention_norm", shape.norm, shape.width),
      qkv_(name + ".qkv", shape.width, 3 * shape.width, recipe.of_layer(name + ".qkv"),
           channel_multipliers(recipe.outliers, shape.width)),
      attention_(shape.width, shape.heads),
      projection_(name + ".projection", shape.width, shape.width,
                  recipe.of_layer(name + ".projection")),
      feed_forward_norm_(name + ".feed_forward_norm", shape.norm, shape.width),
      activation_(shape.activation),
      up_(name + ".up", shape.width, activation_.inputs() * shape.hidden,
          recipe.of_layer(name + ".up"), channel_multipliers(recipe.outliers, shape.width)),
      down_(name + ".down", shape.hidden, shape.width, recipe.of_layer(name + ".down")) {}

template <typename T>
Matrix<T> TransformerBlock<T>::forward(Matrix<T> x, std::int64_t length,
                                       const PassContext& context) {
  const Matrix<T> normalized = attention_norm_.forward(x, context);
  const Matrix<T> attended = attention_.forward(qkv_.forward(normalized, context), length, context);
  add_to(x, projection_.forward(attended, context));
  Matrix<T> hidden = up_.forward(feed_forward_norm_.forward(x, context), context);
  add_to(x, down_.forward(activation_.forward(std::move(hidden), context), context));
  return x;
}

template <typename T>
Matrix<T> TransformerBlock<T>::backward(Matrix<T> dx, const PassContext& context) {
  const Matrix<T> d_hidden = activation_.backward(down_.backward(dx, context), context);
  add_to(dx, feed_forward_norm_.backward(up_.backward(d_hidden, context), context));
  const Matrix<T> d_qkv = attention_.backward(projection_.backward(dx, context), context);
  add_to(dx, attention_norm_.backward(qkv_.backward(d_qkv, context), context));
  return dx;
}

template <typename T>
void TransformerBlock<T>::initialize_weights(std::int64_t layers, std::uint64_t seed) {
  const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(layers));
  initialize_linear(qkv_, 1.0, seed);
  initialize_linear(projection_, residual, seed);
  initialize_linear(up_, 1.0, seed);
  initialize_linear(down_, residual, seed);
}

template <typename T>
std::vector<Parameter<T>*> TransformerBlock<T>::parameters() {
  std::vector<Parameter<T>*> all = attention_norm_.parameters();
  for (Parameter<T>* p : feed_forward_norm_.parameters()) all.push_back(p);
  for (Linear<T>* linear : linears()) all.push_back(&linear->weight());
  return all;
}

template <typename T>
Transformer<T>::Transformer(const TransformerShape& shape, const ModelRecipe& recipe,
                            std::uint64_t seed)
    : shape_(checked(shape)),
      embedding_("embedding", shape.vocabulary, shape.length, shape.width),
      norm_("norm", shape.norm, shape.width),
      head_("head", shape.width, shape.vocabulary, recipe.of_layer("head")) {
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    blocks_.push_back(std::make_unique<TransformerBlock<T>>(block_name(layer), shape, recipe));
    blocks_.back()->initialize_weights(shape.layers, seed);
  }
  for (Parameter<T>* p : embedding_.parameters()) initialize(*p, 0.1, seed);
  initialize(head_.weight(), 0.02, seed);
}

template <typename T>
double Transformer<T>::loss(const Batch& batch, const PassContext& context) {
  require(batch.length == shape_.length, "batch.length", fmt::format("{}", shape_.length),
          fmt::format("{}", batch.length));
  Matrix<T> x = embedding_.forward(batch.inputs);
  for (auto& block : blocks_) x = block->forward(std::move(x), batch.length, context);
  return cross_entropy_.forward(head_.forward(norm_.forward(x, context), context), batch.targets,
                                context);
}

template <typename T>
void Transformer<T>::backward(T scale, const PassContext& context) {
  Matrix<T> dx =
      norm_.backward(head_.backward(cross_entropy_.backward(scale, context), context), context);
  for (std::size_t i = blocks_.size(); i-- > 0;) dx = blocks_[i]->backward(std::move(dx), context);
  embedding_.backward(dx);
}

template <typename T>
std::vector<Parameter<T>*> Transformer<T>::parameters() {
  std::vector<Parameter<T>*> all = embedding_.parameters();
  for (auto& block : blocks_)
    for (Parameter<T>* p : block->parameters()) all.push_back(p);
  for (Parameter<T>* p : norm_.parameters()) all.push_back(p);
  all.push_back(&head_.weight());
  return all;
}

template <typename T>
std::vector<OperandCast*> Transformer<T>::casts() {
  std::vector<OperandCast*> all;
  if constexpr (std::is_same_v<T, float>) {
    for (auto& block : blocks_)
      for (Linear<T>* linear : block->linears())
        for (OperandCast* cast : linear->products().casts()) all.push_back(cast);
    for (OperandCast* cast : head_.products().casts()) all.push_back(cast);
  }
  return all;
}

template class Transformer<float>;
template class Transformer<double>;

}  // namespace fp8lab::train
