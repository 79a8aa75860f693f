#pragma once
// What the trainer knows of a model: tokens in, loss out, gradients back.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/train/layer.hpp"
#include "fp8lab/train/linear_recipe.hpp"
#include "fp8lab/train/operand_cast.hpp"

namespace fp8lab::train {

/// `sequences` rows of `length` tokens each, and the token that follows each.
struct Batch {
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

template <typename T>
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// The mean loss of a batch in nats a token.
  virtual double loss(const Batch& batch, const PassContext& context) = 0;

  /// Sets every gradient to `scale` times that of the last loss.
  virtual void backward(T scale, const PassContext& context) = 0;

  /// In a fixed order, with unique names.
  virtual std::vector<Parameter<T>*> parameters() = 0;

  /// The casts of all linear layers, in a fixed order; none in binary64.
  virtual std::vector<OperandCast*> casts() = 0;
};

/// Feature channels that are far larger than the others, as large models grow
/// them and small ones do not: set up by hand in the inputs of layers that
/// follow a norm (see `LinearProducts`).
struct OutlierChannels {
  std::int64_t count = 0;  ///< at evenly spread places
  int log2_magnitude = 0;  ///< each is 2^log2_magnitude times larger
};

/// One multiplier for each of `channels`; empty without outliers. Throws `Error`
/// for more outliers than channels.
std::vector<float> channel_multipliers(const OutlierChannels& outliers, std::int64_t channels);

/// The arithmetic of a model's linear layers.
struct ModelRecipe {
  LinearRecipe blocks;
  LinearRecipe head = bf16_recipe();  ///< recipes keep the head out of FP8
  OutlierChannels outliers;
  /// In place of the above, by the name of a layer (`block0.qkv`, `head`): what a system's layer
  /// rule keeps out of FP8. A trainer refuses names that its model does not have.
  std::map<std::string, LinearRecipe, std::less<>> layers{};

  [[nodiscard]] const LinearRecipe& of_layer(std::string_view name) const {
    const auto found = layers.find(name);
    if (found != layers.end()) return found->second;
    return name == "head" ? head : blocks;
  }
};

/// A linear layer of a model: its weight is [outputs, inputs].
struct LinearLayer {
  std::string name;  ///< as `ModelRecipe::layers` and parameters have it, without `.weight`
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// value[i] = sigma * N(0, 1), the stream named as the parameter.
template <typename T>
void initialize(Parameter<T>& parameter, double sigma, std::uint64_t seed) {
  const RandomStream random(seed, parameter.name);
  for (std::size_t i = 0; i < parameter.value.size(); ++i)
    parameter.value[i] = static_cast<T>(sigma * random.normal(i));
}

}  // namespace fp8lab::train
