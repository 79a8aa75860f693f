#pragma once
// Binary32 operations as the dot products of processors do them: exact, then rounded once to
// nearest even, with one of three treatments of numbers below 2^-126. Shared by the units of x86
// and Arm.

#include <cstddef>
#include <span>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/bound.hpp"
#include "fp8lab/accumulate/model.hpp"

namespace fp8lab::accumulate_detail {

class Binary32 {
 public:
  explicit Binary32(Subnormals subnormals) : subnormals_(subnormals) {}

  /// c + a b, rounded once.
  [[nodiscard]] float multiply_add(const Unpacked& a, const Unpacked& b, float c) const;
  [[nodiscard]] float add(float x, float y) const;
  /// An exact number, not zero, as a result.
  [[nodiscard]] float rounded(const Exact& x) const;
  /// An operand or c as it is read.
  [[nodiscard]] Unpacked read(const Unpacked& x) const;

 private:
  Subnormals subnormals_;
};

/// The exponent of the leading bit of a number that is not zero.
int binade_of(const Exact& x);

/// The factor that a step lacks: +0.
inline constexpr Unpacked kMissing{};

/// Operand i of a step, or +0 after its end.
inline const Unpacked& operand_at(std::span<const Unpacked> step, std::size_t i) {
  return i < step.size() ? step[i] : kMissing;
}

/// Adds a step whose partial sums are rounded to binary32 `roundings` times, each by at most
/// `step_error` of its size, and flushed below 2^-126 where the unit does so.
void bound_roundings(std::span<const BoundedTerm> step, int roundings, double step_error,
                     Subnormals subnormals, BoundedSum& sum);

}  // namespace fp8lab::accumulate_detail
