#pragma once
// What the library asks of a matrix unit. Each kind of accumulation is one class in `units/`,
// which answers everything that depends on the kind: its scalar step, what it takes, how far its
// result can be from the exact sum, and which of the model's parameters are its own.
//
// A new unit is a class there, an enumerator and its parameters in model.hpp, and its rows in
// registry.cpp.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/bound.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/scales.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// How sums come about, as far as fast kernels tell units apart.
enum class Arithmetic : std::uint8_t {
  fused_steps,    ///< the fused truncated dot product of the model's parameters
  halves,         ///< two fused steps an instruction, then an addition
  sequential,     ///< one product at a time, every sum rounded
  float32,        ///< one binary32 addition a product
  exact,          ///< one rounding of the exact sum
  exact_steps,    ///< one rounding a step of the exact sum of it and c
  multiply_adds,  ///< one binary32 fused multiply-add a product
  flushed_pairs,  ///< binary32 sums of pairs of products, without subnormals
  two_stage,      ///< aligned products, then their sum and c rounded down
  even_odd,       ///< the same of even and odd products apart
  scaled_steps,   ///< fused steps of products that scales shift before the alignment
  scaled_groups,  ///< fused steps of scaled exact sums
  other,          ///< only the scalar step knows
};

/// What tools want to know of a unit with its parameters.
struct UnitTraits {
  Arithmetic arithmetic = Arithmetic::other;
  bool has_steps = false;    ///< takes `terms` products at a time: they are a parameter
  bool aligns = false;       ///< cuts terms at `alignment_fraction_bits`
  bool rounds_sums = false;  ///< sums have `output_fraction_bits` and a rounding that matter
  /// Terms further than this below the largest lose bits.
  int cut_fraction_bits = 23;
  bool keeps_all = false;  ///< only the final result is rounded
  bool takes_scales = false;
  bool has_second_stage = false;  ///< has `second_stage_fraction_bits`
};

class AccumulatorUnit {
 public:
  virtual ~AccumulatorUnit() = default;

  [[nodiscard]] virtual UnitTraits traits(const AccumulatorModel& model) const = 0;

  /// The parameters, by the names of `accumulator_parameters`, on which results of this unit depend
  /// while the others are as they are. All others are ignored, and no user can give them.
  [[nodiscard]] virtual std::vector<std::string_view> parameters(
      const AccumulatorModel& model) const = 0;

  /// c + a . b, all steps of it. Operands as `takes` allows; no scales means scales of 1.
  [[nodiscard]] virtual float dot_product(const AccumulatorModel& model,
                                          std::span<const Unpacked> a, std::span<const Unpacked> b,
                                          const BlockScales& scales, float c) const = 0;

  /// Follows `sum` through products whose exact values are given.
  virtual void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                     BoundedSum& sum) const = 0;

  /// Throws `Error` unless the parameters are in the ranges that only this unit knows.
  virtual void validate(const AccumulatorModel& /*model*/) const {}

  /// Whether operands may have this format, and which may, in words.
  [[nodiscard]] virtual bool takes(const Format& operand) const {
    return operand.id != FormatId::f32 && operand.id != FormatId::e8m13;
  }
  [[nodiscard]] virtual std::string_view operands() const { return "a tensor-core input format"; }

  /// Whether blocks of `block` terms may have scales of this format, and which may, in words.
  [[nodiscard]] virtual bool takes_scales(const AccumulatorModel& /*model*/, FormatId /*id*/,
                                          int /*block*/) const {
    return false;
  }
  [[nodiscard]] virtual std::string scale_forms(const AccumulatorModel& /*model*/) const {
    return "no block scales";
  }
};

/// The unit of this kind.
const AccumulatorUnit& unit_of(AccumulationKind kind);

inline UnitTraits traits_of(const AccumulatorModel& model) {
  return unit_of(model.kind).traits(model);
}

}  // namespace fp8lab
