#pragma once
// The interface of a matrix unit. Each kind of accumulation is one class in `units/`, which defines
// everything that depends on the kind: its scalar step, its operands, the distance of its result
// from the exact sum, and the parameters of the model that it uses.
//
// To add a unit, add a class there, an enumerator and parameters in model.hpp, a row in kinds.cpp,
// and instructions in registry.cpp (docs/adding.md).

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

/// Properties of a unit with its parameters, for tools.
struct UnitTraits {
  bool has_steps = false;    ///< takes `terms` products at a time, and `terms` is a parameter
  bool aligns = false;       ///< truncates terms at `alignment_fraction_bits`
  bool rounds_sums = false;  ///< `output_fraction_bits` and `rounding` have an effect
  /// Terms that are more than this many binades below the largest lose bits.
  int cut_fraction_bits = 23;
  bool keeps_all = false;  ///< only the final result is rounded
  bool takes_scales = false;
  bool has_second_stage = false;  ///< has `second_stage_fraction_bits`
};

class AccumulatorUnit {
 public:
  virtual ~AccumulatorUnit() = default;

  [[nodiscard]] virtual UnitTraits traits(const AccumulatorModel& model) const = 0;

  /// The parameters on which results of this unit depend, given its other parameters, by the names
  /// of `accumulator_parameters`. The unit ignores all others, and definitions cannot set them.
  [[nodiscard]] virtual std::vector<std::string_view> parameters(
      const AccumulatorModel& model) const = 0;

  /// c + a . b with all its steps. Operands: those that `takes` allows. Empty scales are 1.
  [[nodiscard]] virtual float dot_product(const AccumulatorModel& model,
                                          std::span<const Unpacked> a, std::span<const Unpacked> b,
                                          const BlockScales& scales, float c) const = 0;

  /// Adds products, whose exact values are given, to `sum` and updates its error bound.
  virtual void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                     BoundedSum& sum) const = 0;

  /// Throws `Error` unless the parameters are in the ranges that are specific to this unit.
  virtual void validate(const AccumulatorModel& /*model*/) const {}

  /// Whether operands may have this format, and the allowed formats in words.
  [[nodiscard]] virtual bool takes(const Format& operand) const {
    return operand.id != FormatId::f32 && operand.id != FormatId::e8m13;
  }
  [[nodiscard]] virtual std::string_view operands() const { return "a tensor-core input format"; }

  /// Whether blocks of `block` terms may have scales of this format, and the allowed ones in words.
  [[nodiscard]] virtual bool takes_scales(const AccumulatorModel& /*model*/, FormatId /*id*/,
                                          int /*block*/) const {
    return false;
  }
  [[nodiscard]] virtual std::string scale_forms(const AccumulatorModel& /*model*/) const {
    return "no block scales";
  }
};

/// One kind of unit. Definitions can use a kind as their base (definition.hpp).
struct AccumulatorKind {
  AccumulationKind kind;
  std::string_view name;
  std::string_view alias;        ///< a shorter spelling of the name; empty: none
  std::string_view instruction;  ///< gives the parameters that a definition leaves out
  const AccumulatorUnit& (*unit)();
};
/// All kinds, in the order of the enumerators.
std::span<const AccumulatorKind> accumulator_kinds();

/// The unit of this kind.
const AccumulatorUnit& unit_of(AccumulationKind kind);

inline UnitTraits traits_of(const AccumulatorModel& model) {
  return unit_of(model.kind).traits(model);
}

}  // namespace fp8lab
