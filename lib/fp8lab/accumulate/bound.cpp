#include "fp8lab/accumulate/bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab {

void BoundedSum::check_range(FormatId id) {
  overflows |= !(std::abs(value) + error < format(id).max_finite());
}

double BoundedSum::add_exactly(std::span<const BoundedTerm> terms) {
  double partial = 0.0;
  double magnitude = 0.0;
  for (const BoundedTerm& term : terms) {
    partial += term.value;
    magnitude += std::abs(term.value);
  }
  const double total = std::abs(value) + magnitude;
  value += partial;
  error += static_cast<double>(terms.size()) * kDoubleStep * total;
  return magnitude;
}

void BoundedSum::add_rounded(const BoundedSum& other, FormatId id) {
  error += other.error + kDoubleStep * std::abs(value + other.value);
  value += other.value;
  overflows |= other.overflows;
  round_to(id);
  check_range(id);
}

void BoundedSum::round_to(FormatId id) {
  const bool half = id == FormatId::f16;
  error += (std::abs(value) + error) * (half ? 0x1p-11 : kFloatStep);
  if (half) error += 0x1p-25;  // half a step of its subnormals
}

BoundedSum bounded_start(const AccumulatorModel& model, double start) {
  BoundedSum sum;
  sum.value = start;
  if (model.output_format == FormatId::f16) sum.round_to(FormatId::f16);
  return sum;
}

void bounded_dot_product(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                         BoundedSum& sum) {
  unit_of(model.kind).bound(model, terms, sum);
}

double flushed_error(std::span<const BoundedTerm> terms) {
  double error = 0.0;
  for (const BoundedTerm& term : terms)
    if (term.subnormal) error += std::abs(term.value);
  return error;
}

Alignment bounded_alignment(std::span<const BoundedTerm> terms, const BoundedSum& sum) {
  const double reach = std::abs(sum.value) + sum.error;
  Alignment found{std::numeric_limits<int>::min(), 0};
  if (reach > 0.0) found = {std::ilogb(reach), 1};
  for (const BoundedTerm& term : terms) {
    if (term.value == 0.0) continue;
    ++found.live;
    found.largest = std::max(found.largest, term.exponent);
  }
  return found;
}

}  // namespace fp8lab
