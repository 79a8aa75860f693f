#pragma once
// How a matrix unit adds products: the parameters of one accumulation step, and
// the registry of instructions whose parameters are known. A model describes an
// instruction, not a GPU. Specified in docs/specification/accumulation.md.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class AccumulationKind : std::uint8_t {
  fused_dot_product,         ///< fused truncated dot product, one step of `terms` products
  sequential,                ///< one product at a time, every partial sum rounded
  float32,                   ///< sequential binary32 additions, nearest even
  exact,                     ///< the exact sum, rounded once to binary32, nearest even
  fp16_halves,               ///< FP8 as FP16: two fused steps from zero, then a binary32 sum with c
  exact_dot_product,         ///< the exact sum of c and `terms` products, rounded once a step
  flushed_pairwise_sum,      ///< binary32 sums of pairs; all subnormals become zero
  two_stage_dot_product,     ///< products aligned and truncated, then their sum and c rounded down
  even_odd_dot_product,      ///< the same, for the sums of even and of odd products
  fused_multiply_add,        ///< binary32, one term after the other, nearest even
  scaled_dot_product,        ///< the fused step of products whose scales enter the alignment
  scaled_group_dot_product,  ///< the same for scaled exact sums of 16 products each
  multiply_add_pairs,        ///< binary32 FMAs from c on, the odd product of each pair first
  multiply_add_chains,       ///< chains of binary32 FMAs from zero, then their sum, then c
  rounded_sum,               ///< the exact sum of `terms` products rounded once, then added to c
  scaled_rounded_sum,        ///< the same of four scaled products, all codes of which are numbers
  rounded_pairs,             ///< products, the sum of two, and that with c: each rounded
};
std::string_view to_string(AccumulationKind kind);
/// The kind called `name`. Throws `Error`.
AccumulationKind find_accumulation_kind(std::string_view name);

/// The exponent of a product in the alignment.
enum class ProductExponent : std::uint8_t {
  stored,      ///< sum of the operands' stored exponents; the significand may reach [2, 4)
  normalized,  ///< exponent of the product's leading bit (no known hardware; a test mutant)
};
std::string_view to_string(ProductExponent exponent);
/// The value called `name`. Throws `Error`.
ProductExponent find_product_exponent(std::string_view name);

/// The exponent of a subnormal FP16 c in the alignment of a step with FP16 output.
/// Sources disagree (mmasim 2.1.1: stored; the MATLAB models of Khattak and Mikaitis:
/// widened). *Measured* on an H200: stored. For the other registered instructions it is
/// *from literature*.
enum class HalfCExponent : std::uint8_t {
  stored,   ///< FP16's smallest normal exponent, -14
  widened,  ///< the exponent of c as a binary32 number, down to -24
};
std::string_view to_string(HalfCExponent exponent);
/// The value called `name`. Throws `Error`.
HalfCExponent find_half_c_exponent(std::string_view name);

/// The sign of a step's sum that is not zero but rounds to zero. *Measured* on an H200: +0 for all
/// sums. mmasim 2.1.1 has +0 for all units of NVIDIA (*from literature*). The MATLAB models keep
/// the sign, but compare as numbers, to which both zeros are equal.
enum class ZeroSign : std::uint8_t {
  kept,      ///< the sum's
  positive,  ///< always +0
};
std::string_view to_string(ZeroSign sign);
/// The value called `name`. Throws `Error`.
ZeroSign find_zero_sign(std::string_view name);

/// What binary32 arithmetic of processors makes of numbers below 2^-126. A result is below it if it
/// is after rounding with an unbounded exponent. Zeros keep the sign.
enum class Subnormals : std::uint8_t {
  kept,             ///< gradual underflow, as IEEE 754 has it
  flushed_results,  ///< results become zero; operands and c are read as they are
  flushed,          ///< operands, c and results become zero
};
std::string_view to_string(Subnormals subnormals);
/// The value called `name`. Throws `Error`.
Subnormals find_subnormals(std::string_view name);

