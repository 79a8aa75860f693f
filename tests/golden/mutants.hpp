#pragma once
// Models that are nearly right. Each differs from a model in one thing that recordings of its
// chip show; what they do not show is not here: FP16 sums hide the last bits of a wide alignment,
// and halves of random numbers have no sum of more than 24 bits.

#include <string>
#include <vector>

#include "fp8lab/accumulate/model.hpp"

struct Mutant {
  std::string change;
  fp8lab::AccumulatorModel model;
};

class Mutants {
 public:
  /// Of a model whose recordings have `terms` terms that are not zero.
  Mutants(const fp8lab::AccumulatorModel& right, int terms) : right_(right) {
    using enum fp8lab::AccumulationKind;
    using fp8lab::RoundingMode;
    if (right.kind == multiply_add_pairs) {
      add("subnormals kept").subnormals = fp8lab::Subnormals::kept;
      add("subnormal operands kept").subnormals = fp8lab::Subnormals::flushed_results;
      add("products rounded").kind = rounded_pairs;
      add("pairs added first").kind = rounded_sum;
      add("chains from zero").kind = multiply_add_chains;
      return;
    }
    const bool halves = right.kind == fp16_halves;
    const bool half_output = right.output_format == fp8lab::FormatId::f16;
    const bool nearest = right.rounding == RoundingMode::nearest_even;
    const int width = right.alignment_fraction_bits;
    const bool wide = width > 13;

    add("fewer bits aligned").alignment_fraction_bits =
        !wide || !(halves || half_output) ? width - 1 : (half_output ? 13 : 19);
    if (!wide || !(halves || half_output)) add("more bits aligned").alignment_fraction_bits++;
    if (half_output || !halves)
      add("other rounding").rounding =
          nearest ? RoundingMode::toward_zero : RoundingMode::nearest_even;
    if (terms > right.terms / 2) add("half the terms").terms /= 2;
    if (!halves && !half_output) {
      add("fewer bits kept").output_fraction_bits--;
      add("normalized").product_exponent = fp8lab::ProductExponent::normalized;
    }
    if (halves) add("no halves").kind = fused_dot_product;
    if (halves && half_output) add("separate halves").halves_order = fp8lab::HalvesOrder::separate;
    if (half_output) {
      fp8lab::AccumulatorModel& wider = add("binary32 sums");
      wider.output_format = fp8lab::FormatId::f32;
      wider.output_fraction_bits = 23;
      wider.rounding = RoundingMode::toward_zero;
    }
  }
  [[nodiscard]] const std::vector<Mutant>& all() const { return all_; }

 private:
  fp8lab::AccumulatorModel& add(const std::string& change) {
    return all_.emplace_back(Mutant{change, right_}).model;
  }

  fp8lab::AccumulatorModel right_;
  std::vector<Mutant> all_;
};
