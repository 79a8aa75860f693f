#pragma once
// A small language model without attention: the embeddings of the last
// `context` tokens, hidden layers with GELU, a head.

#include <cstdint>
#include <memory>
#include <vector>

#include "fp8lab/linear/linear.hpp"
#include "training/train/activation.hpp"
#include "training/train/cross_entropy.hpp"
#include "training/train/embedding.hpp"
#include "training/train/model.hpp"

namespace fp8lab::train {

struct MlpShape {
  std::int64_t vocabulary = 256;
  std::int64_t context = 4;  ///< number of input tokens, including the current one
  std::int64_t embedding = 32;
  std::int64_t hidden = 128;
  std::int64_t layers = 2;  ///< hidden layers
};

/// The linear layers in the order of the forward pass.
std::vector<LinearLayer> linear_layers(const MlpShape& shape);

template <typename T>
class Mlp final : public Model<T> {
 public:
  /// Weights are normal with standard deviation 1/sqrt(inputs), embeddings 0.1, head
  /// 0.02. Throws `Error` for a shape or recipe that does not fit.
  Mlp(const MlpShape& shape, const ModelRecipe& recipe, std::uint64_t seed);

  /// Positions before the start of a sequence have token 0.
  double loss(const Batch& batch, const PassContext& context) override;
  void backward(T scale, const PassContext& context) override;
  std::vector<Parameter<T>*> parameters() override;
  std::vector<OperandCast*> casts() override;

 private:
  MlpShape shape_;
  Embedding<T> embedding_;
  std::vector<std::unique_ptr<Linear<T>>> linears_;
  std::vector<Activation<T>> activations_;
  Linear<T> head_;
  CrossEntropy<T> cross_entropy_;
};

extern template class Mlp<float>;
extern template class Mlp<double>;

}  // namespace fp8lab::train
