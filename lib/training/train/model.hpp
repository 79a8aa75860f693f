#pragma once
// The interface between trainer and model: tokens, loss, gradients.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/layer.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/operand_cast.hpp"

namespace fp8lab::train {

/// `sequences` rows of `length` tokens, and the successor of each token.
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

  /// The mean loss of a batch in nats per token.
  virtual double loss(const Batch& batch, const PassContext& context) = 0;

  /// Sets every gradient to `scale` times that of the last loss.
  virtual void backward(T scale, const PassContext& context) = 0;

  /// All parameters in a fixed order, with unique names.
  virtual std::vector<Parameter<T>*> parameters() = 0;

  /// The casts of all linear layers in a fixed order; empty in binary64.
  virtual std::vector<OperandCast*> casts() = 0;
};

/// Feature channels that are much larger than the others. Large models develop
/// them; here they are set artificially in the inputs of layers that follow a norm
/// (see `LinearProducts`).
struct OutlierChannels {
  std::int64_t count = 0;  ///< number of outlier channels, evenly spread
  int log2_magnitude = 0;  ///< each is 2^log2_magnitude times larger
};

/// One multiplier for each of `channels`; empty without outliers. Throws `Error`
/// for more outliers than channels.
std::vector<float> channel_multipliers(const OutlierChannels& outliers, std::int64_t channels);

/// The arithmetic of a model's linear layers.
struct ModelRecipe {
  LinearRecipe blocks;
  LinearRecipe head = bf16_recipe();  ///< systems do not run the head in FP8
  OutlierChannels outliers;
  /// Other recipes by the name of a layer (`block0.qkv`, `head`), for layers that a system does not
  /// run in FP8. A trainer refuses names that its model does not have.
  std::map<std::string, LinearRecipe, std::less<>> layers{};

  [[nodiscard]] const LinearRecipe& of_layer(std::string_view name) const {
    const auto found = layers.find(name);
    if (found != layers.end()) return found->second;
    return name == "head" ? head : blocks;
  }
};

/// A linear layer of a model: its weight is [outputs, inputs].
struct LinearLayer {
  std::string name;  ///< as in `ModelRecipe::layers`: the parameter's, without `.weight`
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// value[i] = sigma * N(0, 1), from the random stream with the parameter's name.
template <typename T>
void initialize(Parameter<T>& parameter, double sigma, std::uint64_t seed) {
  const RandomStream random(seed, parameter.name);
  for (std::size_t i = 0; i < parameter.value.size(); ++i)
    parameter.value[i] = static_cast<T>(sigma * random.normal(i));
}

}  // namespace fp8lab::train