/// How `rounded_pairs` rounds to binary32. All operands and results below 2^-126 become zero.
enum class PairRounding : std::uint8_t {
  nearest_even,  ///< and a result is below 2^-126 if it is after rounding
  to_odd,        ///< an inexact result gets an odd last bit; it is below 2^-126 before rounding
};
std::string_view to_string(PairRounding rounding);
/// The value called `name`. Throws `Error`.
PairRounding find_pair_rounding(std::string_view name);

/// How the two steps of `fp16_halves` are combined.
enum class HalvesOrder : std::uint8_t {
  chained,   ///< the second step starts from the sum of the first (CUDA 12.8 to 13.0)
  separate,  ///< both start from zero, and their sums are added (CUDA 12.4 to 12.6)
};
std::string_view to_string(HalvesOrder order);
/// The order called `name`. Throws `Error`.
HalvesOrder find_halves_order(std::string_view name);

/// `min_alignment_exponent` of a unit without such a limit: below that of every product.
inline constexpr int kNoMinAlignmentExponent = -1024;

/// The parameters of one accumulator as a plain value, so that experiments can sweep them.
///
/// `fused_dot_product`: each step takes `terms` exact products and the accumulator c. It
/// aligns all that are not zero to the largest exponent among them, or to
/// `min_alignment_exponent` if that is larger. It truncates each toward zero to
/// `alignment_fraction_bits`, adds them exactly, and rounds the sum to
/// `output_fraction_bits` with `rounding`. With FP16 output c is rounded to FP16, to
/// nearest even, before the first step. Zeros fill a last, partial step.
///
/// `sequential`: adds one product after the other and rounds each sum to
/// `output_fraction_bits` with `rounding`. The exponent has no lower bound. If
/// `product_fraction_bits` is not negative, each product is first rounded to
/// it, to nearest even.
///
/// `fp16_halves`: compilers emulate FP8 `mma.sync` in this way on chips without it. An
/// instruction takes `terms` products, a multiple of 4, of operands converted to FP16 (so
/// subnormals of E4M3 have the exponents of normal numbers). A fused step as above takes
/// the products with k mod 4 < 2 and starts from zero. A second step takes the others and
/// starts from the first sum, or from zero (`halves_order`). Then c and the sum are added
/// in the output's format, to nearest even, with subnormals and IEEE 754's signs of zero.
/// The other fields are those of the two steps. Zeros fill a last, partial instruction.
/// *Read* in machine code that ptxas generates for sm_90 and sm_100a (two HMMA, then FADD or
/// HADD2). Recorded rows of H100 and B200 replay with chained halves.
///
/// The kinds below are from the literature on AMD's units and on block-scaled units. The file of
/// each class in `units/` has the full rule.
///
/// `exact_dot_product` (CDNA1): c + `terms` products, exact, rounded to binary32, nearest even.
/// `flushed_pairwise_sum` (CDNA2): 2 or 4 products (`terms`), each rounded to binary32, are summed
/// in pairs and added to c. Subnormal operands, c and results below 2^-126 become zero.
/// `two_stage_dot_product` (CDNA3): products are aligned to the largest one, truncated to
/// `alignment_fraction_bits` and added. Their sum is rounded down to `second_stage_fraction_bits`
/// at the larger exponent of the sum and c; c is rounded down to `alignment_fraction_bits`. Both
/// are added and rounded to binary32, to nearest even.
/// `even_odd_dot_product` (CDNA3, FP8): the same with separate first stages for even and odd terms.
/// `fused_multiply_add` (MFMA of binary32): c = fma(a, b, c) for one term after the other.
/// `scaled_dot_product` (mxf8f6f4): `fused_dot_product` of products whose exponents include those
/// of one UE8M0 scale per operand and step. Without scales they are 1.
/// `scaled_group_dot_product` (mxf4nvf4): the terms of a fused step are c and exact sums of 16
/// products of E2M1, each multiplied by its two scales and with the exponent of the scales.
///
/// The kinds below are those of processors, whose vendors publish the rule as pseudo-code
/// (docs/specification/units-of-processors.md). All round to binary32, to nearest even.
///
/// `multiply_add_pairs` (VDPBF16PS): c = fma(a1, b1, c), then c = fma(a0, b0, c), pair by pair.
/// `multiply_add_chains` (AMX): product i of `terms` is added by an FMA to chain i mod `chains`,
/// which starts from +0. The chains are added, then c.
/// `rounded_sum` (AMX FP8; BFDOT with FEAT_EBF16): the sum of `terms` products is exact, rounded
/// once, and added to c.
/// `scaled_rounded_sum` (ACE): the same of 4 products under one UE8M0 scale an operand. Codes of
/// NaN and infinity are read as the numbers that would follow the largest one.
/// `rounded_pairs` (BFDOT; ACE's BF16): a0 b0, a1 b1, their sum, and that with c are rounded as
/// `pair_rounding` says.
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
  /// For fused steps: also of halves, scaled, in groups. For `rounded_sum` and
  /// `scaled_rounded_sum`: that of a sum of products that are all -0.
  ZeroSign zero_sign = ZeroSign::kept;
  HalvesOrder halves_order = HalvesOrder::chained;
  /// For `two_stage_dot_product` and `even_odd_dot_product`: 31 or 32. With 32 the sum with c is
  /// rounded down to 31 before the last rounding. Sources disagree, see registry.cpp.
  int second_stage_fraction_bits = 31;
  bool takes_ue4m3_per_32 = false;  ///< for `scaled_group_dot_product`: else UE4M3 per 16 only
  int chains = 2;                   ///< for `multiply_add_chains`: 1 to 8
  /// For `multiply_add_pairs`, `multiply_add_chains`, `rounded_sum` and `scaled_rounded_sum`.
  Subnormals subnormals = Subnormals::kept;
  PairRounding pair_rounding = PairRounding::nearest_even;  ///< for `rounded_pairs`

  friend bool operator==(const AccumulatorModel&, const AccumulatorModel&) = default;
};

