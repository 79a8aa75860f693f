#pragma once
// The vector kernels behind gemm, and the packed operands that they read.
// docs/lab/gemm.md explains the method; every kernel equals
// gemm_reference bit for bit on the inputs that methods/ let through.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::gemm_detail {

/// Types that go with the real type a kernel computes in: biased exponents of
/// a quarter of its width, and a word as wide as it.
template <typename T>
struct PackedTypes;
template <>
struct PackedTypes<float> {
  using Exponent = std::uint8_t;
  using Word = std::uint32_t;
};
template <>
struct PackedTypes<double> {
  using Exponent = std::uint16_t;
  using Word = std::uint64_t;
};

/// Codes that are read soon, which kernels of few rows fetch between products: memory and
/// arithmetic would wait for each other otherwise. `rows` rows, of as many terms as the block.
struct NextCodes {
  const unsigned char* codes = nullptr;
  std::int64_t row_stride = 0;  ///< bytes
  std::int64_t rows = 0;        ///< 0: none
  std::int64_t term_bytes = 1;
};

/// Some steps of some rows of A times a panel of B of the kernel's width.
///
/// a [steps][rows][terms] with a_exponents alike (each replicated to fill 32
/// bits) and a_signs [steps][rows]; b [steps][terms][width] with b_exponents
/// alike and b_signs [steps][width]; bit t of a sign word belongs to term t.
/// Exponents and signs may be null for kernels that need none.
/// state [rows][width] is what the accumulators hold between steps.
///
/// Of fused steps of 16 or 32 terms a panel may be folded: `fold` rows of A lie beside each other
/// in its vectors, so that its width is the kernel's divided by `fold`, of which `rows` is a
/// multiple.
template <typename T>
struct StepBlock {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  std::int64_t fold = 1;
  const T* a = nullptr;
  const std::uint32_t* a_exponents = nullptr;
  const std::uint32_t* a_signs = nullptr;
  const T* b = nullptr;
  const typename PackedTypes<T>::Exponent* b_exponents = nullptr;
  const std::uint32_t* b_signs = nullptr;
  T* state = nullptr;
  T* low_state = nullptr;  ///< the second word of exact sums in two words
  NextCodes next = {};     ///< fused steps only
};

/// What of the model the kernels need.
struct StepRounding {
  int alignment_fraction_bits = 13;
  int output_fraction_bits = 13;
  bool nearest_even = false;  ///< exact steps only: binary32 nearest even instead of truncation
  bool half_output = false;   ///< fused steps only: nearest even to FP16
  /// Fused steps in binary64 only: sums are multiples of binary32's least number and have all of
  /// its fraction bits, so that clearing bits of binary64 truncates them.
  bool in_place = false;
  /// Of fused steps, biased as the kernel's type: what no alignment is below, and what a
  /// non-zero c brings at least.
  int exponent_floor = 0;
  int c_exponent_floor = 0;
};

/// Terms of the longest step of which a kernel keeps the products of each significand of A.
inline constexpr std::int64_t kTermsOfProducts = 8;

/// What of a sequential model the kernels need.
struct SequentialRounding {
  int fraction_bits = 13;
  int product_fraction_bits = -1;  ///< products are rounded first, nearest even, unless negative
  bool few_significands = false;   ///< elements of A have up to 3 fraction bits
  bool short_sums = false;         ///< sums have at most 52 bits before they are rounded
};

/// Terms that a dot kernel takes from memory for a step of any number of terms up to this.
inline constexpr std::int64_t kDotTerms = 32;

/// 8-bit codes as dot kernels take them: of all their fields FP16 has room for.
struct DotLayout {
  int exponent_bits = 0;  ///< 4 or 5; 0: dot kernels are not used
  int bias = 0;

  [[nodiscard]] bool used() const { return exponent_bits != 0; }
};

/// Rows of A for dot kernels, each array [steps][rows][kDotTerms], a step's terms followed
/// by zeros. `values`, stretched and times 2^(15 - bias of B), are in chunks of the kernels'
/// `chunk` terms in the order 0, 2, 4 ... 1, 3, 5 ...; zeros are +0.
struct DotRows {
  const float* values = nullptr;
  const std::uint8_t* exponents = nullptr;  ///< biased by kFloatBiasA; 0 for zeros
  const std::int8_t* signs = nullptr;       ///< -128 for positive values, 0 for negative ones
  const std::int8_t* zeros = nullptr;       ///< 127 for zeros, 0 for others
};

