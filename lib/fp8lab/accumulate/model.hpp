#pragma once
// How a matrix unit adds products up: the parameters of one accumulation step,
// and the registry of instructions whose parameters are known. Models are of
// instructions, not of GPUs. Specified in docs/specification/accumulation.md.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class AccumulationKind : std::uint8_t {
  fused_dot_product,  ///< fused truncated dot product, one step of `terms` products
  sequential,         ///< one product at a time, every partial sum rounded
  float32,            ///< sequential binary32 additions, nearest even
  exact,              ///< the exact sum, rounded once to binary32, nearest even
  fp16_halves,  ///< FP8 as FP16, two chained fused steps from zero, then a binary32 sum with c
  exact_dot_product,         ///< the exact sum of c and `terms` products, rounded once a step
  flushed_pairwise_sum,      ///< binary32 sums of pairs, everything subnormal made zero
  two_stage_dot_product,     ///< products aligned and truncated, then their sum and c rounded down
  even_odd_dot_product,      ///< the same of the sums of even and of odd products
  fused_multiply_add,        ///< binary32, one term after the other, nearest even
  scaled_dot_product,        ///< the fused step of products whose scales enter the alignment
  scaled_group_dot_product,  ///< the same of scaled exact sums of 16 products each
};
inline constexpr int kAccumulationKinds = 12;
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
///
/// The kinds below are from the literature on AMD's and on block-scaled units; each is told in
/// full where its class is, in `units/`.
///
/// `exact_dot_product` (CDNA1): c + `terms` products exactly, rounded to binary32, nearest even.
/// `flushed_pairwise_sum` (CDNA2): `terms` 2 or 4 products, each rounded to binary32, summed in
/// pairs, then added to c; subnormal operands, c, and every result below 2^-126 become zero.
/// `two_stage_dot_product` (CDNA3): products aligned to the largest of them and truncated to
/// `alignment_fraction_bits`; their sum, rounded down to `second_stage_fraction_bits` at the
/// larger exponent of both, and c, rounded down to `alignment_fraction_bits`, are added and
/// rounded to binary32, nearest even.
/// `even_odd_dot_product` (CDNA3, FP8): the first stage for even and for odd products apart.
/// `fused_multiply_add` (MFMA of binary32): c = fma(a, b, c) of one term after the other.
/// `scaled_dot_product` (mxf8f6f4): `fused_dot_product` of products whose exponents include those
/// of one UE8M0 scale an operand and step. Without scales they are 1.
/// `scaled_group_dot_product` (mxf4nvf4): exact sums of 16 products of E2M1, each times its two
/// scales and with the scales' exponent, and c are the terms of a fused step.
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
  /// Of `two_stage_dot_product` and `even_odd_dot_product`: 31, or 32, where the sum with c is
  /// rounded down to 31 before the last rounding. Sources disagree, see registry.cpp.
  int second_stage_fraction_bits = 31;
  bool takes_ue4m3_per_32 = false;  ///< of `scaled_group_dot_product`: else UE4M3 per 16 only

  friend bool operator==(const AccumulatorModel&, const AccumulatorModel&) = default;
};

/// Throws `Error` unless every field is in its documented range.
void validate(const AccumulatorModel& model);

/// The model's parameters by name, as text, `kind` first: what tells one model from another, in
/// checkpoints, lists and reports. The oldest parameters are always there; one that only some
/// units have is there for these.
struct ModelParameter {
  std::string_view name;
  std::string text;
};
std::vector<ModelParameter> parameters_of(const AccumulatorModel& model);

/// Whether the model takes operands of these formats: `fp16_halves` takes 8-bit formats
/// whose values are all FP16 values (E4M3 and E5M2 among them), `fused_multiply_add` binary32,
/// block-scaled ones what their scales are for, the others any tensor-core input.
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

/// Whose chips have an instruction: AMD's read and write FNUZ codes, NVIDIA's OCP's.
enum class Vendor : std::uint8_t { nvidia, amd };

/// A named instruction: its inputs, how it accumulates, and how that is known.
struct InstructionModel {
  std::string_view name;
  FormatId a_format;
  FormatId b_format;
  AccumulatorModel accumulator;
  Standing standing;
  std::string_view source;
  std::span<const ReplayedRows> evidence = {};
  Vendor vendor = Vendor::nvidia;  ///< of a definition it says nothing
};

/// Every registered model, hardware first.
std::span<const InstructionModel> instruction_models();

/// The model called `name`. Throws `Error` that lists near names.
const InstructionModel& find_instruction_model(std::string_view name);

}  // namespace fp8lab
