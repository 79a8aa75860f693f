#pragma once
// How far a unit's result can be from the exact sum, followed step by step in FP64.

#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// An exact product as a unit meets it.
struct BoundedTerm {
  double value = 0.0;
  int exponent = 0;        ///< that it brings to an alignment, scales included
  bool subnormal = false;  ///< of a subnormal operand, which some units take as zero
};

/// A sum with a bound on how far hardware may be from it.
struct BoundedSum {
  double value = 0.0;
  double error = 0.0;
  bool overflows = false;  ///< it may have passed the largest number of its format

  void check_range(FormatId id);
  /// Adds terms exactly but for FP64's own error. The sum of their magnitudes.
  double add_exactly(std::span<const BoundedTerm> terms);
  /// An ordinary addition rounded to nearest even in a format, f32 or f16.
  void add_rounded(const BoundedSum& other, FormatId id);
  void round_to(FormatId id);
};

/// Relative error of a binary32 operation, and of FP64 sums over many terms; binary32's smallest
/// step.
inline constexpr double kFloatStep = 0x1p-24;
inline constexpr double kDoubleStep = 0x1p-52;
inline constexpr double kTiny = 0x1p-149;

struct AccumulatorModel;

/// Follows c = `start` through the products of one chain of `model`. With FP16 output the start
/// is rounded to FP16 first.
BoundedSum bounded_start(const AccumulatorModel& model, double start);
void bounded_dot_product(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                         BoundedSum& sum);

/// What a term that a unit drops or rounds to binary32 can add to the error of a sum.
double flushed_error(std::span<const BoundedTerm> terms);

/// The largest exponent that non-zero terms and the sum bring to an alignment, and how many they
/// are.
struct Alignment {
  int largest;
  int live;
};
Alignment bounded_alignment(std::span<const BoundedTerm> terms, const BoundedSum& sum);

}  // namespace fp8lab