/// What DotRows are made of: codes [rows][row_stride], steps * terms of each, of an 8-bit format
/// whose fields FP16 has room for. Values become `scale` times the FP16 number with their fields;
/// of NaN and Inf anything.
struct DotRowCodes {
  const unsigned char* codes = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  int exponent_bits = 4;
  int bias = 7;
  float scale = 1.0F;
  float* values = nullptr;
  std::uint8_t* exponents = nullptr;
  std::int8_t* signs = nullptr;
  std::int8_t* zeros = nullptr;
};

/// Some steps of some rows of A times `columns` columns of B, a multiple of 8, whose codes
/// [columns][code_stride] are read as they lie in memory, kDotTerms from a step's first on: what
/// is beyond its terms must be finite, or of the same column. state is as in StepBlock.
struct DotBlock {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  DotRows a;
  const std::uint8_t* codes = nullptr;
  std::int64_t code_stride = 0;
  const std::uint8_t* next_codes = nullptr;  ///< codes to fetch meanwhile, alike
  std::int64_t next_stride = 0;
  std::uint8_t* largest = nullptr;  ///< [columns][kDotTerms]: raised to the codes' magnitudes
  DotLayout layout;
  std::int64_t columns = 0;
  std::int64_t width = 0;  ///< of the state
  float* state = nullptr;
};

/// A fixed-point sum in two words of binary64: whole multiples of 2^unit in the
/// first, the rest, in multiples of 2^lowest, in the second.
struct TwoWords {
  double magic = 0.0;   ///< 1.5 * 2^(52 + unit), whose ulp is 2^unit; 0: one word is enough
  double limit = 0.0;   ///< what c must be below, in steps every c
  double lowest = 0.0;  ///< all products and c are multiples of this

  [[nodiscard]] bool used() const { return magic != 0.0; }
};

/// One FP32 operation on a row of the panel: final = scale_into(order, partial,
/// a_scale, scale_b, final), or final + partial if scale_b is null; NaN canonical.
struct Combine {
  ScaleOrder order = ScaleOrder::product_then_fma;
  const float* partial = nullptr;
  float a_scale = 1.0F;
  const float* scale_b = nullptr;
  float* final = nullptr;
};

/// Where the fields of a stored code are.
struct CodeLayout {
  int mantissa_bits = 0;
  int bias = 0;
  int sign_bit = 7;
  int dropped_bits = 0;        ///< low bits of the storage word below the code (TF32)
  std::uint32_t nan_code = 0;  ///< FNUZ: the code of -0, which is NaN
};

/// Codes of `rows` rows, `terms` from each, to [terms][width]. `terms` is a multiple
/// of 16, and so is `rows` unless it is less; strides and width count codes.
struct TransposeCodes {
  const unsigned char* from = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int64_t terms = 0;
  std::int64_t width = 0;
  unsigned char* to = nullptr;
};

/// What a row's or column's codes reach: magnitudes, that is codes without sign;
/// NaN and Inf are above all finite ones. Nothing but zeros: largest 0.
struct CodeRange {
  std::uint32_t largest = 0;
  std::uint32_t smallest = ~std::uint32_t{0};  ///< non-zero ones

  void add(const CodeRange& other) {
    largest = std::max(largest, other.largest);
    smallest = std::min(smallest, other.smallest);
  }
};

/// Codes of some steps of a panel, [steps][terms][width], and where their values
/// go: see StepBlock. NaN and Inf codes give undefined results; not `fused`: plain
/// values, no exponents or signs.
template <typename T>
struct PanelCodes {
  const unsigned char* codes = nullptr;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  CodeLayout layout;
  bool fused = true;
  T* values = nullptr;
  typename PackedTypes<T>::Exponent* exponents = nullptr;
  std::uint32_t* signs = nullptr;
};

/// The same for rows of A, [rows][row_stride] with zeros up to steps * terms and
/// a vector beyond. `values` and `exponents` have room for a vector beyond, too.
template <typename T>
struct RowCodes {
  const unsigned char* codes = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  CodeLayout layout;
  bool fused = true;
  T* values = nullptr;
  std::uint32_t* exponents = nullptr;
  std::uint32_t* signs = nullptr;
};

