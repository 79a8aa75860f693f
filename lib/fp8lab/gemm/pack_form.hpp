#pragma once
// What of a method packing follows: the arrays that its kernels read; and what rows of operands
// hold, as far as it decides which outputs a kernel computes.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/word_dots.hpp"

namespace fp8lab::gemm_detail {

/// Kernels along k need so many columns a row of A: with fewer, packing A takes longer than they
/// save.
inline constexpr std::int64_t kColumnsPerRow = 64;

/// What operands are packed as: see StepBlock.
enum class PackedAs : std::uint8_t {
  values,  ///< plain values alone
  fused,   ///< values without zeros, B's stretched; biased exponents; signs
  words,   ///< plain values, and their stored exponents as signed bytes
};

struct PackForm {
  std::int64_t terms = 1;  ///< a kernel step takes
  PackedAs as = PackedAs::values;
  bool flushes_subnormals = false;  ///< subnormal operands are packed as +0
  bool all_numbers = false;         ///< codes of NaN and infinities are numbers like all others
  /// Not 0: what is after K's last group of so many terms is -0 in A, which leaves a sum of -0
  /// alone; else it is +0.
  std::int64_t group = 0;
  /// Rows of A beside each other in the vectors of a panel, which has so many times fewer columns.
  std::int64_t fold = 1;
  DotLayout dots;           ///< of B, where kernels in binary32 read it as it lies in memory
  WordDotLayout word_dots;  ///< the same of kernels in 32-bit integers
  bool group_dots = false;  ///< the same of kernels of scaled groups
  bool lines = false;       ///< the same of kernels of plain values in binary64
  /// Of scales that the instruction applies: terms that share one, a step's if 0; whether kernels
  /// ask which of these are zero, along k of A alone; and whether exponents are all that they ask
  /// for.
  std::int64_t scale_terms = 0;
  bool notes_zeros = false;
  bool scale_exponents = false;
  /// Plain values are multiplied by the scales of their steps; and whether ranges of rows are those
  /// of codes alone, since kernels take whatever scale there is.
  bool scales_values = false;
  bool any_scales = false;

  /// Whether operands are packed with their scales.
  [[nodiscard]] bool packs_scales() const { return fused() || scales_values; }

  /// Kernels read B as it lies in memory.
  [[nodiscard]] bool along_k() const {
    return dots.used() || word_dots.used() || group_dots || lines;
  }
  [[nodiscard]] bool fused() const { return as == PackedAs::fused; }
  [[nodiscard]] bool words() const { return as == PackedAs::words; }
  [[nodiscard]] bool has_exponents() const { return as != PackedAs::values; }
};

/// What a row of an operand holds, over all of K.
struct RowSummary {
  bool nan = false;
  bool infinite = false;
  int largest = std::numeric_limits<int>::min() / 4;  ///< largest exponent of a non-zero element
  int lowest = std::numeric_limits<int>::max() / 4;   ///< exponent of its lowest set bit

  void add(const RowSummary& other) {
    nan |= other.nan;
    infinite |= other.infinite;
    largest = std::max(largest, other.largest);
    lowest = std::min(lowest, other.lowest);
  }
};

/// What a row holds that has all finite codes; with `all_numbers`, those of NaN and Inf too.
RowSummary widest_row(const Format& format, bool all_numbers = false);

/// The products of a row like `a` with a row like `b`, and sums of k of them.
struct ProductRange {
  ProductRange(const RowSummary& a, const RowSummary& b, std::int64_t k);

  int top;      ///< products are below 2^top
  int low;      ///< and multiples of 2^low
  int sum_top;  ///< sums are below 2^sum_top
};

/// How many bits numbers below x have; x > 0.
int ceil_log2(std::int64_t x);

}  // namespace fp8lab::gemm_detail
