#pragma once
// The fused truncated dot product, as one class and as the step that other units consist of.

#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab::accumulate_detail {

/// All steps of the fused truncated dot product of `model`'s parameters, whatever its kind.
float fused_chain(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c);

/// A step's rounded sum, with the sign that the model gives to zeros.
float with_zero_sign(const AccumulatorModel& model, float rounded);

/// The exponent to which one step of finite products and a finite c aligns its terms, its lower
/// limit included; kNoExponent where all of them are zero. The lowest bit that is kept has the
/// exponent of this less `alignment_fraction_bits`.
int fused_alignment(const AccumulatorModel& model, std::span<const Unpacked> a,
                    std::span<const Unpacked> b, float c);

/// Its bound over one step.
void bound_fused_step(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
                      BoundedSum& sum);

/// Those of a fused step, for `AccumulatorUnit::parameters`.
std::vector<std::string_view> fused_parameters(const AccumulatorModel& model);

UnitTraits fused_traits(const AccumulatorModel& model);

}  // namespace fp8lab::accumulate_detail