/// Throws `Error` unless every field is in its documented range.
void validate(const AccumulatorModel& model);

/// The model's parameters by name, as text, `kind` first. Checkpoints, lists and reports
/// identify a model by them. Common parameters are always present; those of some units only for
/// these.
struct ModelParameter {
  std::string_view name;
  std::string text;
};
std::vector<ModelParameter> parameters_of(const AccumulatorModel& model);

/// Whether the model accepts operands of these formats. `fp16_halves` accepts 8-bit formats
/// whose values are all FP16 values (E4M3, E5M2 and others), `fused_multiply_add` binary32,
/// block-scaled kinds the formats that their scales are for, all others any tensor-core input.
bool takes_formats(const AccumulatorModel& model, FormatId a, FormatId b);
/// Throws `Error` that names `a` or `b` unless `takes_formats`.
void require_formats(const AccumulatorModel& model, FormatId a, FormatId b);

/// How well a model is known.
enum class Standing : std::uint8_t {
  measured,         ///< replays outputs of the real chip without a mismatch
  specified,        ///< the vendor publishes the rule as pseudo-code; not replayed here
  from_literature,  ///< published by others, not replayed here
  assumed,          ///< inferred from its neighbours
  definition,       ///< not hardware: a reference or a teaching model, exact by definition
};
std::string_view to_string(Standing standing);

/// Recorded outputs of a chip that a model replays without a mismatch.
struct ReplayedRows {
  std::string_view recording;  ///< a vector file; tests/golden/silicon has a part of it
  std::string_view gpu;
  int rows;  ///< rows of the whole file
};

/// The vendor of a GPU's instruction, or the instruction set of a processor's. AMD's GPUs read and
/// write FNUZ codes, all others OCP codes.
enum class Vendor : std::uint8_t { nvidia, amd, x86, arm };

/// A named instruction: its input formats, its accumulator, and how well that is known.
struct InstructionModel {
  std::string_view name;
  FormatId a_format;
  FormatId b_format;
  AccumulatorModel accumulator;
  Standing standing;
  std::string_view source;
  std::span<const ReplayedRows> evidence = {};
  Vendor vendor = Vendor::nvidia;  ///< has no meaning for a definition
};

/// All registered models, hardware first.
std::span<const InstructionModel> instruction_models();

/// The registered model or definition called `name`. Throws `Error` that lists the models.
const InstructionModel& find_instruction_model(std::string_view name);

}  // namespace fp8lab
