#pragma once
// The usual error measures of a tensor against its reference. All arithmetic is
// FP64 in a fixed order (`PairwiseSum`).

#include <cstddef>
#include <span>

namespace fp8lab {

/// Errors of `actual` y against `reference` x, element by element.
///
/// Non-finite elements: a pair agrees if both are NaN or both are the same
/// infinity, and is then left out of every sum. Any other pair with a NaN or an
/// infinity is a `non_finite_mismatch`; one such pair makes every real-valued
/// field NaN, so that no threshold passes by accident, and both indices name the
/// first such pair. The fields are NaN too if no pair of a tensor is finite: nothing
/// was measured. +0 and -0 are equal.
///
/// Zero references: if all of x is zero, `relative_l2` is 0 if y is zero too, and
/// +Inf otherwise. For one element, 0 against 0 has relative error 0, and any other
/// value against 0 has +Inf. Empty tensors are equal.
struct Comparison {
  std::size_t count = 0;                  ///< elements, non-finite ones included
  std::size_t mismatches = 0;             ///< pairs that differ in value
  std::size_t non_finite_mismatches = 0;  ///< of these, pairs with a NaN or an infinity
  double relative_l2 = 0.0;               ///< ||y - x|| / ||x||
  double sqnr_db = 0.0;                   ///< 10 log10(||x||^2 / ||y - x||^2); +Inf if equal
  double cosine = 1.0;                    ///< x.y / (||x|| ||y||); 1 if both are zero, 0 if one is
  double calc_diff = 0.0;     ///< 1 - 2 x.y / (||x||^2 + ||y||^2): DeepGEMM's; 0 if both are zero
  double max_absolute = 0.0;  ///< largest |y - x|
  std::size_t max_absolute_index = 0;  ///< the first element with it
  double max_relative = 0.0;           ///< largest |y - x| / |x|
  std::size_t max_relative_index = 0;  ///< the first element with it
  double mean_signed_relative = 0.0;   ///< sum of (y - x) sign(x) over sum of |x|: bias, < 0 is low

  /// Share of pairs that differ in value, 0 to 1; 0 for empty tensors.
  [[nodiscard]] double mismatch_rate() const;
};

/// Compares tensors of one size. Throws `Error` if the sizes differ.
Comparison compare(std::span<const double> reference, std::span<const double> actual);
Comparison compare(std::span<const double> reference, std::span<const float> actual);
Comparison compare(std::span<const float> reference, std::span<const float> actual);

/// Share of elements, 0 to 1, with |y - x| > absolute + relative |x|, as closeness
/// checks of test suites count it. NaN and NaN, and two equal infinities, are
/// close; any other pair with one of them is not.
double mismatch_rate(std::span<const float> reference, std::span<const float> actual,
                     double relative, double absolute);

}  // namespace fp8lab