/// Fused steps of either type; need rounding toward zero.
struct FusedKernels {
  std::int64_t float_width = 0;      ///< columns of a panel of float kernels
  std::int64_t double_width = 0;     ///< columns of a panel of double kernels
  std::int64_t most_float_fold = 1;  ///< a power of two; see StepBlock
  std::int64_t most_double_fold = 1;
  void (*in_float)(const StepBlock<float>&, const StepRounding&);
  void (*in_double)(const StepBlock<double>&, const StepRounding&);
};

/// Fused steps in binary32 whose lanes run along k: for few rows, since B is not transposed.
struct DotKernels {
  std::int64_t chunk = 0;  ///< terms in a vector of codes
  /// Needs rounding toward zero.
  void (*in_float)(const DotBlock&, const StepRounding&);
  void (*pack)(const DotRowCodes&);
};

/// final[i] += state[i] for accumulators of fused steps, which start over; NaN is canonical.
/// count is a multiple of a vector's lanes.
template <typename T>
struct Promotion {
  T* state = nullptr;
  float* final = nullptr;
  /// Not null: `state` is added to this first. With `stash` it goes here instead, and no sum is
  /// made.
  float* first = nullptr;
  bool stash = false;
  bool to_half = false;        ///< sums are FP16's, else binary32's; nearest even
  bool marked = true;          ///< `state` has a mark in its lowest bit
  bool positive_zero = false;  ///< a `state` of -0 is +0
  std::int64_t count = 0;
};

/// The same with scales: `final` = `final` + scales * `state` in binary32, in the given order; NaN
/// is canonical.
template <typename T>
struct ScaledPromotion {
  T* state = nullptr;
  float* final = nullptr;
  bool marked = true;
  bool positive_zero = false;
  ScaleOrder order = ScaleOrder::product_then_fma;
  const float* scale_a = nullptr;  ///< [rows]
  const float* scale_b = nullptr;  ///< [width]
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// Terms of a step whose plain products are summed along k.
inline constexpr std::int64_t kLineTerms = 32;

/// Some steps of kLineTerms terms of some rows of A, [steps][rows][terms], times one column of B,
/// [steps][terms]: a sum for each row and step, or for each row of all steps together.
struct LineSums {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  const double* a = nullptr;
  const float* b = nullptr;
  bool together = false;
  double* to = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t step_stride = 0;
};

/// Everything else that adds.
struct SumKernels {
  /// Needs rounding toward zero.
  void (*exact_steps)(const StepBlock<double>&, const StepRounding&);
  /// out[i] = sum[i] + c[i], rounded once to binary32, nearest even; count is a
  /// multiple of the double panel's width. Needs rounding toward zero.
  void (*round_exact)(const double* sum, const float* c, float* out, std::int64_t count);
  /// The same in two words. A step whose c is not below the limit gives NaN.
  /// Need rounding toward zero.
  void (*two_word_steps)(const StepBlock<double>&, const StepRounding&, const TwoWords&);
  void (*two_word_sums)(const StepBlock<double>&, const TwoWords&);
  void (*round_two_words)(const double* high, const double* low, const float* c, const TwoWords&,
                          float* out, std::int64_t count);
  void (*plain_float)(const StepBlock<float>&);
  void (*plain_double)(const StepBlock<double>&);
  /// Of sums that are exact, in whatever order.
  void (*line_sums)(const LineSums&);
  void (*combine)(const Combine&, std::int64_t width);
  void (*promote_float)(const Promotion<float>&);
  void (*promote_double)(const Promotion<double>&);
  void (*promote_scaled_float)(const ScaledPromotion<float>&);
  void (*promote_scaled_double)(const ScaledPromotion<double>&);
};

/// Sums rounded to `fraction_bits` after every product.
struct SequentialKernels {
  /// Truncation. Need rounding toward zero.
  void (*truncated_float)(const StepBlock<float>&, const SequentialRounding&);
  void (*truncated_double)(const StepBlock<double>&, const SequentialRounding&);
  /// Nearest even, where products have no more bits than sums keep. Needs rounding to nearest.
  void (*nearest_double)(const StepBlock<double>&, const SequentialRounding&);
  /// The same for exact products of any bits. Needs rounding toward zero.
  void (*nearest_of_odd_double)(const StepBlock<double>&, const SequentialRounding&);
};

/// Moves codes of one storage width into panels for kernels of type T, and says what
/// they reach.
template <typename T>
struct CodeKernels {
  void (*transpose)(const TransposeCodes&);
  /// Adds the codes [terms][width] of a panel to the ranges of its columns.
  void (*column_ranges)(const unsigned char* codes, std::int64_t terms, const CodeLayout&,
                        CodeRange* ranges);
  /// The range of `count` codes in a row.
  CodeRange (*row_range)(const unsigned char* codes, std::int64_t count, const CodeLayout&);
};

/// Codes of one storage width to values. Exact, under rounding to nearest with
/// subnormals kept.
template <typename T>
struct DecodeKernels {
  void (*panel)(const PanelCodes<T>&);
  void (*rows)(const RowCodes<T>&);
};

/// For storage of 1, 2 and 4 bytes. Fused float kernels take 1 only.
template <typename T>
using CodeKernelsByWidth = std::array<CodeKernels<T>, 3>;
template <typename T>
using DecodeKernelsByWidth = std::array<DecodeKernels<T>, 3>;

/// The kernels of one target.
struct KernelTable {
  FusedKernels fused;
  DotKernels dots;
  SumKernels sums;
  SequentialKernels sequential;
  CodeKernelsByWidth<float> float_codes;
  CodeKernelsByWidth<double> double_codes;
  DecodeKernelsByWidth<float> float_decode;
  DecodeKernelsByWidth<double> double_decode;

