#pragma once
// Which kernel computes a problem, and which of its outputs the kernel must
// leave to the reference. docs/lab/gemm.md derives every bound used here.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/unit_kernels.hpp"
#include "fp8lab/gemm/word_dots.hpp"

namespace fp8lab {
class BlockScaleRows;
}

namespace fp8lab::gemm_detail {

enum class Method : std::uint8_t {
  reference,         ///< gemm_reference for everything
  fused_float,       ///< fused steps in binary32: FP8 and narrower, small F
  fused_double,      ///< fused steps in binary64: any input, F <= 36
  exact_steps,       ///< steps that lose no product bit, in binary64
  checked_steps,     ///< exact steps of any data, in binary64 as far as it is exact
  exact,             ///< one exact sum in binary64
  float32,           ///< sequential binary32 FMAs
  truncated_float,   ///< sequential sums, truncated, in binary32
  truncated_double,  ///< the same in binary64
  nearest_double,    ///< sequential sums to nearest even, in binary64
  nearest_of_odd,    ///< the same of products that have more bits than the sums
  multiply_adds,     ///< sequential binary32 FMAs with all special values and signs of zero
  flushed_pairs,     ///< binary32 sums of pairs without subnormals
  fused_words,       ///< fused steps of few terms in 32-bit integers
  two_stage,         ///< two-stage steps in 32-bit integers
  even_odd,          ///< the same of even and odd terms apart
  scaled_groups,     ///< fused steps of scaled exact sums, in binary32 and binary64
};
std::string_view to_string(Method method);

struct Plan {
  Method method = Method::reference;
  std::int64_t terms = 1;  ///< terms a kernel step takes
  StepRounding rounding;
  SequentialRounding sums;      ///< of sequential methods
  WordRounding words_rounding;  ///< of methods in 32-bit integers
  TwoWords words;               ///< for exact methods where the data need them
  DotLayout dots;               ///< of B; for fused float where dot kernels take it
  WordDotLayout word_dots;      ///< the same of methods in 32-bit integers
  /// Of the steps of `fp16_halves`: promotion rounds to FP16; the two steps of an interval start
  /// from zero each.
  bool promotes_to_half = false;
  bool separate_steps = false;
  bool keeps_negative_zero = false;  ///< a c of -0 may stay: the kernels' sums of zero are +0
  bool keeps_infinities = false;     ///< operands' infinities are packed as such
  /// Terms of a group of `flushed_pairs`, which the end of K may cut.
  std::int64_t group = 1;

  /// Kernels read B as it lies in memory.
  [[nodiscard]] bool along_k() const { return dots.used() || word_dots.used(); }
  [[nodiscard]] bool in_double() const {
    return method == Method::fused_double || method == Method::exact_steps ||
           method == Method::checked_steps || method == Method::exact ||
           (sequential() && method != Method::truncated_float);
  }
  [[nodiscard]] bool sequential() const {
    return method == Method::truncated_float || method == Method::truncated_double ||
           method == Method::nearest_double || method == Method::nearest_of_odd;
  }
  [[nodiscard]] bool fused() const {
    return method == Method::fused_float || method == Method::fused_double;
  }
  /// Steps whose aligned products are 32-bit integers.
  [[nodiscard]] bool in_words() const {
    return method == Method::fused_words || method == Method::two_stage ||
           method == Method::even_odd;
  }
  /// Plain binary32 arithmetic: whatever c and packed operands hold is computed as specified.
  [[nodiscard]] bool takes_everything() const {
    return method == Method::multiply_adds || method == Method::flushed_pairs;
  }
  /// Operands are packed with their exponents.
  [[nodiscard]] bool has_exponents() const { return fused() || in_words(); }
};

class OperandScales;

/// The fastest method whose kernel computes the model's bits for these formats. `words`: 32-bit
/// integers may be chosen, which take fewer exponents than binary64.
Plan make_plan(const GemmProblem& problem, bool words = true);

/// Whether a step of fused words is one 32-bit sum, and not two, of operands of these formats.
bool is_one_word(const AccumulatorModel& model, const Format& a, const Format& b);

/// A problem as the kernels compute it, and as it was given: the same but for `fp16_halves`, whose
/// kernels take FP16 copies and promote after every instruction. m, n and C are the same.
struct PlannedProduct {
  const GemmProblem& problem;
  const GemmProblem& specified;
  Plan plan;
  const OperandScales* a_unit_scales = nullptr;  ///< those that the instruction applies
  const OperandScales* b_unit_scales = nullptr;
  const BlockScaleRows* specified_scales = nullptr;  ///< the same for the reference
};

/// D = the product, on a target with kernels, with a plan that is not `reference`.
void gemm_planned(PlannedProduct product, std::span<float> d, Target target, int threads);

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

/// Two words in which exact methods compute with all finite codes of the operands,
/// for a sum of length k; unused where they are not enough.
TwoWords find_two_words(const Plan& plan, const Format& a, const Format& b, std::int64_t k);

/// What a row holds that has all finite codes.
RowSummary widest_row(const Format& format);

/// Whether the kernel computes every output of a row like `a` with a row like
/// `b` that starts from c = 0. `k` is the length of the sum.
bool kernel_takes(const Plan& plan, const RowSummary& a, const RowSummary& b, std::int64_t k);

/// The same of an accumulator that starts from `c`.
bool kernel_takes_start(const Plan& plan, float c, const RowSummary& a, const RowSummary& b);

}  // namespace fp8lab::gemm_detail
