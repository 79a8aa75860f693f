#pragma once
// A decoder-only transformer: embedding with learned positions, blocks of
// norm, causal attention, norm and feed-forward with residuals, norm, head.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fp8lab/linear/linear.hpp"
#include "training/train/activation.hpp"
#include "training/train/attention.hpp"
#include "training/train/cross_entropy.hpp"
#include "training/train/embedding.hpp"
#include "training/train/model.hpp"
#include "training/train/norm.hpp"

namespace fp8lab::train {

struct TransformerShape {
  std::int64_t vocabulary = 256;
  std::int64_t length = 64;  ///< tokens of a sequence
  std::int64_t width = 128;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t hidden = 256;  ///< of the feed-forward layer
  NormKind norm = NormKind::rms;
  ActivationKind activation = ActivationKind::swiglu;
};

/// The linear layers in the order of the forward pass.
std::vector<LinearLayer> linear_layers(const TransformerShape& shape);

/// One block: x += attention(norm(x)); x += feed_forward(norm(x)).
template <typename T>
class TransformerBlock {
 public:
  TransformerBlock(const std::string& name, const TransformerShape& shape,
                   const ModelRecipe& recipe);
  Matrix<T> forward(Matrix<T> x, std::int64_t length, const PassContext& context);
  Matrix<T> backward(Matrix<T> dx, const PassContext& context);
  void initialize_weights(std::int64_t layers, std::uint64_t seed);
  std::vector<Parameter<T>*> parameters();
  std::vector<Linear<T>*> linears() { return {&qkv_, &projection_, &up_, &down_}; }

 private:
  Norm<T> attention_norm_;
  Linear<T> qkv_;
  CausalAttention<T> attention_;
  Linear<T> projection_;
  Norm<T> feed_forward_norm_;
  Activation<T> activation_;
  Linear<T> up_;
  Linear<T> down_;
};

template <typename T>
class Transformer final : public Model<T> {
 public:
  /// Weights are normal with standard deviation 1/sqrt(inputs), at the end of a residual
  /// branch multiplied by 1/sqrt(2 layers); embeddings 0.1, head 0.02. Throws `Error`
  /// for a shape or recipe that does not fit.
  Transformer(const TransformerShape& shape, const ModelRecipe& recipe, std::uint64_t seed);

  double loss(const Batch& batch, const PassContext& context) override;
  void backward(T scale, const PassContext& context) override;
  std::vector<Parameter<T>*> parameters() override;
  std::vector<OperandCast*> casts() override;

 private:
  TransformerShape shape_;
  Embedding<T> embedding_;
  std::vector<std::unique_ptr<TransformerBlock<T>>> blocks_;
  Norm<T> norm_;
  Linear<T> head_;
  CrossEntropy<T> cross_entropy_;
};

extern template class Transformer<float>;
extern template class Transformer<double>;

}  // namespace fp8lab::train
