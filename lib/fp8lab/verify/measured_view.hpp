#pragma once
// A sample of an output as sums over blocks of K, and the least squares that give their weights.

#define EIGEN_DONT_PARALLELIZE  // threads decide nothing
#include <Eigen/Dense>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

using Doubles = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Sampled outputs [rows, columns] with the FP64 values of their operands.
class MeasuredView {
 public:
  /// `got` has the codes of the whole output.
  MeasuredView(const Product& product, std::span<const std::byte> got, Sample sample, int threads);

  [[nodiscard]] const Sample& sample() const { return sample_; }
  [[nodiscard]] const Product& product() const { return sampled_; }
  [[nodiscard]] std::int64_t rows() const { return sampled_.rows(); }
  [[nodiscard]] std::int64_t columns() const { return sampled_.columns(); }
  [[nodiscard]] std::int64_t k() const { return sampled_.problem.a.k; }
  /// The sums that the outputs stand for, without C and a linear epilogue; NaN where an output
  /// does not tell (it is not finite, it is saturated, or an activation hides it).
  [[nodiscard]] const Doubles& sums() const { return sums_; }
  /// The same of the right outputs.
  [[nodiscard]] const Doubles& right_output_sums() const { return right_sums_; }
  /// The error that right outputs have against FP64 sums, relative to the sums' RMS.
  [[nodiscard]] double noise() const { return noise_; }
  [[nodiscard]] double rms() const { return rms_; }
  /// Values of the operands' codes, [rows, k]; 0 for NaN and infinities.
  [[nodiscard]] const Doubles& a() const { return a_; }
  [[nodiscard]] const Doubles& b() const { return b_; }
  /// The scales of both operands at term k, tensor scales included: of sampled rows and columns.
  [[nodiscard]] double scale_a(std::int64_t row, std::int64_t at) const;
  [[nodiscard]] double scale_b(std::int64_t column, std::int64_t at) const;
  /// Terms [begin, end) of A times the terms of B that begin at `of_b`, without scales.
  [[nodiscard]] Doubles products(std::int64_t begin, std::int64_t end, std::int64_t of_b) const;
  [[nodiscard]] Doubles products(std::int64_t begin, std::int64_t end) const {
    return products(begin, end, begin);
  }
  /// Multiplies products by both scales at term `at`.
  void apply_scales(Doubles& products, std::int64_t at) const;
  /// The right sums in FP64.
  [[nodiscard]] Doubles right_sums() const;

  /// Whether what a fit leaves is no more than what right outputs leave.
  [[nodiscard]] bool fits(double left_rms) const;

 private:
  Sample sample_;
  Product sampled_;
  Doubles a_, b_, sums_, right_sums_;
  double noise_ = 0.0;
  double rms_ = 0.0;
};

/// The weights w of y = X w by least squares, with standard errors, and the RMS of what is left.
struct Weights {
  Eigen::VectorXd values;
  Eigen::VectorXd errors;  ///< infinite where a column is zero or depends on others
  double left = 0.0;
};
/// Rows of `x` where `y` is NaN do not count. Nothing for fewer than `spare` rows more than
/// columns.
std::optional<Weights> least_squares(const Eigen::MatrixXd& x, const Eigen::VectorXd& y,
                                     Eigen::Index spare = 4);

/// At most `most` of these positions, evenly spread.
std::vector<std::int64_t> some(const std::vector<std::int64_t>& of, std::int64_t most);

/// A number to few digits, as texts show measured weights.
std::string measured_text(double value);

/// The number near x, which is not 0, that `fits` and has the fewest binary digits behind its first
/// one, from `fewest` to `most`; x itself if there is none.
template <typename Fits>
double of_few_bits(double x, int fewest, int most, const Fits& fits) {
  for (int bits = fewest; bits <= most; ++bits) {
    const double step = std::ldexp(1.0, std::ilogb(x) - bits);
    const double nearest = std::round(x / step) * step;
    if (fits(nearest)) return nearest;
  }
  return x;
}
/// The same of decimal digits, one at least.
template <typename Fits>
double of_few_decimals(double x, int most, const Fits& fits) {
  for (int digits = 1; digits <= most; ++digits) {
    const double step = std::pow(10.0, std::floor(std::log10(std::abs(x))) + 1.0 - digits);
    const double nearest = std::round(x / step) * step;
    if (fits(nearest)) return nearest;
  }
  return x;
}

}  // namespace fp8lab
