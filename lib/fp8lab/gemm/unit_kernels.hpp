#pragma once
// Kernels of AMD's, of block-scaled units and of processors, and of NVIDIA's steps of few terms:
// see kernels.hpp.

#include <cstdint>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/gemm/kernels.hpp"

namespace fp8lab::gemm_detail {

/// In steps of 32-bit integers no alignment exponent is below this, and zeros bring less.
inline constexpr int kWordExponentFloor = -100;
inline constexpr int kWordExponentOfZero = -128;

/// Terms that share a scale in steps of scaled groups.
inline constexpr std::int64_t kGroupTerms = 16;

/// Of steps whose aligned products are 32-bit integers.
struct WordRounding {
  int alignment_fraction_bits = 24;
  int output_fraction_bits = 23;        ///< of fused steps
  int second_stage_fraction_bits = 32;  ///< of the others; 32: of their sum with c 31
  /// Of fused steps: nearest even to FP16; what no alignment is below, at least
  /// kWordExponentFloor; and what a c that is not zero brings at least.
  bool half_output = false;
  int exponent_floor = kWordExponentFloor;
  int c_exponent_floor = -126;
  /// Of fused steps: 32 bits hold the products of half the terms, and the sum of both halves
  /// has 33.
  bool two_sums = false;
  /// Of CDNA3's: 32 bits in the second stage, 23 or more in the first, and sums below 2^29, for
  /// which a shorter last part is enough.
  bool short_second_stage = false;
};

/// Steps of products that are aligned as 32-bit integers: docs/lab/gemm.md, "Short steps". Operands
/// are plain values; exponents are the stored ones as signed bytes, -128 of zeros.
struct WordKernels {
  /// The exponents of `count` values, a multiple of a panel's width, of a format whose smallest
  /// normal exponent is given.
  void (*exponents)(const float* values, std::int64_t count, int smallest, std::uint8_t* to);
  /// Fused steps. Needs rounding toward zero.
  void (*fused)(const StepBlock<float>&, const WordRounding&);
  /// CDNA3's. Need rounding to nearest.
  void (*two_stage)(const StepBlock<float>&, const WordRounding&);
  void (*even_odd)(const StepBlock<float>&, const WordRounding&);
};

/// Binary32 sums of pairs of products.
struct PairKernels {
  /// Steps hold groups of 2 or 4 terms. Needs rounding to nearest and, where `by_mode`, results
  /// flushed to zero by the processor.
  void (*flushed)(const StepBlock<float>&, std::int64_t group);
  bool by_mode = false;
};

/// One operand's groups of terms: [group][stride], from the first group and row of a block.
struct GroupScales {
  const double* scale = nullptr;
  /// Stored exponents of the scales; of a scale of zero kExponentOfZeroScale.
  const std::int32_t* exponent = nullptr;
  const std::uint32_t* nonzero = nullptr;  ///< bit t: term t is not zero
  std::int64_t stride = 0;
};
/// Below all alignments, whatever scale it meets.
inline constexpr int kExponentOfZeroScale = -4096;

/// Of steps of scaled groups; the floor has no bias.
struct GroupRounding {
  int alignment_fraction_bits = 35;
  int output_fraction_bits = 23;
  int exponent_floor = 0;
};

/// Steps of scaled groups; state is as in StepBlock.
struct GroupBlock {
  StepBlock<float> steps;
  GroupScales a;
  GroupScales b;
  GroupRounding rounding;
};

/// Terms of a step of scaled groups that kernels along k take.
inline constexpr std::int64_t kGroupDotTerms = 64;

/// Some steps of some rows of A, [steps][rows][64] twice the values, times `width` columns of B, a
/// multiple of 8, whose codes are read as they lie in memory: columns are code_stride bytes apart.
/// B's groups need no `nonzero`. state is as in StepBlock.
struct GroupDotBlock {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  const std::int16_t* a = nullptr;
  const unsigned char* codes = nullptr;
  std::int64_t code_stride = 0;
  const unsigned char* next_codes = nullptr;  ///< codes to fetch meanwhile, alike
  std::int64_t next_stride = 0;
  GroupScales scale_a;
  GroupScales scale_b;
  GroupRounding rounding;
  std::int64_t width = 0;
  float* state = nullptr;
};

/// Of products of E2M1. Need rounding toward zero.
struct GroupKernels {
  void (*scaled)(const GroupBlock&);
};
struct GroupDotKernels {
  void (*scaled)(const GroupDotBlock&);
};

/// Exact steps in binary64 where the processor says that nothing was rounded.
struct CheckedKernels {
  /// c and up to 32 products at a time, rounded to binary32. Needs rounding to nearest, operands
  /// whose products binary64 holds, and sums of at most 100 bits; see docs/lab/gemm.md.
  void (*exact_steps)(const StepBlock<double>&);
  /// The same of up to 64 products without c, to which their rounded sum is added.
  void (*rounded_sums)(const StepBlock<double>&);
  /// c and the products, which binary64 holds together, rounded to FP16. Needs rounding to nearest.
  void (*half_steps)(const StepBlock<double>&);
};

/// Whether the processor has modes for subnormal numbers as the units of x86 treat them: flushed if
/// they are below 2^-126 after rounding. Where it has none, kernels return NaN for sums of which
/// they cannot tell.
#if defined(__x86_64__)
inline constexpr bool kSubnormalsByMode = true;
#else
inline constexpr bool kSubnormalsByMode = false;
#endif

/// What kernels of processors' units want to know of the model.
struct ProcessorRule {
  Subnormals subnormals = Subnormals::kept;
  std::int64_t chains = 1;
};

/// Units of processors in binary32, or of sums in binary64. Need rounding to nearest, but for
/// `odd_pairs`, and the modes of the rule's subnormals where there are any. No state is a subnormal
/// number that the rule flushes.
struct ProcessorKernels {
  /// Chains of FMAs in each step, their sum, and that with c.
  void (*chains)(const StepBlock<float>&, const ProcessorRule&);
  // Steps of these are pairs of terms.
  /// FMAs from c on, each pair's second first.
  void (*multiply_add_pairs)(const StepBlock<float>&, const ProcessorRule&);
  /// Two products, their sum, and that with c, each rounded.
  void (*rounded_pairs)(const StepBlock<float>&, const ProcessorRule&);
  /// The exact sum of two products rounded once, and that with c. Products are multiples of
  /// binary32's least number, or of 2^-126 if that is the least that the rule keeps.
  void (*exact_pairs)(const StepBlock<float>&, const ProcessorRule&);
  /// As `rounded_pairs`, to odd. Needs rounding toward zero, subnormals flushed, products of 24
  /// bits at most, and sums below 2^127. A state below 2^-126 is a zero.
  void (*odd_pairs)(const StepBlock<float>&, const ProcessorRule&);
  /// Sums of a step's products, which binary64 holds, rounded to binary32, and that with c. States
  /// are numbers of binary32.
  void (*scaled_sums)(const StepBlock<double>&, const ProcessorRule&);
};

struct WordDotKernels;

/// The kernels of one target.
struct UnitKernels {
  WordKernels words;
  PairKernels pairs;
  GroupKernels groups;
  GroupDotKernels group_dots;
  CheckedKernels checked;
  ProcessorKernels processors;
  const WordDotKernels* word_dots = nullptr;
};

/// Those of `target`; null for the scalar target, which has none.
const UnitKernels* unit_kernels(Target target);

/// What unit_kernels is made of, from one file each; null alike.
const WordKernels* word_kernels(Target target);
const PairKernels* pair_kernels(Target target);
const GroupKernels* group_kernels(Target target);
const GroupDotKernels* group_dot_kernels(Target target);
const CheckedKernels* checked_kernels(Target target);
const ProcessorKernels* processor_kernels(Target target);

}  // namespace fp8lab::gemm_detail
