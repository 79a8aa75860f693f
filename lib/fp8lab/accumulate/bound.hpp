#pragma once
// Bounds on the distance between a unit's result and the exact sum, step by step in FP64.

#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// An exact product, as a unit receives it.
struct BoundedTerm {
  double value = 0.0;
  int exponent = 0;        ///< its exponent in an alignment, scales included
  bool subnormal = false;  ///< an operand is subnormal; some units read it as zero
};

/// A sum, and a bound on the distance of hardware's result from it.
struct BoundedSum {
  double value = 0.0;
  double error = 0.0;
  bool overflows = false;  ///< it may have exceeded the largest number of its format

  void check_range(FormatId id);
  /// Adds terms with FP64's error only. Returns the sum of their magnitudes.
  double add_exactly(std::span<const BoundedTerm> terms);
  /// An ordinary addition rounded to nearest even in a format, f32 or f16.
  void add_rounded(const BoundedSum& other, FormatId id);
  void round_to(FormatId id);
};

/// The relative error of a binary32 operation, that of an FP64 operation, and the smallest
/// positive binary32 number.
inline constexpr double kFloatStep = 0x1p-24;
inline constexpr double kDoubleStep = 0x1p-52;
inline constexpr double kTiny = 0x1p-149;

struct AccumulatorModel;

/// The bound for c = `start`, and for the products of one chain of `model` added to it. With FP16
/// output the start is rounded to FP16 first.
BoundedSum bounded_start(const AccumulatorModel& model, double start);
void bounded_dot_product(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                         BoundedSum& sum);

/// The error of a sum from terms that a unit drops or rounds to binary32.
double flushed_error(std::span<const BoundedTerm> terms);

/// The largest exponent of the non-zero terms and the sum in an alignment, and the number of
/// these.
struct Alignment {
  int largest;
  int live;
};
Alignment bounded_alignment(std::span<const BoundedTerm> terms, const BoundedSum& sum);

}  // namespace fp8lab
