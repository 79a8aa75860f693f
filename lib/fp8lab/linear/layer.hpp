#pragma once
// Shared parts of the layers of a model: parameters and the context of a pass.
//
// Layers are templates over the scalar: `float` for training, `double` for
// gradient checks by differences. A layer stores the data of the last forward pass
// that its backward pass needs. A backward pass sets gradients; it does not add.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/linear/multiply.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::train {

/// A trained tensor: row-major, with its gradient after a backward pass.
template <typename T>
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<T> value;
  std::vector<T> gradient;

  Parameter(std::string n, std::vector<std::int64_t> s) : name(std::move(n)), shape(std::move(s)) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    require(size > 0, name, "dimensions above 0", std::to_string(size) + " elements");
    value.resize(static_cast<std::size_t>(size));
    gradient.resize(value.size());
  }
};

/// Called for every FP8 cast of a pass. `name`: layer and role (`block0.qkv.gradient`).
using CastObserver =
    std::function<void(std::string_view name, const FloatMatrix& x, const QuantizedTensor& q)>;

/// The context of a pass. It does not change the bits of the results.
struct PassContext {
  int threads = 1;
  CastObserver on_cast;  ///< may be empty
  Backend backend{};     ///< computes FP8 casts and the products of matrix units
};

/// The sum of term(i) for i in [0, n) in eight interleaved partial sums. The order
/// suits vector units and depends only on n.
template <typename T, typename Term>
T lane_sum(std::int64_t n, Term term) {
  constexpr std::int64_t kLanes = 8;
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (std::int64_t l = 0; i < n; ++i, ++l) lanes[l] += term(i);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// to += from, element by element.
template <typename T>
void add_to(Matrix<T>& to, const Matrix<T>& from) {
  for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] += from.values[i];
}

}  // namespace fp8lab::train
