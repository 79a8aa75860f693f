#pragma once
// A linear layer without bias, Y = X W^T. A `LinearRecipe` gives the arithmetic of
// its three products. In binary64 it is the plain product.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/linear/layer.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/operand_cast.hpp"

namespace fp8lab::train {

/// The products of one layer at all steps, with the state of its casts.
template <typename T>
class LinearProducts;

template <>
class LinearProducts<double> {
 public:
  LinearProducts(const std::string& /*name*/, const LinearRecipe& /*recipe*/,
                 const std::vector<float>& /*channel_multipliers*/) {}
  void forward(const Matrix<double>& x, const Matrix<double>& w, Matrix<double>& y,
               const PassContext& context);
  void backward(const Matrix<double>& dy, const Matrix<double>& w, Matrix<double>& dx,
                Matrix<double>& dw, const PassContext& context);

 private:
  Matrix<double> x_;
};

/// `channel_multipliers` (empty, or one power of two for each input channel) create
/// outlier channels: X is multiplied and W is divided by them before the casts, and dX
/// and dW change accordingly. FP32 and BF16 products have the same values; only casts
/// to FP8 are affected.
template <>
class LinearProducts<float> {
 public:
  /// Throws `Error` for a recipe that is not valid or multipliers that are not powers of two.
  LinearProducts(const std::string& name, LinearRecipe recipe,
                 std::vector<float> channel_multipliers);

  /// x [tokens, in], w [out, in], y [tokens, out].
  void forward(const Matrix<float>& x, const Matrix<float>& w, Matrix<float>& y,
               const PassContext& context);
  /// For the last forward pass: dy [tokens, out], dx [tokens, in], dw [out, in].
  void backward(const Matrix<float>& dy, const Matrix<float>& w, Matrix<float>& dx,
                Matrix<float>& dw, const PassContext& context);

  /// The casts with their states, for checkpoints: activation, weight, gradient. Each is followed
  /// by that of its second product, if that has another recipe.
  [[nodiscard]] std::vector<OperandCast*> casts();

 private:
  LinearRecipe recipe_;
  std::vector<float> multipliers_;
  TwoCasts activation_;
  TwoCasts weight_;
  TwoCasts gradient_;
  Matrix<float> x_;  ///< only if wgrad needs the original
  QuantizedTensor weight_codes_;
  std::shared_ptr<const QuantizedTensor> x_transposed_;
};

template <typename T>
class Linear {
 public:
  Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs,
         const LinearRecipe& recipe, const std::vector<float>& channel_multipliers = {})
      : weight_(name + ".weight", {outputs, inputs}),
        products_(name, recipe, channel_multipliers) {}

  /// From x [tokens, in] to [tokens, out]. Throws `Error` for another number of channels.
  Matrix<T> forward(const Matrix<T>& x, const PassContext& context) {
    require(x.columns == weight_.shape[1], "x",
            "[tokens, in] with in = " + std::to_string(weight_.shape[1]),
            std::to_string(x.columns));
    Matrix<T> y(x.rows, weight_.shape[0]);
    const BorrowedWeight w(weight_);
    products_.forward(x, w.matrix, y, context);
    return y;
  }

  /// From dY to dX; sets the weight's gradient.
  Matrix<T> backward(const Matrix<T>& dy, const PassContext& context) {
    Matrix<T> dx(dy.rows, weight_.shape[1]);
    Matrix<T> dw(weight_.shape[0], weight_.shape[1]);
    const BorrowedWeight w(weight_);
    products_.backward(dy, w.matrix, dx, dw, context);
    weight_.gradient = std::move(dw.values);
    return dx;
  }

  [[nodiscard]] Parameter<T>& weight() { return weight_; }
  [[nodiscard]] LinearProducts<T>& products() { return products_; }

 private:
  /// The weight as a matrix for the duration of a call, without a copy.
  struct BorrowedWeight {
    explicit BorrowedWeight(Parameter<T>& w) : owner(w) {
      matrix.rows = w.shape[0];
      matrix.columns = w.shape[1];
      matrix.values.swap(w.value);
    }
    ~BorrowedWeight() { matrix.values.swap(owner.value); }
    BorrowedWeight(const BorrowedWeight&) = delete;
    BorrowedWeight& operator=(const BorrowedWeight&) = delete;
    Parameter<T>& owner;
    Matrix<T> matrix;
  };

  Parameter<T> weight_;
  LinearProducts<T> products_;
};

}  // namespace fp8lab::train