  template <typename T>
  [[nodiscard]] std::int64_t width() const {
    return std::is_same_v<T, float> ? fused.float_width : fused.double_width;
  }
  template <typename T>
  [[nodiscard]] std::int64_t most_fold() const {
    return std::is_same_v<T, float> ? fused.most_float_fold : fused.most_double_fold;
  }
  template <typename T>
  [[nodiscard]] const CodeKernels<T>& codes(int storage_bits) const {
    if constexpr (std::is_same_v<T, float>)
      return float_codes[index(storage_bits)];
    else
      return double_codes[index(storage_bits)];
  }
  template <typename T>
  [[nodiscard]] const DecodeKernels<T>& decode(int storage_bits) const {
    if constexpr (std::is_same_v<T, float>)
      return float_decode[index(storage_bits)];
    else
      return double_decode[index(storage_bits)];
  }

  static std::size_t index(int storage_bits) {
    return storage_bits == 8 ? 0 : storage_bits == 16 ? 1 : 2;
  }
};

/// What operands of the fused kernels are instead of zero, so that a sign bit has
/// something to act on: small enough to vanish in any alignment.
inline constexpr float kTinyFloat = 0x1p-110F;
inline constexpr double kTinyDouble = 0x1p-500;

/// What B (for dot kernels A) is multiplied by for the fused kernels, so that no
/// negative product is a whole number of units.
inline constexpr float kStretchFloat = 1.0F + 0x1p-19F;
inline constexpr double kStretchDouble = 1.0 + 0x1p-40;

/// Biases that the packed exponents carry. A zero operand has exponent field 0.
inline constexpr int kFloatBiasA = 63;
inline constexpr int kFloatBiasB = 64;
inline constexpr int kDoubleBiasA = 511;
inline constexpr int kDoubleBiasB = 512;
/// No alignment exponent is below these (biased): what a step without products uses.
inline constexpr int kFloatExponentFloor = 127 - 60;
inline constexpr int kDoubleExponentFloor = 1023 - 300;

/// The widest panel of any target.
inline constexpr std::int64_t kMaxWidth = 64;

/// The kernels of `target`; null for the scalar target, which has none.
const KernelTable* kernel_table(Target target);

/// What kernel_table is made of, from one file each; null alike.
const FusedKernels* fused_kernels(Target target);
const DotKernels* dot_kernels(Target target);
const SumKernels* sum_kernels(Target target);
const SequentialKernels* sequential_kernels(Target target);
const CodeKernelsByWidth<float>* float_code_kernels(Target target);
const CodeKernelsByWidth<double>* double_code_kernels(Target target);
const DecodeKernelsByWidth<float>* float_decode_kernels(Target target);
const DecodeKernelsByWidth<double>* double_decode_kernels(Target target);

}  // namespace fp8lab::gemm_detail
