#pragma once
// How a matrix unit adds products up: the parameters of one accumulation step,
// and the registry of instructions whose parameters are known. Models are of
// instructions, not of GPUs. Specified in docs/specification/accumulation.md.

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
  fp16_halves,  ///< FP8 as FP16, two chained fused steps from zero, then a binary32 sum with c
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

/// Which exponent a subnormal FP16 c brings to the alignment of a step with FP16
/// output. Sources disagree (MMA-Sim: stored; the MATLAB models of Khattak and
/// Mikaitis: widened) and no recorded row has such a c: what the registered
/// instructions say is *assumed*.
enum class HalfCExponent : std::uint8_t {
  stored,   ///< FP16's smallest normal exponent, -14
  widened,  ///< that of c as a binary32 number, down to -24
};
std::string_view to_string(HalfCExponent exponent);
/// Throws `Error`.
HalfCExponent find_half_c_exponent(std::string_view name);

/// How the two steps of `fp16_halves` meet.
enum class HalvesOrder : std::uint8_t {
  chained,   ///< the second step goes on from the first one's sum (CUDA 12.8 to 13.0)
  separate,  ///< both start from zero, and their sums are added (CUDA 12.4 to 12.6)
};
std::string_view to_string(HalvesOrder order);
/// Throws `Error`.
HalvesOrder find_halves_order(std::string_view name);

/// `min_alignment_exponent` of a unit without such a limit: below every product.
inline constexpr int kNoMinAlignmentExponent = -1024;

/// One accumulation behaviour as a plain value, so that experiments can sweep it.
///
/// `fused_dot_product`: each step takes `terms` exact products and the
/// accumulator c, aligns every non-zero one to the largest exponent among them,
/// but to no less than `min_alignment_exponent`, truncates each toward zero to
/// `alignment_fraction_bits`, adds exactly, and rounds the sum to
/// `output_fraction_bits` with `rounding`. With FP16 output c is rounded to FP16 (to
/// nearest even) before the first step. A last, partial step is filled with zeros.
///
/// `sequential`: c + product is rounded to `output_fraction_bits` with
/// `rounding`, for one product after the other; the exponent is unbounded
/// below, and products are first rounded (nearest even) to
/// `product_fraction_bits` where that is not negative.
///
/// `fp16_halves`: what compilers make of FP8 `mma.sync` for chips that do not have
/// it. An instruction takes `terms` products, a multiple of 4, of operands made FP16
/// (so E4M3's subnormals bring the exponents of normal numbers). A fused step as above
/// takes those with k mod 4 < 2, starting from zero; another one the rest, starting
/// from the first one's sum, or from zero (`halves_order`); then c and the sum are added
/// in the output's format, nearest even, with subnormals and IEEE 754's signs of zero.
/// The other fields are those of the two steps. A last, partial instruction is filled
/// with zeros. Known from machine code that ptxas makes for sm_90 and sm_100a (two HMMA,
/// and FADD or HADD2); recorded rows of H100 and B200 replay with chained halves.
struct AccumulatorModel {
  AccumulationKind kind = AccumulationKind::fused_dot_product;
  int terms = 32;
  int alignment_fraction_bits = 13;
  int output_fraction_bits = 13;
  RoundingMode rounding = RoundingMode::toward_zero;
  FormatId output_format = FormatId::f32;  ///< f32, or f16 (c enters rounded to FP16)
  ProductExponent product_exponent = ProductExponent::stored;
  int product_fraction_bits = -1;
  int min_alignment_exponent = kNoMinAlignmentExponent;
  HalfCExponent half_c_exponent = HalfCExponent::stored;
  HalvesOrder halves_order = HalvesOrder::chained;

  friend bool operator==(const AccumulatorModel&, const AccumulatorModel&) = default;
};

/// Throws `Error` unless every field is in its documented range.
void validate(const AccumulatorModel& model);

/// Whether the model takes operands of these formats: `fp16_halves` takes 8-bit formats
/// whose values are all FP16 values (E4M3 and E5M2 among them), the others any.
bool takes_formats(const AccumulatorModel& model, FormatId a, FormatId b);
/// Throws `Error` naming `a` or `b` unless it does.
void require_formats(const AccumulatorModel& model, FormatId a, FormatId b);

/// How well a model is known.
enum class Standing : std::uint8_t {
  measured,         ///< replays outputs of the real chip without a mismatch
  from_literature,  ///< published by others, not replayed here
  assumed,          ///< inferred from its neighbours
  definition,       ///< not hardware: a reference or a teaching model, exact by definition
};
std::string_view to_string(Standing standing);

/// Outputs of a chip that a model replays without a mismatch.
struct ReplayedRows {
  std::string_view recording;  ///< a vector file; a part of it is in tests/golden/silicon
  std::string_view gpu;
  int rows;  ///< of the whole file
};

/// A named instruction: its inputs, how it accumulates, and how that is known.
struct InstructionModel {
  std::string_view name;
  FormatId a_format;
  FormatId b_format;
  AccumulatorModel accumulator;
  Standing standing;
  std::string_view source;
  std::span<const ReplayedRows> evidence = {};
};

/// Every registered model, hardware first.
std::span<const InstructionModel> instruction_models();

/// The model called `name`. Throws `Error` that lists near names.
const InstructionModel& find_instruction_model(std::string_view name);

}  // namespace fp8lab
