#pragma once
// How a matrix unit adds products up: the parameters of one accumulation step,
// and the registry of instructions whose parameters are known. NUMERICS of the
// field in one sentence: model instructions, not GPUs.

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class AccumulationKind : std::uint8_t {
  fused_dot_product,  ///< fused truncated dot product, one step of `terms` products
  sequential,         ///< one product at a time, every partial sum rounded
  float32,            ///< sequential binary32 additions, nearest even
  exact,              ///< the exact sum, rounded once to binary32, nearest even
};
std::string_view to_string(AccumulationKind kind);
/// Throws `Error`.
AccumulationKind find_accumulation_kind(std::string_view name);

/// Which exponent a product brings to the alignment.
enum class ProductExponent : std::uint8_t {
  stored,      ///< sum of the operands' stored exponents; the significand may reach [2, 4)
  normalized,  ///< exponent of the product's leading bit (no known hardware; a test mutant)
};
std::string_view to_string(ProductExponent exponent);
/// Throws `Error`.
ProductExponent find_product_exponent(std::string_view name);

/// One accumulation behaviour as a plain value, so that experiments can sweep it.
///
/// `fused_dot_product`: each step takes `terms` exact products and the
/// accumulator c, aligns every non-zero one to the largest exponent among them,
/// truncates each toward zero to `alignment_fraction_bits`, adds exactly, and
/// rounds the sum to `output_fraction_bits` with `rounding`. A last, partial
/// step is filled with zeros.
///
/// `sequential`: c + product is rounded to `output_fraction_bits` with
/// `rounding`, for one product after the other; the exponent is unbounded
/// below, and products are first rounded (nearest even) to
/// `product_fraction_bits` where that is not negative.
struct AccumulatorModel {
  AccumulationKind kind = AccumulationKind::fused_dot_product;
  int terms = 32;
  int alignment_fraction_bits = 13;
  int output_fraction_bits = 13;
  RoundingMode rounding = RoundingMode::toward_zero;
  FormatId output_format = FormatId::f32;  ///< f32, or f16 (c enters rounded to FP16)
  ProductExponent product_exponent = ProductExponent::stored;
  int product_fraction_bits = -1;

  friend bool operator==(const AccumulatorModel&, const AccumulatorModel&) = default;
};

/// Throws `Error` unless every field is in its documented range.
void validate(const AccumulatorModel& model);

/// How well a model is known.
enum class Standing : std::uint8_t {
  measured,         ///< replays outputs of the real chip without a mismatch
  from_literature,  ///< published by others, not replayed here
  assumed,          ///< inferred from its neighbours
  definition,       ///< not hardware: a reference or a teaching model, exact by definition
};
std::string_view to_string(Standing standing);

/// A named instruction: its inputs, how it accumulates, and how that is known.
struct InstructionModel {
  std::string_view name;
  FormatId a_format;
  FormatId b_format;
  AccumulatorModel accumulator;
  Standing standing;
  std::string_view source;
};

/// Every registered model, hardware first.
std::span<const InstructionModel> instruction_models();

/// The model called `name`. Throws `Error` that lists near names.
const InstructionModel& find_instruction_model(std::string_view name);

}  // namespace fp8lab
