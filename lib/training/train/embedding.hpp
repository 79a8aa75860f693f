#pragma once
// Token embeddings, with learned positions where asked for.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

template <typename T>
class Embedding {
 public:
  /// `positions` 0: none.
  Embedding(const std::string& name, std::int64_t vocabulary, std::int64_t positions,
            std::int64_t width)
      : tokens_(name + ".tokens", {vocabulary, width}) {
    if (positions > 0) positions_.emplace(name + ".positions", std::vector{positions, width});
  }

  /// Row t: the embedding of tokens[t] plus that of position t % positions.
  Matrix<T> forward(std::span<const std::int32_t> tokens) {
    const std::int64_t width = tokens_.shape[1];
    ids_.assign(tokens.begin(), tokens.end());
    Matrix<T> x(static_cast<std::int64_t>(tokens.size()), width);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const std::int64_t id = ids_[static_cast<std::size_t>(t)];
      require(id >= 0 && id < tokens_.shape[0], "tokens",
              "tokens of a vocabulary of " + std::to_string(tokens_.shape[0]), std::to_string(id));
      const T* from = tokens_.value.data() + id * width;
      const T* position = positions_ ? positions_->value.data() + position_of(t) * width : nullptr;
      T* to = x.row(t);
      for (std::int64_t i = 0; i < width; ++i)
        to[i] = position == nullptr ? from[i] : from[i] + position[i];
    }
    return x;
  }

  /// Sets both gradients, adding tokens in their order.
  void backward(const Matrix<T>& dx) {
    const std::int64_t width = tokens_.shape[1];
    tokens_.gradient.assign(tokens_.gradient.size(), T{0});
    if (positions_) positions_->gradient.assign(positions_->gradient.size(), T{0});
    for (std::int64_t t = 0; t < dx.rows; ++t) {
      const T* d = dx.row(t);
      T* to = tokens_.gradient.data() + ids_[static_cast<std::size_t>(t)] * width;
      for (std::int64_t i = 0; i < width; ++i) to[i] += d[i];
      if (!positions_) continue;
      T* position = positions_->gradient.data() + position_of(t) * width;
      for (std::int64_t i = 0; i < width; ++i) position[i] += d[i];
    }
  }

  [[nodiscard]] std::vector<Parameter<T>*> parameters() {
    if (!positions_) return {&tokens_};
    return {&tokens_, &*positions_};
  }

 private:
  [[nodiscard]] std::int64_t position_of(std::int64_t t) const { return t % positions_->shape[0]; }

  Parameter<T> tokens_;
  std::optional<Parameter<T>> positions_;
  std::vector<std::int32_t> ids_;
};

}  // namespace fp8lab::train
