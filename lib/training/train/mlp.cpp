#include "training/train/mlp.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace fp8lab::train {
namespace {

std::string layer_name(std::int64_t layer) { return fmt::format("layer{}", layer); }

}  // namespace

std::vector<LinearLayer> linear_layers(const MlpShape& shape) {
  std::vector<LinearLayer> all;
  std::int64_t inputs = shape.context * shape.embedding;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer, inputs = shape.hidden)
    all.push_back({layer_name(layer), shape.hidden, inputs});
  all.push_back({"head", shape.vocabulary, shape.hidden});
  return all;
}

template <typename T>
Mlp<T>::Mlp(const MlpShape& shape, const ModelRecipe& recipe, std::uint64_t seed)
    : shape_(shape),
      embedding_("embedding", shape.vocabulary, 0, shape.embedding),
      head_("head", shape.hidden, shape.vocabulary, recipe.of_layer("head")) {
  require(shape.layers > 0, "layers", "at least 1", fmt::format("{}", shape.layers));
  std::int64_t inputs = shape.context * shape.embedding;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer, inputs = shape.hidden) {
    linears_.push_back(std::make_unique<Linear<T>>(layer_name(layer), inputs, shape.hidden,
                                                   recipe.of_layer(layer_name(layer)),
                                                   channel_multipliers(recipe.outliers, inputs)));
    initialize(linears_.back()->weight(), 1.0 / std::sqrt(static_cast<double>(inputs)), seed);
    activations_.emplace_back(ActivationKind::gelu);
  }
  for (Parameter<T>* p : embedding_.parameters()) initialize(*p, 0.1, seed);
  initialize(head_.weight(), 0.02, seed);
}

template <typename T>
double Mlp<T>::loss(const Batch& batch, const PassContext& context) {
  std::vector<std::int32_t> seen;
  seen.reserve(batch.inputs.size() * static_cast<std::size_t>(shape_.context));
  for (std::int64_t s = 0; s < batch.sequences; ++s)
    for (std::int64_t t = 0; t < batch.length; ++t)
      for (std::int64_t back = shape_.context - 1; back >= 0; --back)
        seen.push_back(
            back > t ? 0 : batch.inputs[static_cast<std::size_t>(s * batch.length + t - back)]);
  Matrix<T> x = embedding_.forward(seen);
  x.rows = batch.sequences * batch.length;  // the context's embeddings beside each other
  x.columns = shape_.context * shape_.embedding;
  for (std::size_t i = 0; i < linears_.size(); ++i)
    x = activations_[i].forward(linears_[i]->forward(x, context), context);
  return cross_entropy_.forward(head_.forward(x, context), batch.targets, context);
}

template <typename T>
void Mlp<T>::backward(T scale, const PassContext& context) {
  Matrix<T> dx = head_.backward(cross_entropy_.backward(scale, context), context);
  for (std::size_t i = linears_.size(); i-- > 0;)
    dx = linears_[i]->backward(activations_[i].backward(dx, context), context);
  dx.rows *= shape_.context;
  dx.columns = shape_.embedding;
  embedding_.backward(dx);
}

template <typename T>
std::vector<Parameter<T>*> Mlp<T>::parameters() {
  std::vector<Parameter<T>*> all = embedding_.parameters();
  for (auto& linear : linears_) all.push_back(&linear->weight());
  all.push_back(&head_.weight());
  return all;
}

template <typename T>
std::vector<OperandCast*> Mlp<T>::casts() {
  std::vector<OperandCast*> all;
  if constexpr (std::is_same_v<T, float>) {
    for (auto& linear : linears_)
      for (OperandCast* cast : linear->products().casts()) all.push_back(cast);
    for (OperandCast* cast : head_.products().casts()) all.push_back(cast);
  }
  return all;
}

template class Mlp<float>;
template class Mlp<double>;

}  // namespace fp8lab::train
